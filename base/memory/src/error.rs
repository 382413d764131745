//! The crate's error.

use std::error::Error as StdError;
use std::fmt;
use std::result;

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The process may not lock so much memory.
    LockLimit,
    /// The kernel has no memory of the kind that was asked for: huge pages, or any.
    NoMemory,
    /// No range of device addresses is left that is large enough.
    NoAddresses,
    /// Nothing is mapped at this device address.
    NotMapped,
    /// The sizes asked for make no sense together.
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

/// A result of this crate.
pub type Result<T> = result::Result<T, Error>;

impl Error {
    /// An error whose context says what was attempted, and what to do where that is known.
    #[must_use]
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self {
            kind,
            context: context.into(),
            source: None,
        }
    }

    /// The same with its cause.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What went wrong.
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
