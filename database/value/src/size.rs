//! How much memory and how many bytes of BSON a value takes.

use bson::{Bson, Document};

/// What one entry of a document costs besides its name and its value's heap: the entry itself and its
/// place in the hash index.
const ENTRY_BYTES: usize = size_of::<String>() + size_of::<Bson>() + 2 * size_of::<usize>();

/// About how many bytes of memory `document` takes.
pub fn document_bytes(document: &Document) -> usize {
    size_of::<Document>() + document_heap_bytes(document)
}

/// About how many bytes of memory `value` takes.
pub fn value_bytes(value: &Bson) -> usize {
    size_of::<Bson>() + value_heap_bytes(value)
}

fn document_heap_bytes(document: &Document) -> usize {
    document
        .iter()
        .map(|(name, value)| ENTRY_BYTES + name.len() + value_heap_bytes(value))
        .sum()
}

fn value_heap_bytes(value: &Bson) -> usize {
    match value {
        Bson::String(text) | Bson::Symbol(text) | Bson::JavaScriptCode(text) => text.len(),
        Bson::Array(values) => values.iter().map(value_bytes).sum(),
        Bson::Document(document) => document_heap_bytes(document),
        Bson::Binary(binary) => binary.bytes.len(),
        Bson::RegularExpression(regex) => {
            regex.pattern.as_str().len() + regex.options.as_str().len()
        }
        Bson::JavaScriptCodeWithScope(code) => code.code.len() + document_heap_bytes(&code.scope),
        _ => 0,
    }
}

/// The length of `document` encoded as BSON.
pub fn encoded_document_len(document: &Document) -> usize {
    let elements: usize = document
        .iter()
        .map(|(name, value)| 2 + name.len() + encoded_value_len(value))
        .sum();
    5 + elements
}

/// The length of `value` encoded as BSON, without type byte and name.
pub(crate) fn encoded_value_len(value: &Bson) -> usize {
    match value {
        Bson::Null | Bson::Undefined | Bson::MinKey | Bson::MaxKey => 0,
        Bson::Boolean(_) => 1,
        Bson::Int32(_) => 4,
        Bson::Double(_) | Bson::Int64(_) | Bson::DateTime(_) | Bson::Timestamp(_) => 8,
        Bson::ObjectId(_) => 12,
        Bson::Decimal128(_) => 16,
        Bson::String(text) | Bson::Symbol(text) | Bson::JavaScriptCode(text) => 5 + text.len(),
        Bson::Binary(binary) => 5 + binary.bytes.len(),
        Bson::RegularExpression(regex) => {
            2 + regex.pattern.as_str().len() + regex.options.as_str().len()
        }
        Bson::Document(document) => encoded_document_len(document),
        Bson::JavaScriptCodeWithScope(code) => {
            9 + code.code.len() + encoded_document_len(&code.scope)
        }
        Bson::Array(values) => {
            let elements: usize = values
                .iter()
                .enumerate()
                .map(|(index, value)| 2 + decimal_digits(index) + encoded_value_len(value))
                .sum();
            5 + elements
        }
        // A namespace is not readable through the type's interface; an ObjectId and a short name is
        // what it usually is.
        Bson::DbPointer(_) => 32,
    }
}

/// How many digits the name of the array element at `index` has.
fn decimal_digits(index: usize) -> usize {
    index
        .checked_ilog10()
        .map_or(1, |log| usize::try_from(log).map_or(1, |log| log + 1))
}

#[cfg(test)]
mod tests {
    use bson::{bson, doc};

    use super::*;

    #[test]
    fn encoded_length_is_what_the_encoder_writes() {
        let many: Vec<i32> = (0..1234).collect();
        let document = doc! {
            "a": 1, "b": 2_i64, "c": 1.5, "d": "text", "e": [1, "x", null], "f": {"g": true},
            "h": bson::oid::ObjectId::from_bytes([7; 12]), "i": bson!(many),
            "j": Bson::MinKey, "k": bson::DateTime::from_millis(5),
        };
        let encoded = document.to_vec().expect("the document encodes");
        assert_eq!(encoded_document_len(&document), encoded.len());
    }

    #[test]
    fn memory_grows_with_contents() {
        let small = document_bytes(&doc! {"a": "x"});
        let large = document_bytes(&doc! {"a": "x".repeat(1000)});
        assert_eq!(large - small, 999);
    }
}
