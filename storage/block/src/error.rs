//! What can go wrong with a device.

use std::error::Error as StdError;
use std::fmt;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kinds of failure a caller may act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The text names no device, or the request makes no sense.
    Invalid,
    /// There is no such device.
    NotFound,
    /// The process may not use it.
    Permission,
    /// Somebody else has it.
    InUse,
    /// The device, or this machine, cannot do it.
    Unsupported,
    /// The queue is full: take a completion first.
    Full,
    /// Memory for the device could not be had.
    Memory,
    /// What holds the device has no space left (a file that is sparse).
    NoSpace,
    /// Blocks cannot be read or written.
    Medium,
    /// The device does not work, or is gone.
    Device,
}

/// A failure: its kind, what was being done, and the cause below.
///
/// It is one pointer, so that completions, which rarely have one, stay small.
#[derive(Debug)]
pub struct Error(Box<Failure>);

#[derive(Debug)]
struct Failure {
    kind: ErrorKind,
    context: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// A failure of `kind` while doing what `context` says.
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self(Box::new(Failure {
            kind,
            context: context.into(),
            source: None,
        }))
    }

    /// The same with the failure that caused it.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Its kind.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.0.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.context)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let source = self.0.source.as_deref();
        source.map(|source| source as &(dyn StdError + 'static))
    }
}
