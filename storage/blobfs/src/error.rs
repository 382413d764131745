//! What can go wrong with a volume.

use std::error::Error as StdError;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kinds of failure a caller may act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// There is no file or directory of this name.
    NotFound,
    /// There is one already.
    Exists,
    /// A directory is needed, and this is a file.
    NotDirectory,
    /// A file is needed, and this is a directory.
    IsDirectory,
    /// The directory has entries.
    NotEmpty,
    /// The path cannot name a file: too long, or with a character that names do not have.
    InvalidPath,
    /// What was asked makes no sense: a range beyond the end, a directory moved into itself, options that no
    /// volume can have.
    Invalid,
    /// The volume is full, or would be too large.
    NoSpace,
    /// Somebody else has it: the device, or a lock on a file.
    InUse,
    /// The volume, or this handle, is for reading alone.
    ReadOnly,
    /// A write failed before. Nothing is acknowledged any more; the volume can be read.
    Poisoned,
    /// The device failed.
    Io,
    /// What the device holds is not what was written.
    Corruption,
    /// The device holds no volume.
    NotAVolume,
    /// The volume was written by a later version, which says that this one cannot use it.
    NewerFormat,
    /// Memory for the device could not be had.
    Memory,
    /// The device, or the volume, cannot do it.
    Unsupported,
}

/// A failure: its kind, what was being done, and the cause below.
#[derive(Debug, thiserror::Error)]
#[error("{context}")]
pub struct Error {
    kind: ErrorKind,
    context: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// A failure of `kind` while doing what `context` says.
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self {
            kind,
            context: context.into(),
            source: None,
        }
    }

    /// The same with the failure that caused it.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The same, said of a path.
    #[must_use]
    pub(crate) fn at(mut self, path: &str) -> Self {
        self.context = format!("{path}: {}", self.context);
        self
    }

    /// Its kind.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }
}
