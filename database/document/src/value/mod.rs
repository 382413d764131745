//! BSON values: order, numbers, paths.

mod text;
mod writer;

pub use text::{document_text, value_text};
pub use writer::DocumentWriter;
