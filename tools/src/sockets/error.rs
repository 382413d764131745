//! Errors of the broker, with the advice that fits each.

use std::error::Error as StdError;

use crate::{ErrorKind, ToolError};

impl ToolError {
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
        error = match advice {
            Some(advice) => error.advise(advice),
            None => error,
        };
        let mut cause = source.source();
        while let Some(inner) = cause {
            error.context.push_str(&format!(": {inner}"));
            cause = inner.source();
        }
        error
    }
}
