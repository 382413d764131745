//! The crate's error.

use std::error::Error as StdError;
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

impl ErrorKind {
    const fn text(self) -> &'static str {
        match self {
            Self::LockLimit => "not enough memory may be locked",
            Self::NoMemory => "no such memory is free",
            Self::NoAddresses => "no device addresses are left",
            Self::NotMapped => "not mapped",
            Self::Invalid => "invalid",
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
