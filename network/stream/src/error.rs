//! The error type of this crate.

use std::error::Error as StdError;
use std::{fmt, result};

/// The cause of a failure, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The geometry is invalid, or the window is too small for it.
    Geometry,
    /// The peer broke the protocol. The connection is over.
    Protocol,
    /// Bytes were sent after the end.
    Ended,
    /// The window reported an error; the source has it.
    Window,
}

/// A failure: what was found, and its cause.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    context: &'static str,
    source: Option<millrace_window::Error>,
}

/// The result type of this crate.
pub type Result<T> = result::Result<T, Error>;

impl Error {
    pub(crate) const fn new(kind: ErrorKind, context: &'static str) -> Self {
        Self {
            kind,
            context,
            source: None,
        }
    }

    /// The kind of the failure, for a program's decision.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl From<millrace_window::Error> for Error {
    fn from(source: millrace_window::Error) -> Self {
        Self {
            kind: ErrorKind::Window,
            context: "the window reported an error",
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
