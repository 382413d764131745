//! What commands say: text for people, JSON for machines.

use std::fmt::Write as _;
use std::io::Write;

use serde_json::Value;

use super::ToolError;

/// Something that a command says.
pub trait Report {
    /// For people; ends with a line's end.
    fn text(&self) -> String;

    /// For machines. Units are in the names; what is not known is null.
    fn json(&self) -> Value;
}

/// Writes a report.
pub(super) fn show(
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

pub(super) fn show_text(text: &str, out: &mut dyn Write) -> Result<(), ToolError> {
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(ToolError::output)
}

pub(super) fn show_json(value: &Value, out: &mut dyn Write) -> Result<(), ToolError> {
    show_text(&format!("{value:#}\n"), out)
}

/// A number as JSON has it; as a string if it does not fit into 64 bits.
pub(super) fn number(number: u128) -> Value {
    match u64::try_from(number) {
        Ok(number) => Value::from(number),
        Err(_) => Value::from(number.to_string()),
    }
}

/// A title and lines below it, each a name and what it is.
#[derive(Debug)]
pub(crate) struct Section {
    title: String,
    rows: Vec<(String, String)>,
}

impl Section {
    pub(crate) fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn row(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.rows.push((name.into(), value.into()));
    }

    pub(crate) fn text(&self) -> String {
        let names = self.rows.iter().map(|(name, _)| name.chars().count());
        let width = names.max().unwrap_or(0);
        let mut text = format!("{}\n", self.title);
        for (name, value) in &self.rows {
            let line = format!("  {name:width$}  {value}");
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// On which side of its column a cell stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

/// Columns with headings.
#[derive(Debug)]
pub(crate) struct Table {
    sides: Vec<Side>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(columns: &[(&str, Side)]) -> Self {
        Self {
            sides: columns.iter().map(|(_, side)| *side).collect(),
            rows: vec![columns.iter().map(|(name, _)| (*name).to_owned()).collect()],
        }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.sides.len());
        self.rows.push(cells);
    }

    pub(crate) fn text(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.sides.len()).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, (side, width)) in row.iter().zip(self.sides.iter().zip(&widths)) {
                // Writing to a string cannot fail.
                let _ = match side {
                    Side::Left => write!(line, "{cell:<width$}  "),
                    Side::Right => write!(line, "{cell:>width$}  "),
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}
