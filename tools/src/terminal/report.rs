//! Output of commands: text for terminals, JSON for programs.

use std::io::Write;

use serde_json::Value;

use crate::ToolError;

/// The result of a command in both forms of output: text for a terminal, JSON for a program.
pub trait Report {
    /// Text for a terminal; ends with a newline.
    fn text(&self) -> String;

    /// For machines. Units are in the names; what is not known is null.
    fn json(&self) -> Value;
}

/// Writes a report.
pub(crate) fn show(
    report: &dyn Report,
    as_json: bool,
    out: &mut dyn Write,
) -> Result<(), ToolError> {
    if as_json {
        show_json(&report.json(), out)
    } else {
        show_text(&report.text(), out)
    }
}

pub(crate) fn show_text(text: &str, out: &mut dyn Write) -> Result<(), ToolError> {
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(ToolError::output)
}

pub(crate) fn show_json(value: &Value, out: &mut dyn Write) -> Result<(), ToolError> {
    show_text(&format!("{value:#}\n"), out)
}

/// A number as JSON has it; as a string if it does not fit into 64 bits.
pub(crate) fn number(number: u128) -> Value {
    match u64::try_from(number) {
        Ok(number) => Value::from(number),
        Err(_) => Value::from(number.to_string()),
    }
}
