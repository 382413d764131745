//! What the arguments of several stages have in common.

use bson::Bson;
use millrace_value::{Error, ErrorCode, Number, Result, display, type_alias};

/// The argument of `$limit` and `$skip`; a text says what is wrong with it.
pub(super) fn non_negative_integer(name: &str, argument: &Bson) -> Result<i64, String> {
    let shown = || display::element(name, argument);
    let number =
        Number::from_bson(argument).ok_or_else(|| format!("Expected a number in: {}", shown()))?;
    if number.is_nan() {
        return Err(format!(
            "Expected an integer, but found NaN in: {}",
            shown()
        ));
    }
    match number.as_i64_exact() {
        Some(value) if value < 0 => Err(format!("Expected a non-negative number in: {}", shown())),
        Some(value) => Ok(value),
        None if number.as_f64().abs() >= 9.2e18 => {
            Err(format!("Cannot represent as a 64-bit integer: {}", shown()))
        }
        None => Err(format!("Expected an integer: {}", shown())),
    }
}

/// The error of MongoDB's argument parser for a field that a stage does not have.
pub(super) fn unknown_field(stage: &str, field: &str) -> Error {
    Error::new(
        ErrorCode::IDLUnknownField,
        format!("BSON field '{stage}.{field}' is an unknown field."),
    )
}

/// The error of MongoDB's argument parser for a field that is not there.
pub(super) fn missing_field(stage: &str, field: &str) -> Error {
    Error::new(
        ErrorCode::IDLFailedToParse,
        format!("BSON field '{stage}.{field}' is missing but a required field"),
    )
}

/// The error of MongoDB's argument parser for a field of the wrong type.
pub(super) fn wrong_type(stage: &str, field: &str, found: &Bson, expected: &str) -> Error {
    Error::new(
        ErrorCode::TypeMismatch,
        format!(
            "BSON field '{stage}.{field}' is the wrong type '{}', expected type '{expected}'",
            type_alias(found)
        ),
    )
}

/// The error of MongoDB's argument parser for a text that is not one of those allowed.
pub(super) fn not_a_choice(stage: &str, field: &str, found: &str) -> Error {
    Error::new(
        ErrorCode::BadValue,
        format!("Enumeration value '{found}' for field '{stage}.{field}' is not a valid value."),
    )
}

/// A namespace in a message: `database.collection`.
pub(super) fn namespace(database: &str, collection: &str) -> String {
    format!("{database}.{collection}")
}
