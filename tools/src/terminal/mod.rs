//! What commands print: reports as text and JSON, tables, numbers with units, plots, and a progress bar.

mod plot;
mod progress_bar;
pub(crate) mod quantity;
mod report;
mod table;
mod text;

pub(crate) use plot::{plot, ranges};
pub(crate) use progress_bar::Bar;
pub use report::Report;
pub(crate) use report::{number, show, show_json, show_text};
pub(crate) use table::{Section, Side, Table};
pub(crate) use text::{count, printable, uuid_text};
