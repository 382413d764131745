//! What was not as it must be.

use std::error::Error as StdError;
use std::fmt;
use std::result;

/// The first thing that went wrong.
#[derive(Debug)]
pub struct Failure {
    what: String,
}

/// Result whose error is this crate's [`Failure`].
pub type Result<T> = result::Result<T, Failure>;

impl Failure {
    /// A failure with `what` as its message: the deviation, with the values found and expected.
    #[must_use]
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into() }
    }

    /// An error while something was done, with its causes.
    #[must_use]
    pub fn from_error(doing: &str, error: &dyn StdError) -> Self {
        let mut what = format!("{doing}: {error}");
        let mut source = error.source();
        while let Some(cause) = source {
            what.push_str(": ");
            what.push_str(&cause.to_string());
            source = cause.source();
        }
        Self { what }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl StdError for Failure {}

/// Says what was being done when an error came.
pub(crate) trait Doing<T> {
    /// The value, or the failure.
    fn doing(self, what: &str) -> Result<T>;
}

impl<T, E: StdError> Doing<T> for result::Result<T, E> {
    fn doing(self, what: &str) -> Result<T> {
        self.map_err(|error| Failure::from_error(what, &error))
    }
}

/// Fails with `what` unless `holds`.
pub(crate) fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<()> {
    if holds {
        Ok(())
    } else {
        Err(Failure::new(what()))
    }
}
