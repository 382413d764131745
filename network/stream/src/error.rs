//! The crate's error.

use std::error::Error as StdError;
use std::{fmt, result};

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A size that no lane has, or a window too small for it.
    Geometry,
    /// The peer stored what the protocol forbids. The connection is over.
    Protocol,
    /// Bytes were to be sent after the end was.
    Ended,
    /// The window refused.
    Window,
}

/// A failure, with what was found and why it failed.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    context: &'static str,
    source: Option<millrace_window::Error>,
}

/// A result of this crate.
pub type Result<T> = result::Result<T, Error>;

impl Error {
    pub(crate) const fn new(kind: ErrorKind, context: &'static str) -> Self {
        Self {
            kind,
            context,
            source: None,
        }
    }

    /// What went wrong.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl From<millrace_window::Error> for Error {
    fn from(source: millrace_window::Error) -> Self {
        Self {
            kind: ErrorKind::Window,
            context: "the window refused",
            source: Some(source),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.context)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source
            .as_ref()
            .map(|source| source as &(dyn StdError + 'static))
    }
}
