//! The crate's error.

use std::error::Error as StdError;
use std::fmt;
use std::result;

/// Kinds of failure that a caller can distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The options make no sense together; the context says which.
    Options,
    /// There is no such namespace or block.
    NotFound,
    /// The socket cannot be served, or a client broke the protocol.
    Server,
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
    pub(crate) fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self {
            kind,
            context: context.into(),
            source: None,
        }
    }

    pub(crate) fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Kind of the failure, for decisions by the caller.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ErrorKind::Options => "such a controller cannot be",
            ErrorKind::NotFound => "not found",
            ErrorKind::Server => "cannot be served",
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
