//! Parts of messages that show values.

use bson::{Bson, Document};
use millrace_value::value_text;

/// `name: value`.
pub(super) fn element(name: &str, value: &Bson) -> String {
    format!("{name}: {}", value_text(value))
}

/// The `_id` of a document as messages name a document by it: `_id: 1`.
pub(super) fn identity(document: &Document) -> String {
    document
        .get("_id")
        .map_or_else(|| "no id".to_owned(), |id| element("_id", id))
}
