//! Values as MongoDB writes them into messages: `{ a: 1, b: "x" }`.

use std::fmt::Write as _;

use bson::spec::BinarySubtype;
use bson::{Bson, Document};

/// How many levels of nesting are written out.
const DEPTH_MAX: usize = 32;

/// The text of a document, in the shell's notation.
#[must_use]
pub fn document_text(document: &Document) -> String {
    let mut out = String::new();
    write_document(&mut out, document, 0);
    out
}

/// The text of a value, in the shell's notation.
#[must_use]
pub fn value_text(value: &Bson) -> String {
    let mut out = String::new();
    write_value(&mut out, value, 0);
    out
}

fn write_document(out: &mut String, document: &Document, depth: usize) {
    if document.is_empty() || depth >= DEPTH_MAX {
        out.push_str(if document.is_empty() { "{}" } else { "{...}" });
        return;
    }
    out.push_str("{ ");
    for (position, (name, value)) in document.iter().enumerate() {
        if position > 0 {
            out.push_str(", ");
        }
        out.push_str(name);
        out.push_str(": ");
        write_value(out, value, depth + 1);
    }
    out.push_str(" }");
}

fn write_array(out: &mut String, array: &[Bson], depth: usize) {
    if array.is_empty() || depth >= DEPTH_MAX {
        out.push_str(if array.is_empty() { "[]" } else { "[...]" });
        return;
    }
    out.push_str("[ ");
    for (position, value) in array.iter().enumerate() {
        if position > 0 {
            out.push_str(", ");
        }
        write_value(out, value, depth + 1);
    }
    out.push_str(" ]");
}

fn write_value(out: &mut String, value: &Bson, depth: usize) {
    // Writing to a String cannot fail.
    let _ = match value {
        Bson::Double(v) if v.is_finite() && v.fract() == 0.0 && v.abs() < 1e15 => {
            write!(out, "{v:.1}")
        }
        Bson::Double(v) => write!(out, "{v}"),
        Bson::String(v) | Bson::Symbol(v) => write!(out, "\"{}\"", v.replace('"', "\\\"")),
        Bson::Document(v) => {
            write_document(out, v, depth);
            Ok(())
        }
        Bson::Array(v) => {
            write_array(out, v, depth);
            Ok(())
        }
        Bson::Boolean(v) => write!(out, "{v}"),
        Bson::Null => write!(out, "null"),
        Bson::Undefined => write!(out, "undefined"),
        Bson::Int32(v) => write!(out, "{v}"),
        Bson::Int64(v) => write!(out, "{v}"),
        Bson::Decimal128(v) => write!(out, "{v}"),
        Bson::ObjectId(v) => write!(out, "ObjectId('{v}')"),
        Bson::DateTime(v) => write!(out, "new Date({})", v.timestamp_millis()),
        Bson::Timestamp(v) => write!(out, "Timestamp({}, {})", v.time, v.increment),
        Bson::RegularExpression(v) => write!(out, "/{}/{}", v.pattern, v.options),
        Bson::Binary(v) if v.subtype == BinarySubtype::Uuid && v.bytes.len() == 16 => {
            match v.to_uuid() {
                Ok(uuid) => write!(out, "UUID(\"{uuid}\")"),
                Err(_) => write!(out, "BinData(4, ...)"),
            }
        }
        Bson::Binary(v) => {
            let _ = write!(out, "BinData({}, ", u8::from(v.subtype));
            for byte in v.bytes.iter().take(64) {
                let _ = write!(out, "{byte:02X}");
            }
            write!(out, ")")
        }
        Bson::MinKey => write!(out, "MinKey"),
        Bson::MaxKey => write!(out, "MaxKey"),
        Bson::JavaScriptCode(v) => write!(out, "{v}"),
        Bson::JavaScriptCodeWithScope(v) => write!(out, "CodeWScope( {})", v.code),
        Bson::DbPointer(_) => write!(out, "DBRef"),
    };
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn documents_look_as_in_the_shell() {
        let document = doc! {"_id": 1, "a": {"b": [1.0, "x"]}, "e": {}, "n": null};
        assert_eq!(
            document_text(&document),
            r#"{ _id: 1, a: { b: [ 1.0, "x" ] }, e: {}, n: null }"#
        );
    }
}
