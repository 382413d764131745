//! The values of a command's arguments, and the errors of those that are wrong.

use bson::Bson;
use millrace_value::{Error, ErrorCode};

/// The error of a field that a command does not have.
pub(crate) fn unknown_field(command: &str, field: &str) -> Error {
    Error::new(
        ErrorCode::IDLUnknownField,
        format!("BSON field '{command}.{field}' is an unknown field."),
    )
}

/// The error of a value of another type.
pub(crate) fn wrong_type(path: &str, value: &Bson, expected: &str) -> Error {
    Error::new(
        ErrorCode::TypeMismatch,
        format!(
            "BSON field '{path}' is the wrong type '{}', expected type '{expected}'",
            millrace_value::type_alias(value)
        ),
    )
}

/// Whether a value counts as true: booleans, numbers that are not 0, everything else that is there.
pub(crate) fn truthy(value: Option<&Bson>) -> bool {
    match value {
        None | Some(Bson::Null | Bson::Undefined | Bson::Boolean(false) | Bson::Int32(0)) => false,
        Some(Bson::Int64(number)) => *number != 0,
        Some(Bson::Double(number)) => *number != 0.0,
        Some(_) => true,
    }
}

/// A number without a fraction, whatever its type.
pub(crate) fn integer(value: &Bson) -> Option<i64> {
    match value {
        Bson::Int32(number) => Some(i64::from(*number)),
        Bson::Int64(number) => Some(*number),
        Bson::Double(number) => exact_integer(*number),
        _ => None,
    }
}

/// The integer that equals `number`, if there is one below 2^53.
pub(crate) fn exact_integer(number: f64) -> Option<i64> {
    const LIMIT: f64 = 9_007_199_254_740_992.0;
    if number.fract() != 0.0 || number.abs() > LIMIT {
        return None;
    }
    // It has no fraction and few digits: its decimal form is that of the integer.
    format!("{number:.0}").parse().ok()
}
