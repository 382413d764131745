//! What can go wrong.

use std::io;

/// The result of what this program does.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Why the program failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The command line is wrong.
    #[error("{0}")]
    Usage(String),
    /// The connection failed.
    #[error("{what}: {source}")]
    Connection {
        /// What was to be done.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The server answered what no server should.
    #[error("a reply that is none: {0}")]
    Reply(String),
    /// The server refused a command.
    #[error("the server refused `{command}`: {reply}")]
    Refused {
        /// The command's name.
        command: String,
        /// What the server said.
        reply: String,
    },
    /// The documents are not what was stored.
    #[error("{0}")]
    Incomplete(String),
}

impl From<bson::error::Error> for Error {
    fn from(error: bson::error::Error) -> Self {
        Self::Reply(error.to_string())
    }
}

/// Turns an I/O error into one that says what was to be done.
pub(crate) fn connection(what: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Connection { what, source }
}
