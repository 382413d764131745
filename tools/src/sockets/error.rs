//! Errors of the broker, with the advice that fits each.

use std::error::Error as StdError;

use crate::{ErrorKind, ToolError};

impl ToolError {
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
