//! The crate's error.

use std::error::Error as StdError;
use std::fmt;
use std::result;

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The rules make no sense; the context names the line.
    Rules,
    /// The folder or the socket's path is none that can be trusted.
    Unsafe,
    /// A monitor listens there already.
    InUse,
    /// No monitor listens there.
    NotRunning,
    /// The monitor refused it, or said what it may not say.
    Refused,
    /// The kernel refused it.
    System,
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
    /// An error whose context says what was attempted or found, and what to do where that is known.
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

/// Makes the error for what the kernel refused.
pub(crate) fn system(attempted: impl Into<String>) -> impl FnOnce(rustix::io::Errno) -> Error {
    move |errno| Error::new(ErrorKind::System, attempted).caused_by(errno)
}
