//! Integers among the operands of operators.

use bson::RawBsonRef;
use millrace_value::{Number, value_text};

/// Names an operand in a message: `$size: "x"`.
pub(super) fn describe(name: &str, value: RawBsonRef<'_>) -> String {
    match bson::Bson::try_from(value) {
        Ok(value) => format!("{name}: {}", value_text(&value)),
        Err(_) => format!("{name}: ?"),
    }
}

/// The integral value of a number of any type; otherwise the reason why there is none.
pub(super) fn integer(name: &str, value: RawBsonRef<'_>) -> Result<i64, String> {
    let Some(number) = Number::from_raw(value) else {
        return Err(format!("Expected a number in: {}", describe(name, value)));
    };
    if let Some(integer) = number.as_i64_exact() {
        return Ok(integer);
    }
    let double = number.as_f64();
    let reason = if double.is_nan() {
        "Expected an integer, but found NaN in"
    } else if double.is_infinite() || double.fract() == 0.0 {
        "Cannot represent as a 64-bit integer"
    } else {
        "Expected an integer"
    };
    Err(format!("{reason}: {}", describe(name, value)))
}

/// Like [`integer`], but refuses negative values.
pub(super) fn natural(name: &str, value: RawBsonRef<'_>) -> Result<u64, String> {
    let number = integer(name, value)?;
    u64::try_from(number).map_err(|_| {
        format!(
            "Expected a non-negative number in: {}",
            describe(name, value)
        )
    })
}
