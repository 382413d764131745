//! The crate's error.

use std::error::Error as StdError;
use std::fmt;
use std::result;

/// Kinds of failure that a caller can act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The limit of locked memory (RLIMIT_MEMLOCK) is too low.
    LockLimit,
    /// The kernel has no memory of the kind that was asked for: huge pages, or any.
    NoMemory,
    /// No range of device addresses is left that is large enough.
    NoAddresses,
    /// Nothing is mapped at this device address.
    NotMapped,
    /// The requested sizes are inconsistent.
    Invalid,
    /// Anything else that the kernel or a device's provider refused.
    Refused,
}

/// A failure, with what was attempted and why it failed.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    context: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// Result whose error is this crate's [`Error`].
pub type Result<T> = result::Result<T, Error>;

impl Error {
    /// A failure of `kind`; `context` names the operation, and the remedy where it is known.
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

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ErrorKind::LockLimit => "not enough memory may be locked",
            ErrorKind::NoMemory => "no such memory is free",
            ErrorKind::NoAddresses => "no device addresses are left",
            ErrorKind::NotMapped => "not mapped",
            ErrorKind::Invalid => "invalid",
            ErrorKind::Refused => "refused",
        };
        write!(f, "{kind}: {}", self.context)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source
            .as_deref()
            .map(|source| source as &(dyn StdError + 'static))
    }
}
