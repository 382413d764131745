//! What can go wrong.

use std::fmt;

/// The result of what this program does.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Why the program failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The command line is wrong.
    #[error("{0}")]
    Usage(String),
    /// The machine has not what the program needs, or refuses it.
    #[error("{what}: {source}{}", causes(source.as_ref()))]
    Refused {
        /// What was to be done.
        what: String,
        /// Why it failed.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Other bytes came than were sent.
    #[error("{0}")]
    Wrong(String),
    /// The peer says nothing any more.
    #[error("no progress for {} s: {what}", crate::patience::LIMIT.as_secs())]
    Silence {
        /// What was waited for.
        what: &'static str,
    },
}

/// Turns an error into one that says what was to be done.
pub(crate) fn refused<E>(what: impl Into<String>) -> impl FnOnce(E) -> Error
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    move |source| Error::Refused {
        what: what.into(),
        source: source.into(),
    }
}

/// What stands behind an error that does not say it itself.
fn causes(error: &(dyn std::error::Error + Send + Sync + 'static)) -> impl fmt::Display {
    let mut text = String::new();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(&format!(": {cause}"));
        next = cause.source();
    }
    text
}
