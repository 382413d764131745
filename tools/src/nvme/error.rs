//! Errors of commands that a device did not carry out.

use crate::{ErrorKind, ToolError};

/// The error of a command that the device did not carry out.
pub(super) fn device_error(
    name: &str,
    attempted: &str,
) -> impl FnOnce(millrace_nvme::Error) -> ToolError {
    let context = format!("{name}: {attempted} failed");
    |source| ToolError::new(ErrorKind::Device, context).caused_by(source)
}
