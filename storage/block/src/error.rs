//! Errors of a block device: kind, context and source.

use std::error::Error as StdError;

/// Result of a call of this crate; its default error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Kinds of failure that a caller can act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The device name or the request is invalid (`EINVAL`).
    Invalid,
    /// The device does not exist (`ENOENT`).
    NotFound,
    /// The process lacks permission (`EACCES`).
    Permission,
    /// Another process, or another handle of this process, holds the device (`EBUSY`).
    InUse,
    /// The device or the machine does not support the operation.
    Unsupported,
    /// The queue is full: take a completion first (`EAGAIN`).
    Full,
    /// Memory for device transfers cannot be allocated or locked.
    Memory,
    /// The file system below has no space left for a sparse file (`ENOSPC`).
    NoSpace,
    /// A media error: blocks cannot be read or written (`EIO`).
    Medium,
    /// The device failed or was removed (`ENXIO`).
    Device,
}

/// A failure of a device operation: kind, context and the error below.
///
/// It is one pointer, so that completions, which rarely have one, stay small.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Error(Box<Failure>);

#[derive(Debug, thiserror::Error)]
#[error("{context}")]
struct Failure {
    kind: ErrorKind,
    context: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// A failure of `kind`; `context` names the operation and its object.
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self(Box::new(Failure {
            kind,
            context: context.into(),
            source: None,
        }))
    }

    /// This error with the failure that caused it as its source.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Kind of the failure, for the caller to match on.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.0.kind
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_the_context_and_the_cause_is_the_source() {
        let error = Error::new(ErrorKind::Device, "reading block 7");
        assert!(error.source().is_none());
        let error = error.caused_by(std::io::Error::other("gone"));
        assert_eq!(error.to_string(), "reading block 7");
        assert_eq!(
            error.source().map(ToString::to_string),
            Some("gone".to_owned())
        );
        assert_eq!(size_of::<Error>(), size_of::<usize>());
    }
}
