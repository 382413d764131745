//! What goes wrong with a command, and what to do about it.

use std::error::Error as StdError;
use std::fmt;
use std::io;

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The arguments or the rules make no sense.
    Usage,
    /// The monitor is not there, or another one is, or it refuses.
    Monitor,
    /// The library is not there.
    Library,
    /// The program could not be run.
    Program,
    /// The report could not be written, or the system lacks something.
    System,
}

/// A failure, with what was attempted, why it failed, and what may help.
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

    /// The same with something else to do about it.
    pub(super) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice.push(advice.into());
        self
    }

    /// The monitor, or what it needs, failed.
    pub(super) fn of_monitor(source: &millrace_proxy::Error) -> Self {
        use millrace_proxy::ErrorKind as Of;
        let advice = match source.kind() {
            Of::NotRunning => {
                Some("`millrace sockets monitor` starts one; `millrace sockets run` does by itself")
            }
            Of::InUse => Some("`millrace sockets status` says what it does"),
            Of::Unsafe => Some("name another place by --socket, or mend the folder"),
            Of::Rules => Some("`millrace sockets monitor --help` shows rules"),
            _ => None,
        };
        let mut error = Self::new(ErrorKind::Monitor, source.to_string());
        error.advice.extend(advice.map(str::to_owned));
        let mut cause = source.source();
        while let Some(inner) = cause {
            error.context.push_str(&format!(": {inner}"));
            cause = inner.source();
        }
        error
    }

    pub(super) fn output(source: io::Error) -> Self {
        Self::new(ErrorKind::System, "the output could not be written").caused_by(source)
    }

    /// What went wrong.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What can be done about it, the likeliest first.
    #[must_use]
    pub fn advice(&self) -> &[String] {
        &self.advice
    }

    /// Whether nobody reads the output any more.
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
