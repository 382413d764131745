//! The four numeric types.

mod arithmetic;
mod rounding;

use std::cmp::Ordering;
use std::fmt;

use bson::Bson;
use bson::raw::RawBsonRef;

use super::Decimal;

/// 2^63, the first double above every `i64`.
const TWO_POW_63: f64 = 9_223_372_036_854_775_808.0;

/// A BSON number. Equality and order are by value ([`Number::compare`]), not by type.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    /// A 32-bit integer.
    Int32(i32),
    /// A 64-bit integer.
    Int64(i64),
    /// A double.
    Double(f64),
    /// A 128-bit decimal.
    Decimal(Decimal),
}

impl Number {
    /// The number that `value` is; `None` if it is of another type.
    #[must_use]
    pub fn from_bson(value: &Bson) -> Option<Self> {
        match value {
            Bson::Int32(value) => Some(Self::Int32(*value)),
            Bson::Int64(value) => Some(Self::Int64(*value)),
            Bson::Double(value) => Some(Self::Double(*value)),
            Bson::Decimal128(value) => Some(Self::Decimal(Decimal::from_bson(*value))),
            _ => None,
        }
    }

    /// The number that `value` is; `None` if it is of another type.
    #[must_use]
    pub fn from_raw(value: RawBsonRef<'_>) -> Option<Self> {
        match value {
            RawBsonRef::Int32(value) => Some(Self::Int32(value)),
            RawBsonRef::Int64(value) => Some(Self::Int64(value)),
            RawBsonRef::Double(value) => Some(Self::Double(value)),
            RawBsonRef::Decimal128(value) => Some(Self::Decimal(Decimal::from_bson(value))),
            _ => None,
        }
    }

    /// An integer in the smallest integer type that holds it.
    #[must_use]
    pub fn from_i64(value: i64) -> Self {
        i32::try_from(value).map_or(Self::Int64(value), Self::Int32)
    }

    /// The number as a BSON value.
    #[must_use]
    pub fn to_bson(self) -> Bson {
        match self {
            Self::Int32(value) => Bson::Int32(value),
            Self::Int64(value) => Bson::Int64(value),
            Self::Double(value) => Bson::Double(value),
            Self::Decimal(value) => Bson::Decimal128(value.to_bson()),
        }
    }

    /// The value as a double, rounded to the nearest one.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Int32(value) => f64::from(value),
            Self::Int64(value) => value as f64,
            Self::Double(value) => value,
            Self::Decimal(value) => value.to_f64(),
        }
    }

    /// The value as an `i64` if it is integral and in range, whatever its type.
    #[must_use]
    pub fn as_i64_exact(self) -> Option<i64> {
        match self {
            Self::Int32(value) => Some(i64::from(value)),
            Self::Int64(value) => Some(value),
            Self::Double(value) => f64_to_i64_exact(value),
            Self::Decimal(value) => value.to_i64_exact(),
        }
    }

    /// The value as a decimal. Doubles are rounded to 15 significant digits, as MongoDB does where
    /// doubles and decimals meet.
    #[must_use]
    pub fn as_decimal(self) -> Decimal {
        match self {
            Self::Int32(value) => Decimal::from_i64(i64::from(value)),
            Self::Int64(value) => Decimal::from_i64(value),
            Self::Double(value) => Decimal::from_f64_rounded(value),
            Self::Decimal(value) => value,
        }
    }

    /// Whether the value is a double or decimal NaN.
    #[must_use]
    pub fn is_nan(self) -> bool {
        match self {
            Self::Double(value) => value.is_nan(),
            Self::Decimal(value) => value.is_nan(),
            Self::Int32(_) | Self::Int64(_) => false,
        }
    }

    /// Whether the number is positive or negative infinity.
    #[must_use]
    pub fn is_infinite(self) -> bool {
        match self {
            Self::Double(value) => value.is_infinite(),
            Self::Decimal(value) => value.is_infinite(),
            Self::Int32(_) | Self::Int64(_) => false,
        }
    }

    /// Whether the number is zero, of either sign.
    #[must_use]
    pub fn is_zero(self) -> bool {
        match self {
            Self::Int32(value) => value == 0,
            Self::Int64(value) => value == 0,
            Self::Double(value) => value == 0.0,
            Self::Decimal(value) => value.is_zero(),
        }
    }

    /// Whether the number is below zero; false for NaN and for both zeros.
    #[must_use]
    pub fn is_negative(self) -> bool {
        match self {
            Self::Int32(value) => value < 0,
            Self::Int64(value) => value < 0,
            Self::Double(value) => value < 0.0,
            Self::Decimal(value) => value.is_negative() && !value.is_zero(),
        }
    }

    /// Compares by value, exactly, across types: NaN equals NaN and is below everything else, -0
    /// equals 0.
    #[must_use]
    pub fn compare(self, other: Self) -> Ordering {
        match (self.as_int(), other.as_int()) {
            (Some(a), Some(b)) => return a.cmp(&b),
            (Some(a), None) => return other.compare_to_i64(a).reverse(),
            (None, Some(b)) => return self.compare_to_i64(b),
            (None, None) => {}
        }
        match (self, other) {
            (Self::Double(a), Self::Double(b)) => compare_f64(a, b),
            (Self::Double(a), Self::Decimal(b)) => b.compare_f64(a).reverse(),
            (Self::Decimal(a), Self::Double(b)) => a.compare_f64(b),
            (Self::Decimal(a), Self::Decimal(b)) => a.compare(b),
            // Integers were dealt with above.
            _ => Ordering::Equal,
        }
    }

    /// The value of the integer types.
    const fn as_int(self) -> Option<i64> {
        match self {
            Self::Int32(value) => Some(value as i64),
            Self::Int64(value) => Some(value),
            Self::Double(_) | Self::Decimal(_) => None,
        }
    }

    fn compare_to_i64(self, other: i64) -> Ordering {
        match self {
            Self::Int32(value) => i64::from(value).cmp(&other),
            Self::Int64(value) => value.cmp(&other),
            Self::Double(value) => compare_f64_to_i64(value, other),
            Self::Decimal(value) => value.compare(Decimal::from_i64(other)),
        }
    }
}

/// As MongoDB prints numbers in messages.
impl fmt::Display for Number {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int32(value) => write!(formatter, "{value}"),
            Self::Int64(value) => write!(formatter, "{value}"),
            Self::Double(value) if value.is_nan() => formatter.write_str("nan"),
            Self::Double(value) => write!(formatter, "{value}"),
            Self::Decimal(value) => write!(formatter, "{value}"),
        }
    }
}

/// Compares doubles with NaN below all others and the zeros equal.
fn compare_f64(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b)
        .unwrap_or_else(|| b.is_nan().cmp(&a.is_nan()))
}

/// Compares a double with an integer without rounding either.
fn compare_f64_to_i64(a: f64, b: i64) -> Ordering {
    if a.is_nan() || a < -TWO_POW_63 {
        return Ordering::Less;
    }
    if a >= TWO_POW_63 {
        return Ordering::Greater;
    }
    let whole = a.trunc();
    f64_whole_to_i64(whole)
        .cmp(&b)
        .then_with(|| compare_f64(a, whole))
}

/// The integer that `value` is, if it is one and fits.
fn f64_to_i64_exact(value: f64) -> Option<i64> {
    let fits = value.trunc() == value && (-TWO_POW_63..TWO_POW_63).contains(&value);
    fits.then(|| f64_whole_to_i64(value))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "callers pass whole numbers within range"
)]
fn f64_whole_to_i64(value: f64) -> i64 {
    value as i64
}

#[cfg(test)]
mod tests;
