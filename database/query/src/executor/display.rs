//! Values and intervals as `explain` shows them.

use bson::Bson;

use crate::planner::Interval;

/// An interval as a scan passes through it: `[1, 5)`; a backward scan (`reversed`) comes from its end.
pub(crate) fn directed(interval: &Interval, reversed: bool) -> String {
    let (mut first, mut first_inclusive) = (&interval.start, interval.start_inclusive);
    let (mut last, mut last_inclusive) = (&interval.end, interval.end_inclusive);
    if reversed {
        std::mem::swap(&mut first, &mut last);
        std::mem::swap(&mut first_inclusive, &mut last_inclusive);
    }
    let open = if first_inclusive { '[' } else { '(' };
    let close = if last_inclusive { ']' } else { ')' };
    format!("{open}{}, {}{close}", value(first), value(last))
}

fn value(value: &Bson) -> String {
    match value {
        Bson::Double(double) => shown_double(*double),
        Bson::String(text) | Bson::Symbol(text) => format!("\"{text}\""),
        Bson::Document(document) if document.is_empty() => "{}".to_owned(),
        Bson::Document(document) => {
            let fields: Vec<_> = document
                .iter()
                .map(|(name, inner)| format!("{name}: {}", self::value(inner)))
                .collect();
            format!("{{ {} }}", fields.join(", "))
        }
        Bson::Array(elements) if elements.is_empty() => "[]".to_owned(),
        Bson::Array(elements) => {
            let elements: Vec<_> = elements.iter().map(self::value).collect();
            format!("[ {} ]", elements.join(", "))
        }
        Bson::Null => "null".to_owned(),
        Bson::Undefined => "undefined".to_owned(),
        Bson::MinKey => "MinKey".to_owned(),
        Bson::MaxKey => "MaxKey".to_owned(),
        Bson::Boolean(boolean) => boolean.to_string(),
        Bson::Int32(number) => number.to_string(),
        Bson::Int64(number) => number.to_string(),
        Bson::Decimal128(number) => format!("{number}"),
        Bson::ObjectId(id) => format!("ObjectId('{}')", id.to_hex()),
        Bson::DateTime(date) => format!("new Date({})", date.timestamp_millis()),
        Bson::Timestamp(stamp) => format!("Timestamp({}, {})", stamp.time, stamp.increment),
        Bson::RegularExpression(regex) => {
            format!("/{}/{}", regex.pattern.as_str(), regex.options.as_str())
        }
        Bson::Binary(binary) => {
            let hex: String = binary
                .bytes
                .iter()
                .map(|byte| format!("{byte:02X}"))
                .collect();
            format!("BinData({}, {hex})", u8::from(binary.subtype))
        }
        Bson::JavaScriptCode(code) => code.clone(),
        Bson::JavaScriptCodeWithScope(code) => {
            format!("CodeWScope( {}, {})", code.code, code.scope)
        }
        Bson::DbPointer(_) => "DBRef(...)".to_owned(),
    }
}

/// Doubles always have a fraction, so that they can be told from integers.
fn shown_double(double: f64) -> String {
    if double.is_nan() {
        return "nan.0".to_owned();
    }
    if double.is_infinite() {
        return if double > 0.0 { "inf.0" } else { "-inf.0" }.to_owned();
    }
    if double.abs() >= 1e16 {
        format!("{double:e}")
    } else {
        format!("{double:?}")
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn values_look_as_in_mongodb() {
        for (given, expected) in [
            (Bson::Int32(5), "5"),
            (Bson::Double(5.0), "5.0"),
            (Bson::Double(f64::INFINITY), "inf.0"),
            (Bson::String("a".to_owned()), "\"a\""),
            (
                Bson::Document(doc! {"a": {"b": [1, true]}}),
                "{ a: { b: [ 1, true ] } }",
            ),
            (
                Bson::DateTime(bson::DateTime::from_millis(7)),
                "new Date(7)",
            ),
        ] {
            assert_eq!(value(&given), expected);
        }
    }

    #[test]
    fn backward_scans_come_from_the_end() {
        let interval = Interval::new(1.into(), true, 5.into(), false);
        assert_eq!(directed(&interval, false), "[1, 5)");
        assert_eq!(directed(&interval, true), "(5, 1]");
    }
}
