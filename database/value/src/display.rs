//! Values in messages, cut to a length that a message can bear.

use bson::{Bson, Document};

use crate::{document_text, value_text};

/// How many bytes of a value a message shows at most; the rest becomes an ellipsis.
const TEXT_BYTES_MAX: usize = 1024;

/// `name: value`.
pub fn element(name: &str, value: &Bson) -> String {
    clipped(format!("{name}: {}", value_text(value)))
}

/// A value by itself.
pub fn value(value: &Bson) -> String {
    clipped(value_text(value))
}

/// `{ a: 1, b: 2 }`.
pub fn document(document: &Document) -> String {
    clipped(document_text(document))
}

fn clipped(mut text: String) -> String {
    if text.len() > TEXT_BYTES_MAX {
        let mut end = TEXT_BYTES_MAX;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_are_clipped_at_a_character() {
        let shown = value(&Bson::String("é".repeat(2000)));
        assert!(shown.ends_with("é..."));
        assert!(shown.len() <= TEXT_BYTES_MAX + 3);
        assert_eq!(element("a", &Bson::Int32(1)), "a: 1");
    }
}
