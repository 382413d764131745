//! The end of all acknowledgements.

use std::sync::OnceLock;

use millrace_engine::{Error, ErrorKind, Result};

/// Remembers the first failure of a write or a sync. After it the log on the device and the memtables
/// may differ in unknown ways, so nothing may be acknowledged any more.
#[derive(Debug, Default)]
pub(crate) struct Poison {
    cause: OnceLock<String>,
}

impl Poison {
    /// Refuses if there was a failure.
    pub(crate) fn check(&self) -> Result<()> {
        match self.cause.get() {
            None => Ok(()),
            Some(cause) => Err(Error::new(
                ErrorKind::Poisoned,
                format!("nothing is acknowledged any more, for an earlier write failed: {cause}"),
            )),
        }
    }

    /// Records the failure that `error` is and passes it on.
    pub(crate) fn record(&self, error: Error) -> Error {
        let source = std::error::Error::source(&error)
            .map(ToString::to_string)
            .unwrap_or_default();
        let cause = format!("{error}: {source}");
        if self.cause.set(cause).is_ok() {
            tracing::error!(%error, source, "the engine acknowledges nothing any more");
        }
        error
    }

    pub(crate) fn is_recorded(&self) -> bool {
        self.cause.get().is_some()
    }
}
