//! The crate's error.

use std::error::Error as StdError;
use std::result;

/// Kinds of failure that a caller can act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The offset or length lies outside, or not at a multiple of what it must be one of.
    OutOfRange,
    /// The lines belong to another half.
    InUse,
    /// The window is not meant to be stored to, or not to be loaded from.
    Direction,
    /// The file must not be mapped: it could shrink, other processes may open it, or it is of the wrong kind.
    Unsafe,
    /// The user may not open what is needed.
    Permission,
    /// The file does not exist (`ENOENT`).
    NotFound,
    /// The window, or the machine, has no such thing: a doorbell, a size, lines so short.
    Unsupported,
    /// Anything else that the kernel refused.
    Refused,
}

impl ErrorKind {
    const fn text(self) -> &'static str {
        match self {
            Self::OutOfRange => "out of range",
            Self::InUse => "in use",
            Self::Direction => "the wrong direction",
            Self::Unsafe => "not safe to map",
            Self::Permission => "not permitted",
            Self::NotFound => "not found",
            Self::Unsupported => "not supported",
            Self::Refused => "refused",
        }
    }
}

/// A failure, with what was attempted and why it failed.
#[derive(Debug, thiserror::Error)]
#[error("{}: {context}", .kind.text())]
pub struct Error {
    kind: ErrorKind,
    context: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// Result with this crate's [`Error`].
pub type Result<T> = result::Result<T, Error>;

impl Error {
    /// A failure of `kind`; `context` names the operation or the finding, and the remedy where it is known.
    #[must_use]
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self {
            kind,
            context: context.into(),
            source: None,
        }
    }

    /// This error with its cause as the source.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Kind of the failure, for the caller to match on.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }
}

/// Error of a system call whose errno alone determines the kind.
pub(crate) fn refused(errno: rustix::io::Errno, attempted: impl Into<String>) -> Error {
    use rustix::io::Errno;
    let kind = match errno {
        Errno::ACCESS | Errno::PERM => ErrorKind::Permission,
        Errno::NOENT | Errno::NODEV | Errno::NXIO => ErrorKind::NotFound,
        _ => ErrorKind::Refused,
    };
    Error::new(kind, attempted).caused_by(errno)
}

/// The error for a word, line or range that is not there.
#[cold]
pub(crate) fn out_of_range(what: &str, offset: usize, length: usize, size: usize) -> Error {
    Error::new(
        ErrorKind::OutOfRange,
        format!("{what}: {length} bytes at {offset:#x} of {size:#x}"),
    )
}
