//! The errors of a command, with advice.

use std::error::Error as StdError;
use std::fmt;
use std::io;

/// The cause of a failure, for the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The arguments or the rules are invalid.
    Usage,
    /// The broker is not running, is in use, or refused the request.
    Broker,
    /// The library to preload is missing.
    Library,
    /// The program could not be run.
    Program,
    /// The output could not be written, or a system call failed.
    System,
}

/// A failure: the attempted operation, its cause, and advice.
#[derive(Debug)]
pub struct ToolError {
    kind: ErrorKind,
    context: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
    advice: Vec<String>,
}

impl ToolError {
    pub(super) fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self {
            kind,
            context: context.into(),
            source: None,
            advice: Vec::new(),
        }
    }

    pub(super) fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The same error with one more advice.
    pub(super) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice.push(advice.into());
        self
    }

    /// The error of a failed broker or of its client.
    pub(super) fn of_broker(source: &millrace_broker::Error) -> Self {
        use millrace_broker::ErrorKind as Of;
        let advice = match source.kind() {
            Of::NotRunning => Some(
                "start one by `millrace sockets broker`; `millrace sockets run` starts one by itself",
            ),
            Of::InUse => Some("`millrace sockets status` shows its state"),
            Of::Unsafe => Some("name another path by --socket, or fix the folder's owner and mode"),
            Of::Rules => Some("`millrace sockets broker --help` shows rules"),
            _ => None,
        };
        let mut error = Self::new(ErrorKind::Broker, source.to_string());
        error.advice.extend(advice.map(str::to_owned));
        let mut cause = source.source();
        while let Some(inner) = cause {
            error.context.push_str(&format!(": {inner}"));
            cause = inner.source();
        }
        error
    }

    pub(super) fn output(source: io::Error) -> Self {
        Self::new(ErrorKind::System, "writing the output").caused_by(source)
    }

    /// The kind of the failure, for a program's decision.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The advice, the likeliest remedy first.
    #[must_use]
    pub fn advice(&self) -> &[String] {
        &self.advice
    }

    /// Whether the reader of the output has closed it.
    pub(super) fn is_broken_pipe(&self) -> bool {
        let cause = self.source.as_deref();
        let cause = cause.and_then(|source| source.downcast_ref::<io::Error>());
        cause.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.context)
    }
}

impl StdError for ToolError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source
            .as_deref()
            .map(|source| source as &(dyn StdError + 'static))
    }
}
