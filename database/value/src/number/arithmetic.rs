//! Arithmetic as the aggregation language and the update operators do it.
//!
//! The result's type is the wider of the operands' types (int, long, double, decimal). What differs is
//! what happens when an integer result does not fit: the aggregation language widens it, the update
//! operators refuse it.

use super::Number;
use crate::Decimal;

/// Two operands brought to one type.
enum Pair {
    /// Both are integers; `wide` if one of them is a 64-bit one.
    Int {
        a: i64,
        b: i64,
        wide: bool,
    },
    Double(f64, f64),
    Decimal(Decimal, Decimal),
}

impl Pair {
    fn new(a: Number, b: Number) -> Self {
        if let (Some(int_a), Some(int_b)) = (a.as_int(), b.as_int()) {
            let wide = matches!(a, Number::Int64(_)) || matches!(b, Number::Int64(_));
            return Self::Int {
                a: int_a,
                b: int_b,
                wide,
            };
        }
        if matches!(a, Number::Decimal(_)) || matches!(b, Number::Decimal(_)) {
            Self::Decimal(a.as_decimal(), b.as_decimal())
        } else {
            Self::Double(a.as_f64(), b.as_f64())
        }
    }
}

/// An integer result: 64-bit if an operand was or if it does not fit 32 bits.
fn int_result(value: i64, wide: bool) -> Number {
    if wide {
        Number::Int64(value)
    } else {
        Number::from_i64(value)
    }
}

impl Number {
    /// The sum. A 32-bit overflow widens to 64 bits, a 64-bit overflow to a double.
    #[must_use]
    #[expect(
        clippy::should_implement_trait,
        reason = "its overflow rules are $add's, not those of +"
    )]
    pub fn add(self, other: Self) -> Self {
        self.add_exact(other)
            .unwrap_or_else(|| Self::Double(self.as_f64() + other.as_f64()))
    }

    /// The difference; an integer result that does not fit is widened like that of [`Number::add`].
    #[must_use]
    pub fn subtract(self, other: Self) -> Self {
        match Pair::new(self, other) {
            Pair::Int { a, b, wide } => a.checked_sub(b).map_or_else(
                || Self::Double(self.as_f64() - other.as_f64()),
                |v| int_result(v, wide),
            ),
            Pair::Double(a, b) => Self::Double(a - b),
            Pair::Decimal(a, b) => Self::Decimal(a.subtract(b)),
        }
    }

    /// The product; an integer result that does not fit is widened like that of [`Number::add`].
    #[must_use]
    pub fn multiply(self, other: Self) -> Self {
        self.multiply_exact(other)
            .unwrap_or_else(|| Self::Double(self.as_f64() * other.as_f64()))
    }

    /// The sum for `$inc`: a 32-bit overflow widens to 64 bits, a 64-bit overflow is `None`.
    #[must_use]
    pub fn add_exact(self, other: Self) -> Option<Self> {
        Some(match Pair::new(self, other) {
            Pair::Int { a, b, wide } => int_result(a.checked_add(b)?, wide),
            Pair::Double(a, b) => Self::Double(a + b),
            Pair::Decimal(a, b) => Self::Decimal(a.add(b)),
        })
    }

    /// The product for `$mul`: a 32-bit overflow widens to 64 bits, a 64-bit overflow is `None`.
    #[must_use]
    pub fn multiply_exact(self, other: Self) -> Option<Self> {
        Some(match Pair::new(self, other) {
            Pair::Int { a, b, wide } => int_result(a.checked_mul(b)?, wide),
            Pair::Double(a, b) => Self::Double(a * b),
            Pair::Decimal(a, b) => Self::Decimal(a.multiply(b)),
        })
    }

    /// The quotient, a double or a decimal; `None` for a zero divisor.
    #[must_use]
    pub fn divide(self, other: Self) -> Option<Self> {
        if other.is_zero() {
            return None;
        }
        Some(match Pair::new(self, other) {
            Pair::Int { .. } => Self::Double(self.as_f64() / other.as_f64()),
            Pair::Double(a, b) => Self::Double(a / b),
            Pair::Decimal(a, b) => Self::Decimal(a.divide(b)),
        })
    }

    /// The remainder with the sign of the dividend; `None` for a zero divisor.
    #[must_use]
    pub fn remainder(self, other: Self) -> Option<Self> {
        if other.is_zero() {
            return None;
        }
        Some(match Pair::new(self, other) {
            // The only overflow is i64::MIN % -1, whose remainder is zero.
            Pair::Int { a, b, wide } => int_result(a.wrapping_rem(b), wide),
            Pair::Double(a, b) => Self::Double(a % b),
            Pair::Decimal(a, b) => Self::Decimal(a.remainder(b)),
        })
    }

    /// The absolute value. The smallest 32-bit integer widens; that of the smallest 64-bit integer
    /// is `None`.
    #[must_use]
    pub fn abs(self) -> Option<Self> {
        Some(match self {
            Self::Int32(value) => Self::from_i64(i64::from(value).abs()),
            Self::Int64(value) => Self::Int64(value.checked_abs()?),
            Self::Double(value) => Self::Double(value.abs()),
            Self::Decimal(value) => Self::Decimal(value.abs()),
        })
    }

    /// The number with its sign changed, widened like [`Number::add`].
    #[must_use]
    pub fn negate(self) -> Self {
        match self {
            Self::Double(value) => Self::Double(-value),
            Self::Decimal(value) => Self::Decimal(value.negate()),
            int => Self::Int32(0).subtract(int),
        }
    }

    /// The square root, a double or a decimal; `None` for a negative number.
    #[must_use]
    pub fn sqrt(self) -> Option<Self> {
        if self.is_negative() {
            return None;
        }
        Some(match self {
            Self::Decimal(value) => Self::Decimal(value.sqrt()),
            value => Self::Double(value.as_f64().sqrt()),
        })
    }

    /// e to this power, a double or a decimal.
    #[must_use]
    pub fn exp(self) -> Self {
        match self {
            Self::Decimal(value) => Self::Decimal(value.exp()),
            value => Self::Double(value.as_f64().exp()),
        }
    }

    /// The natural logarithm, a double or a decimal; `None` for zero and negative numbers.
    #[must_use]
    pub fn ln(self) -> Option<Self> {
        if self.is_zero() || self.is_negative() {
            return None;
        }
        Some(match self {
            Self::Decimal(value) => Self::Decimal(value.ln()),
            value => Self::Double(value.as_f64().ln()),
        })
    }

    /// The decimal logarithm, a double or a decimal; `None` for zero and negative numbers.
    #[must_use]
    pub fn log10(self) -> Option<Self> {
        if self.is_zero() || self.is_negative() {
            return None;
        }
        Some(match self {
            Self::Decimal(value) => Self::Decimal(value.log10()),
            value => Self::Double(value.as_f64().log10()),
        })
    }

    /// This number to the power of `exponent`; `None` for zero to a negative power. Powers of
    /// integers are integers where they are whole and fit, else doubles.
    #[must_use]
    pub fn pow(self, exponent: Self) -> Option<Self> {
        if self.is_zero() && exponent.is_negative() {
            return None;
        }
        Some(match Pair::new(self, exponent) {
            Pair::Int { a, b, wide } => int_pow(a, b).map_or_else(
                || Self::Double(self.as_f64().powf(exponent.as_f64())),
                |value| int_result(value, wide),
            ),
            Pair::Double(a, b) => Self::Double(a.powf(b)),
            Pair::Decimal(a, b) => Self::Decimal(a.pow(b)),
        })
    }
}

/// `base` to the power of `exponent` if that is an integer and fits.
fn int_pow(base: i64, exponent: i64) -> Option<i64> {
    match base {
        1 => Some(1),
        -1 => Some(if exponent % 2 == 0 { 1 } else { -1 }),
        0 if exponent > 0 => Some(0),
        _ => base.checked_pow(u32::try_from(exponent).ok()?),
    }
}
