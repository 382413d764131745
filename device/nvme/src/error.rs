//! The crate's errors: of the controller as a whole, and of one request.

use std::error::Error as StdError;
use std::fmt;
use std::result;
use std::sync::Arc;

use crate::spec::status::Status;

/// What went wrong with a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The function is not an NVMe controller for I/O on PCI.
    NotNvme,
    /// It lacks something that the driver needs, or the caller asked for.
    Unsupported,
    /// It did not become ready, or did not answer a command, in the time it has.
    TimedOut,
    /// The controller reports a fatal status (CSTS.CFS), or resets did not help.
    Failed,
    /// The device was removed from the bus.
    Gone,
    /// The controller violated the specification.
    Protocol,
    /// An admin command ended with an error; the status is in the error.
    Command,
    /// There is no such namespace, or none that is active.
    NoNamespace,
    /// No I/O queue is left.
    NoQueue,
    /// The caller's arguments are invalid or out of range.
    Invalid,
    /// Memory or its device addresses could not be had.
    Memory,
    /// The provider of the PCI function failed.
    Function,
}

/// A failure, with what was attempted and why it failed.
#[derive(Debug, thiserror::Error)]
pub struct Error {
    kind: ErrorKind,
    context: String,
    status: Option<Status>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// Result whose error is this crate's [`Error`].
pub type Result<T> = result::Result<T, Error>;

impl Error {
    pub(crate) fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self {
            kind,
            context: context.into(),
            status: None,
            source: None,
        }
    }

    pub(crate) fn command(what: &str, status: Status) -> Self {
        Self {
            status: Some(status),
            ..Self::new(ErrorKind::Command, what)
        }
    }

    pub(crate) fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// A copy without the source, for further callers.
    pub(crate) fn copy(&self) -> Self {
        Self {
            status: self.status,
            ..Self::new(self.kind, self.context.clone())
        }
    }

    /// This error, extended by the failure of its remedy.
    pub(crate) fn nor(
        mut self,
        what: &str,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        self.context = format!("{}; {what}", self.context);
        self.caused_by(source)
    }

    /// This error with an earlier one as its source, unless it has a source.
    pub(crate) fn since(mut self, cause: Arc<Self>) -> Self {
        if self.source.is_none() {
            self.source = Some(cause.into());
        }
        self
    }

    /// Kind of the failure, for the caller to match on.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// How the command ended, if it was one that failed.
    #[must_use]
    pub const fn status(&self) -> Option<Status> {
        self.status
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ErrorKind::NotNvme => "not an NVMe controller",
            ErrorKind::Unsupported => "not supported",
            ErrorKind::TimedOut => "timed out",
            ErrorKind::Failed => "the controller has failed",
            ErrorKind::Gone => "the controller was removed",
            ErrorKind::Protocol => "the controller broke the protocol",
            ErrorKind::Command => "command failed",
            ErrorKind::NoNamespace => "no such namespace",
            ErrorKind::NoQueue => "no I/O queue is left",
            ErrorKind::Invalid => "invalid",
            ErrorKind::Memory => "no memory for the device",
            ErrorKind::Function => "the PCI function failed",
        };
        write!(f, "{kind}: {}", self.context)?;
        match self.status {
            Some(status) => write!(f, ": {status}"),
            None => Ok(()),
        }
    }
}

impl From<millrace_pci::Error> for Error {
    fn from(source: millrace_pci::Error) -> Self {
        let kind = match source.kind() {
            millrace_pci::ErrorKind::Gone => ErrorKind::Gone,
            _ => ErrorKind::Function,
        };
        Self::new(kind, "registers, configuration or interrupts").caused_by(source)
    }
}

impl From<millrace_memory::Error> for Error {
    fn from(source: millrace_memory::Error) -> Self {
        Self::new(ErrorKind::Memory, "queues and lists").caused_by(source)
    }
}

/// Why a request that was accepted failed.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum CommandError {
    /// The controller ended a command of it with this status.
    #[error("the controller answered: {0}")]
    Status(Status),
    /// A command of it did not end in time, nor when it was sent again.
    #[error("the controller did not answer in time")]
    TimedOut,
    /// The controller was reset while it was under way, more often than it is sent again; or it does not
    /// give the queue again.
    #[error("the controller was reset meanwhile")]
    Reset,
    /// Of a flush: the controller was reset since the last one, without being asked or because it did not
    /// work, and may have lost its cache. What was written before and not flushed may be lost, though the
    /// writes have succeeded. The next flush is about what is written from now on.
    #[error("the controller was reset: what was not flushed before may be lost")]
    CacheLost,
    /// The controller has failed for good.
    #[error("the controller has failed")]
    Failed,
    /// The controller was removed from the bus.
    #[error("the controller was removed")]
    Gone,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_name_what_failed_and_not_the_source() {
        let error = Error::new(ErrorKind::TimedOut, "identify");
        let error = error.caused_by(std::io::Error::other("silence"));
        assert_eq!(error.to_string(), "timed out: identify");
        assert_eq!(
            error.source().map(ToString::to_string),
            Some("silence".to_owned())
        );
        let failed = Error::command("identify", Status::SUCCESS).to_string();
        assert!(failed.starts_with("command failed: identify: "), "{failed}");
        let reset = "the controller was reset: what was not flushed before may be lost";
        assert_eq!(CommandError::CacheLost.to_string(), reset);
        let answered = CommandError::Status(Status::SUCCESS).to_string();
        assert_eq!(
            answered,
            format!("the controller answered: {}", Status::SUCCESS)
        );
    }
}
