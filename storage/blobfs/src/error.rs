//! Errors of a volume: kind, context and source.

use std::error::Error as StdError;

/// Result of a call of this crate; its default error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Kinds of failure that a caller can act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No file or directory has this name (POSIX `ENOENT`).
    NotFound,
    /// A file or directory of this name exists (`EEXIST`).
    Exists,
    /// The path names a file where a directory is needed (`ENOTDIR`).
    NotDirectory,
    /// The path names a directory where a file is needed (`EISDIR`).
    IsDirectory,
    /// The directory has entries (`ENOTEMPTY`).
    NotEmpty,
    /// The path is malformed: too long, or with a character that names cannot contain.
    InvalidPath,
    /// The arguments are invalid: a range beyond the end, a directory moved into itself, format options out of range
    /// (`EINVAL`).
    Invalid,
    /// The volume is full, or the file would exceed the size limit (`ENOSPC`).
    NoSpace,
    /// The device or the file is locked by another holder (`EBUSY`).
    InUse,
    /// The volume or the handle is read-only (`EROFS`).
    ReadOnly,
    /// An earlier write failed. Nothing is acknowledged any more; the volume can still be read.
    Poisoned,
    /// The device reported an I/O error (`EIO`).
    Io,
    /// A checksum or an invariant of the format does not hold.
    Corruption,
    /// The device holds no volume of this format.
    NotAVolume,
    /// The volume was written by a later version and uses features that this version does not know.
    NewerFormat,
    /// Memory for device transfers cannot be allocated or locked.
    Memory,
    /// The device or the volume does not support the operation.
    Unsupported,
}

/// A failure of a volume operation: kind, context and the error below.
#[derive(Debug, thiserror::Error)]
#[error("{context}")]
pub struct Error {
    kind: ErrorKind,
    context: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// A failure of `kind`; `context` names the operation and its object.
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self {
            kind,
            context: context.into(),
            source: None,
        }
    }

    /// This error with the failure that caused it as its source.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// This error with the path that it concerns.
    #[must_use]
    pub(crate) fn at(mut self, path: &str) -> Self {
        self.context = format!("{path}: {}", self.context);
        self
    }

    /// Kind of the failure, for the caller to match on.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }
}
