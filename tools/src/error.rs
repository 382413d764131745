//! The error of every subcommand, with what can be done about it.

use std::error::Error as StdError;
use std::io;

use crate::advice;

/// The exit code of an interrupted command: 128 and the number of SIGINT, as shells report it.
const INTERRUPTED: u8 = 128 + 2;

/// What kind of failure it is, for callers that decide by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The arguments contradict each other, the device, the volume or the rules.
    Usage,
    /// The command would destroy data, and `--force` was not given.
    NotForced,
    /// The command would do harm, with or without `--force`.
    Refused,
    /// The kernel's view of a PCI function could not be read or changed.
    Machine,
    /// The device could not be opened.
    Open,
    /// The device failed, or answered with an error.
    Device,
    /// The volume is missing or unusable, or does not support the request.
    Volume,
    /// A file of the host could not be read or written.
    Host,
    /// The broker of user-level sockets is missing, is already running, or refused.
    Broker,
    /// The preload library was not found.
    Library,
    /// The program could not be started.
    Program,
    /// The user interrupted the command with Ctrl-C.
    Interrupted,
    /// The output could not be written, or the system lacks something.
    System,
}

/// A failure of a subcommand: what was attempted, the cause, and advice on what to do.
#[derive(Debug, thiserror::Error)]
#[error("{context}")]
pub struct ToolError {
    kind: ErrorKind,
    pub(crate) context: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
    advice: Vec<String>,
    exit_code: u8,
}

impl ToolError {
    pub(crate) fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self {
            kind,
            context: context.into(),
            source: None,
            advice: Vec::new(),
            exit_code: match kind {
                ErrorKind::Interrupted => INTERRUPTED,
                _ => 1,
            },
        }
    }

    /// The same error with its cause, and the advice that follows from the cause.
    pub(crate) fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        let source = source.into();
        self.advice
            .extend(advice::for_cause(&*source).map(str::to_owned));
        self.source = Some(source);
        self
    }

    /// The same error with one more piece of advice, after the others.
    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice.push(advice.into());
        self
    }

    /// The same error with the exit code of a command that has its own; an interruption keeps its code.
    pub(crate) fn ending_with(mut self, exit_code: u8) -> Self {
        if self.kind != ErrorKind::Interrupted {
            self.exit_code = exit_code;
        }
        self
    }

    /// The error of a command whose output could not be written.
    pub(crate) fn output(source: io::Error) -> Self {
        Self::new(ErrorKind::System, "the output could not be written").caused_by(source)
    }

    /// Kind of the failure, for callers that distinguish failures.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What the user can do about the failure, the likeliest first.
    #[must_use]
    pub fn advice(&self) -> &[String] {
        &self.advice
    }

    /// The exit code that the process should end with; 1 unless the command defines another.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        self.exit_code
    }

    /// Whether the reader of the output closed its end, so that there is nobody to report to.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        self.kind == ErrorKind::System
            && self
                .source
                .as_deref()
                .and_then(|source| source.downcast_ref::<io::Error>())
                .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_follows_from_the_innermost_cause() {
        let memory = millrace_memory::Error::lock_limit("locking", 1 << 20);
        let error = ToolError::new(ErrorKind::Open, "x").caused_by(memory);
        // Of a command that has no options for less memory.
        assert_eq!(
            error.advice(),
            ["in this shell, as root: `ulimit -l unlimited`"]
        );
        let kind = millrace_pci::ErrorKind::NoIommu;
        let inner = millrace_pci::Error::new(kind, "group").caused_by(io::Error::other("why"));
        let outer = millrace_pci::Error::new(millrace_pci::ErrorKind::Refused, "open");
        let error = ToolError::new(ErrorKind::Open, "x").caused_by(outer.caused_by(inner));
        assert!(error.advice()[0].contains("intel_iommu=on"));
        assert_eq!(error.advice().len(), 1);
    }

    #[test]
    fn only_closed_output_is_a_broken_pipe() {
        let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(ToolError::output(broken()).is_broken_pipe());
        assert!(!ToolError::output(io::ErrorKind::StorageFull.into()).is_broken_pipe());
        let served = ToolError::new(ErrorKind::Open, "x").caused_by(broken());
        assert!(!served.is_broken_pipe());
    }

    #[test]
    fn an_interruption_keeps_its_exit_code() {
        let of = |kind| ToolError::new(kind, "x").ending_with(8).exit_code();
        assert_eq!(
            (of(ErrorKind::Volume), of(ErrorKind::Interrupted)),
            (8, 130)
        );
    }
}
