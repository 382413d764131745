//! The broker's report as a table.

use std::io::Write;
use std::path::Path;

use millrace_stream::control::Message;
use serde_json::Value;

use super::socket_path::SocketPath;
use crate::terminal::quantity::grouped;
use crate::{ErrorKind, ToolError};

/// Requests a report from the broker.
pub(super) fn ask(socket: Option<&Path>, what: Message) -> Result<Value, ToolError> {
    let socket_path = SocketPath::find(socket)?;
    let text = socket_path
        .connect()?
        .report(what)
        .map_err(|error| ToolError::of_broker(&error))?;
    serde_json::from_str(&text).map_err(|error| {
        let context = format!("the broker at {} sent no JSON", socket_path.path.display());
        ToolError::new(ErrorKind::Broker, context).caused_by(error)
    })
}

/// Writes text to the output.
pub(super) fn print(text: &str, out: &mut dyn Write) -> Result<(), ToolError> {
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(ToolError::output)
}

/// The entries of a list; empty if the value is not a list.
pub(super) fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

/// A number in groups of three digits; 0 if the value is not a number.
pub(super) fn number(value: &Value) -> String {
    grouped(value.as_u64().unwrap_or(0).into())
}

/// A name with escaped control characters; a dash if the value is not a string.
pub(super) fn name(value: &Value) -> String {
    let name = value.as_str().unwrap_or("-");
    name.escape_debug().to_string()
}
