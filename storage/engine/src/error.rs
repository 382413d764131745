//! What can go wrong in an engine.

use std::error::Error as StdError;

/// The result of an engine's operation; its error is [`Error`] unless another one is named.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kinds of failure a caller may act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A guarded key was written by another commit: read again and retry.
    Conflict,
    /// A key or a value is longer than the limits.
    TooLarge,
    /// An earlier write or sync failed: the engine acknowledges nothing any more.
    Poisoned,
    /// The device or the operating system failed.
    Io,
    /// What is stored does not pass its checksums or cannot be read as what it should be.
    Corruption,
    /// The folder was written by a newer version.
    NewerFormat,
    /// Another process has the folder open.
    Locked,
    /// The device is full.
    NoSpace,
    /// The request makes no sense (a checkpoint into a folder that exists).
    InvalidArgument,
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
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The kind of the failure, on which a caller decides what to do.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }
}
