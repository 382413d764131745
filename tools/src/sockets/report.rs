//! What the monitor says, for people.

use std::io::Write;
use std::path::Path;

use millrace_stream::control::Message;
use serde_json::Value;

use super::place::Place;
use super::{ErrorKind, ToolError};
use crate::terminal::quantity::grouped;

/// Asks the monitor.
pub(super) fn ask(socket: Option<&Path>, what: Message) -> Result<Value, ToolError> {
    let place = Place::find(socket)?;
    let text = place
        .connect()?
        .report(what)
        .map_err(|error| ToolError::of_monitor(&error))?;
    serde_json::from_str(&text).map_err(|error| {
        let context = format!("the monitor at {} says no JSON", place.path.display());
        ToolError::new(ErrorKind::Monitor, context).caused_by(error)
    })
}

/// Writes text.
pub(super) fn say(text: &str, out: &mut dyn Write) -> Result<(), ToolError> {
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(ToolError::output)
}

/// The entries of a list; none if it is none.
pub(super) fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

/// A number in groups of three digits; 0 if it is none.
pub(super) fn number(value: &Value) -> String {
    grouped(value.as_u64().unwrap_or(0).into())
}

/// A name with escapes for what a terminal would act on; a dash if it is none.
pub(super) fn name(value: &Value) -> String {
    let name = value.as_str().unwrap_or("-");
    name.escape_debug().to_string()
}
