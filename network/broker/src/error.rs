//! The error type of this crate.

use std::error::Error as StdError;
use std::fmt;
use std::result;

/// The cause of a failure, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A rule is malformed; the context names the line.
    Rules,
    /// The folder or the path of the socket cannot be trusted.
    Unsafe,
    /// Another broker listens at the path.
    InUse,
    /// No broker listens at the path.
    NotRunning,
    /// The broker refused the request, or broke the protocol.
    Refused,
    /// A system call failed with the errno of the source.
    System,
}

/// A failure: the attempted operation and its cause.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    context: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The result type of this crate.
pub type Result<T> = result::Result<T, Error>;

impl Error {
    /// An error. The context names the attempted operation, the value found, and the remedy if one is known.
    #[must_use]
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self {
            kind,
            context: context.into(),
            source: None,
        }
    }

    /// The same error with its cause attached.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The kind of the failure, for a program's decision.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The failure and its direct cause, in one line.
    pub(crate) fn chain(&self) -> String {
        match &self.source {
            Some(source) => format!("{self}: {source}"),
            None => self.to_string(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.context)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source
            .as_deref()
            .map(|source| source as &(dyn StdError + 'static))
    }
}

/// A function that turns the errno of a failed system call into an error.
pub(crate) fn system(attempted: impl Into<String>) -> impl FnOnce(rustix::io::Errno) -> Error {
    move |errno| Error::new(ErrorKind::System, attempted).caused_by(errno)
}
