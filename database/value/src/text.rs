//! Values as MongoDB writes them into messages: `{ a: 1, b: "x" }`.

use std::fmt::{self, Write};

use bson::spec::BinarySubtype;
use bson::{Bson, Document};

/// How many bytes of a value are shown at most; an ellipsis stands for the rest. Nesting is bounded by
/// it too, because every level shows at least one byte.
const TEXT_BYTES_MAX: usize = 2048;

/// The text of a document, in the shell's notation.
#[must_use]
pub fn document_text(document: &Document) -> String {
    clipped(|out| write_document(out, document))
}

/// The text of a value, in the shell's notation.
#[must_use]
pub fn value_text(value: &Bson) -> String {
    clipped(|out| write_value(out, value))
}

fn clipped(write: impl FnOnce(&mut Clipped) -> fmt::Result) -> String {
    let mut out = Clipped {
        text: String::new(),
        is_full: false,
    };
    // An error says that the text is full, and what fits is what is shown.
    let _ = write(&mut out);
    if out.is_full {
        out.text.push_str("...");
    }
    out.text
}

/// Text that ends the writing once it is full, so that a message about a large value is no large
/// message, and takes no long time.
struct Clipped {
    text: String,
    is_full: bool,
}

impl Write for Clipped {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut room = TEXT_BYTES_MAX - self.text.len();
        if text.len() <= room {
            self.text.push_str(text);
            return Ok(());
        }
        while !text.is_char_boundary(room) {
            room -= 1;
        }
        self.text.push_str(&text[..room]);
        self.is_full = true;
        Err(fmt::Error)
    }
}

fn write_document(out: &mut Clipped, document: &Document) -> fmt::Result {
    if document.is_empty() {
        return out.write_str("{}");
    }
    for (position, (name, value)) in document.iter().enumerate() {
        write!(out, "{} {name}: ", if position == 0 { "{" } else { "," })?;
        write_value(out, value)?;
    }
    out.write_str(" }")
}

fn write_array(out: &mut Clipped, array: &[Bson]) -> fmt::Result {
    if array.is_empty() {
        return out.write_str("[]");
    }
    for (position, value) in array.iter().enumerate() {
        out.write_str(if position == 0 { "[ " } else { ", " })?;
        write_value(out, value)?;
    }
    out.write_str(" ]")
}

fn write_value(out: &mut Clipped, value: &Bson) -> fmt::Result {
    match value {
        Bson::Double(v) => write_double(out, *v),
        Bson::String(v) | Bson::Symbol(v) => write_string(out, v),
        Bson::Document(v) => write_document(out, v),
        Bson::Array(v) => write_array(out, v),
        Bson::Boolean(v) => write!(out, "{v}"),
        Bson::Null => out.write_str("null"),
        Bson::Undefined => out.write_str("undefined"),
        Bson::Int32(v) => write!(out, "{v}"),
        Bson::Int64(v) => write!(out, "{v}"),
        Bson::Decimal128(v) => write!(out, "{v}"),
        Bson::ObjectId(v) => write!(out, "ObjectId('{v}')"),
        Bson::DateTime(v) => write!(out, "new Date({})", v.timestamp_millis()),
        Bson::Timestamp(v) => write!(out, "Timestamp({}, {})", v.time, v.increment),
        Bson::RegularExpression(v) => {
            write!(out, "/{}/{}", v.pattern.as_str(), v.options.as_str())
        }
        Bson::Binary(v) if v.subtype == BinarySubtype::Uuid && v.bytes.len() == 16 => {
            match v.to_uuid() {
                Ok(uuid) => write!(out, "UUID(\"{uuid}\")"),
                Err(_) => out.write_str("BinData(4, ...)"),
            }
        }
        Bson::Binary(v) => {
            write!(out, "BinData({}, ", u8::from(v.subtype))?;
            v.bytes
                .iter()
                .try_for_each(|byte| write!(out, "{byte:02X}"))?;
            out.write_str(")")
        }
        Bson::MinKey => out.write_str("MinKey"),
        Bson::MaxKey => out.write_str("MaxKey"),
        Bson::JavaScriptCode(v) => out.write_str(v),
        Bson::JavaScriptCodeWithScope(v) => {
            write!(out, "CodeWScope( {}, ", v.code)?;
            write_document(out, &v.scope)?;
            out.write_str(")")
        }
        Bson::DbPointer(_) => out.write_str("DBRef"),
    }
}

fn write_string(out: &mut Clipped, text: &str) -> fmt::Result {
    out.write_str("\"")?;
    for (position, part) in text.split('"').enumerate() {
        out.write_str(if position == 0 { "" } else { "\\\"" })?;
        out.write_str(part)?;
    }
    out.write_str("\"")
}

/// Whole numbers keep a `.0`; very large and very small ones have an exponent with a sign, as C++
/// prints them.
fn write_double(out: &mut Clipped, value: f64) -> fmt::Result {
    let magnitude = value.abs();
    if value.is_nan() {
        out.write_str("nan.0")
    } else if value.is_infinite() {
        out.write_str(if value > 0.0 { "inf.0" } else { "-inf.0" })
    } else if magnitude >= 1e16 || (magnitude > 0.0 && magnitude < 1e-4) {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        match exponent.strip_prefix('-') {
            Some(exponent) => write!(out, "{digits}e-{exponent:0>2}"),
            None => write!(out, "{digits}e+{exponent:0>2}"),
        }
    } else if value.fract() == 0.0 {
        write!(out, "{value:.1}")
    } else {
        write!(out, "{value}")
    }
}

#[cfg(test)]
mod tests {
    use bson::{bson, doc};

    use super::*;

    #[test]
    fn documents_look_as_in_the_shell() {
        let document = doc! {"_id": 1, "a": {"b": [1.0, "x"]}, "e": {}, "n": null, "s": "a\"b"};
        assert_eq!(
            document_text(&document),
            r#"{ _id: 1, a: { b: [ 1.0, "x" ] }, e: {}, n: null, s: "a\"b" }"#
        );
    }

    #[test]
    fn doubles_look_as_in_the_shell() {
        for (value, text) in [
            (1.5, "1.5"),
            (-2.0, "-2.0"),
            (1e20, "1e+20"),
            (-1.5e300, "-1.5e+300"),
            (1.25e-7, "1.25e-07"),
            (f64::INFINITY, "inf.0"),
        ] {
            assert_eq!(value_text(&Bson::Double(value)), text);
        }
    }

    #[test]
    fn long_values_are_cut_between_characters() {
        let text = value_text(&Bson::String("é".repeat(TEXT_BYTES_MAX)));
        assert!(text.len() <= TEXT_BYTES_MAX + 3);
        assert!(text.ends_with("é..."));
        let mut deep = bson!(1);
        for _ in 0..TEXT_BYTES_MAX {
            deep = bson!([deep]);
        }
        assert!(value_text(&deep).ends_with("..."));
    }
}
