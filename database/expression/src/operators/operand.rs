//! Reading operands: the types an operator accepts, and how values look in messages and as text.

use bson::Bson;
use millrace_value::{Error, Number, Result, value_text};

use super::{present, type_name};
use crate::calendar;

/// The number, if the operand is one.
pub(super) fn number(value: Option<&Bson>) -> Option<Number> {
    value.and_then(Number::from_bson)
}

/// The value as a 32-bit integer, if it is a number that is one, whatever its type.
pub(super) fn int32(value: &Bson) -> Option<i32> {
    int64(value).and_then(|value| i32::try_from(value).ok())
}

/// The value as a 64-bit integer, if it is a number that is one, whatever its type.
pub(super) fn int64(value: &Bson) -> Option<i64> {
    Number::from_bson(value).and_then(Number::as_i64_exact)
}

/// The text, if the operand is some.
pub(super) fn text(value: Option<&Bson>) -> Option<&str> {
    match value {
        Some(Bson::String(text) | Bson::Symbol(text)) => Some(text),
        _ => None,
    }
}

/// Text from a value, for operators that take more than strings (`$toLower`, `$substrBytes`, ...): null
/// and missing are empty.
///
/// # Errors
/// 16007 for types that have no text.
pub(super) fn coerced_text(value: Option<&Bson>) -> Result<String> {
    let Some(value) = present(value) else {
        return Ok(String::new());
    };
    Ok(match value {
        Bson::String(text) | Bson::Symbol(text) | Bson::JavaScriptCode(text) => text.clone(),
        Bson::Int32(number) => number.to_string(),
        Bson::Int64(number) => number.to_string(),
        Bson::Double(number) => double_text(*number),
        Bson::Decimal128(_) => number(Some(value)).map_or_else(String::new, |n| n.to_string()),
        Bson::DateTime(date) => calendar::iso_text(date.timestamp_millis()),
        Bson::Timestamp(timestamp) => {
            format!("Timestamp({}, {})", timestamp.time, timestamp.increment)
        }
        other => {
            return Err(Error::location(
                16007,
                format!(
                    "can't convert from BSON type {} to String",
                    type_name(Some(other))
                ),
            ));
        }
    })
}

/// A double as `$toString` writes it: C's `%.16g`.
pub(super) fn double_text(value: f64) -> String {
    const DIGITS: i32 = 16;
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{value:.15e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..DIGITS).contains(&exponent) {
        let decimals = usize::try_from(DIGITS - 1 - exponent).unwrap_or(0);
        return without_trailing_zeros(&format!("{value:.decimals$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!(
        "{}e{sign}{:02}",
        without_trailing_zeros(mantissa),
        exponent.abs()
    )
}

fn without_trailing_zeros(text: &str) -> &str {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        text
    }
}

/// A value as messages show it. Whole doubles look like integers here.
pub(super) fn shown(value: Option<&Bson>) -> String {
    match value {
        None => "MISSING".to_owned(),
        Some(Bson::Double(number)) => double_text(*number),
        Some(Bson::DateTime(date)) => calendar::iso_text(date.timestamp_millis()),
        Some(value) => value_text(value),
    }
}
