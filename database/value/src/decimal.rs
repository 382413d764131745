//! The 128-bit decimal.

mod arithmetic;
mod binary;
mod functions;
mod text;

use std::cmp::Ordering;

use bson::Decimal128;
use dashu_int::UBig;

/// How many digits a coefficient has at most.
pub(crate) const DIGITS_MAX: u32 = 34;
/// The largest coefficient, 10^34 - 1.
pub(crate) const COEFFICIENT_MAX: u128 = 10_u128.pow(DIGITS_MAX) - 1;
/// The smallest exponent.
pub(crate) const EXPONENT_MIN: i32 = -6176;
/// The largest exponent.
pub(crate) const EXPONENT_MAX: i32 = 6111;
/// What is added to an exponent before it is stored.
const EXPONENT_BIAS: i32 = 6176;

/// A decimal of up to 34 digits: IEEE 754-2008 decimal128, as BSON stores it.
///
/// # Format
/// BSON stores the binary integer decimal (BID) form, 16 bytes, little-endian. From the highest bit:
/// ```text
///  bit 127     126..113                     112..0
///  +------+------------------+----------------------------------+
///  | sign | exponent + 6176  | coefficient                      |  bits 126..125 are not 11
///  +------+----+-------------+--+-------------------------------+
///  | sign | 11 | exponent + 6176 | coefficient, above 10^34-1    |  bits 126..123 below 1111: reads as 0
///  +------+----+-----------------+------------------------------+
///  | sign | 11110 | unused                                       |  infinity
///  | sign | 11111 | payload                                      |  NaN
///  +------+-------+---------------------------------------------+
/// ```
/// The value is `coefficient * 10^exponent`; several pairs have equal values (1.0 and 1.00), which are
/// told apart by [`Decimal::to_bson`] and by printing but compare equal. A coefficient above 10^34-1
/// reads as zero. The sign and the payload of a NaN are not kept.
///
/// # Arithmetic
/// Results are the exact ones rounded once to 34 digits, half to even, with the exponents that IEEE 754
/// prefers, so that trailing zeros carry over: 1.0 + 2.00 is 3.00. The transcendental functions are
/// correctly rounded too.
#[derive(Clone, Copy, Debug)]
pub struct Decimal {
    negative: bool,
    magnitude: Magnitude,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Magnitude {
    /// At most [`COEFFICIENT_MAX`], and an exponent within its range.
    Finite {
        coefficient: u128,
        exponent: i32,
    },
    Infinity,
    Nan,
}

/// Which of the neighbours a number in between becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// The nearest one; the even one if both are.
    HalfEven,
    /// The one nearer to zero.
    Zero,
    /// The larger one.
    Ceiling,
    /// The smaller one.
    Floor,
}

impl Decimal {
    /// The value zero, positive and with exponent 0.
    pub const ZERO: Self = Self::finite(false, 0, 0);
    /// The value one, with coefficient 1 and exponent 0.
    pub const ONE: Self = Self::finite(false, 1, 0);
    /// The value that is not a number; it compares below all numbers in MongoDB's order.
    pub const NAN: Self = Self {
        negative: false,
        magnitude: Magnitude::Nan,
    };
    /// Positive infinity.
    pub const INFINITY: Self = Self {
        negative: false,
        magnitude: Magnitude::Infinity,
    };
    /// Negative infinity.
    pub const NEGATIVE_INFINITY: Self = Self {
        negative: true,
        magnitude: Magnitude::Infinity,
    };

    const fn finite(negative: bool, coefficient: u128, exponent: i32) -> Self {
        Self {
            negative,
            magnitude: Magnitude::Finite {
                coefficient,
                exponent,
            },
        }
    }

    /// `±coefficient * 10^exponent`, if the parts are within their ranges (10^34-1; -6176 to 6111).
    #[must_use]
    pub fn from_parts(negative: bool, coefficient: u128, exponent: i32) -> Option<Self> {
        let fits =
            coefficient <= COEFFICIENT_MAX && (EXPONENT_MIN..=EXPONENT_MAX).contains(&exponent);
        fits.then_some(Self::finite(negative, coefficient, exponent))
    }

    /// Sign, coefficient and exponent; `None` for NaN and the infinities.
    #[must_use]
    pub const fn to_parts(self) -> Option<(bool, u128, i32)> {
        match self.magnitude {
            Magnitude::Finite {
                coefficient,
                exponent,
            } => Some((self.negative, coefficient, exponent)),
            Magnitude::Infinity | Magnitude::Nan => None,
        }
    }

    /// The decimal that BSON's 16 bytes stand for; the layout is described at [`Decimal`].
    #[must_use]
    pub fn from_bson(value: Decimal128) -> Self {
        let bits = u128::from_le_bytes(value.bytes());
        let negative = bits >> 127 == 1;
        if (bits >> 122) & 0b1_1111 == 0b1_1111 {
            return Self::NAN;
        }
        if (bits >> 122) & 0b1_1111 == 0b1_1110 {
            return Self {
                negative,
                magnitude: Magnitude::Infinity,
            };
        }
        let long_form = (bits >> 125) & 0b11 == 0b11;
        let biased = (if long_form { bits >> 111 } else { bits >> 113 }) & 0x3FFF;
        let coefficient = if long_form {
            0
        } else {
            bits & ((1 << 113) - 1)
        };
        let coefficient = if coefficient > COEFFICIENT_MAX {
            0
        } else {
            coefficient
        };
        // 14 bits fit an i32; those of a valid form end at 12,287.
        let exponent = i32::try_from(biased).unwrap_or(EXPONENT_BIAS) - EXPONENT_BIAS;
        Self::finite(negative, coefficient, exponent.min(EXPONENT_MAX))
    }

    /// The 16 bytes that BSON stores; the layout is described at [`Decimal`].
    #[must_use]
    pub fn to_bson(self) -> Decimal128 {
        let sign = u128::from(self.negative) << 127;
        let bits = match self.magnitude {
            Magnitude::Nan => 0b1_1111 << 122,
            Magnitude::Infinity => sign | (0b1_1110 << 122),
            Magnitude::Finite {
                coefficient,
                exponent,
            } => {
                let biased = u128::from((exponent + EXPONENT_BIAS).unsigned_abs());
                sign | (biased << 113) | coefficient
            }
        };
        Decimal128::from_bytes(bits.to_le_bytes())
    }

    /// An integer as a decimal, exact and with exponent 0.
    #[must_use]
    pub fn from_i64(value: i64) -> Self {
        Self::finite(value < 0, u128::from(value.unsigned_abs()), 0)
    }

    /// The value as an `i64` if it is integral and in range.
    #[must_use]
    pub fn to_i64_exact(self) -> Option<i64> {
        let (negative, coefficient, exponent) = self.to_parts()?;
        let magnitude = if coefficient == 0 {
            0
        } else if exponent >= 0 {
            coefficient.checked_mul(10_u128.checked_pow(exponent.unsigned_abs())?)?
        } else {
            let divisor = 10_u128.checked_pow(exponent.unsigned_abs())?;
            if coefficient % divisor != 0 {
                return None;
            }
            coefficient / divisor
        };
        let magnitude = i128::try_from(magnitude).ok()?;
        i64::try_from(if negative { -magnitude } else { magnitude }).ok()
    }

    /// Whether the value is not a number.
    #[must_use]
    pub const fn is_nan(self) -> bool {
        matches!(self.magnitude, Magnitude::Nan)
    }

    /// Whether the value is positive or negative infinity.
    #[must_use]
    pub const fn is_infinite(self) -> bool {
        matches!(self.magnitude, Magnitude::Infinity)
    }

    /// Whether this is neither NaN nor an infinity.
    #[must_use]
    pub const fn is_finite(self) -> bool {
        matches!(self.magnitude, Magnitude::Finite { .. })
    }

    /// Whether this is zero, of either sign and any exponent.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        matches!(self.magnitude, Magnitude::Finite { coefficient: 0, .. })
    }

    /// Whether the sign is set, as it is for -0.
    #[must_use]
    pub const fn is_negative(self) -> bool {
        self.negative
    }

    /// The value without its sign; NaN stays NaN.
    #[must_use]
    pub const fn abs(self) -> Self {
        Self {
            negative: false,
            magnitude: self.magnitude,
        }
    }

    /// The value with its sign changed; NaN stays NaN.
    #[must_use]
    pub const fn negate(self) -> Self {
        match self.magnitude {
            Magnitude::Nan => self,
            magnitude => Self {
                negative: !self.negative,
                magnitude,
            },
        }
    }

    /// Compares by value: NaN equals NaN and is below everything else, -0 equals 0, 1.0 equals 1.00.
    #[must_use]
    pub fn compare(self, other: Self) -> Ordering {
        match (self.is_nan(), other.is_nan()) {
            (false, false) => {}
            (a, b) => return b.cmp(&a),
        }
        self.signum().cmp(&other.signum()).then_with(|| {
            let order = compare_magnitudes(self.magnitude, other.magnitude);
            if self.negative {
                order.reverse()
            } else {
                order
            }
        })
    }

    /// -1, 0 or 1; NaN must have been dealt with.
    const fn signum(self) -> i32 {
        match (self.is_zero(), self.negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        }
    }
}

fn compare_magnitudes(a: Magnitude, b: Magnitude) -> Ordering {
    let (a, b) = match (a, b) {
        (
            Magnitude::Finite {
                coefficient: coefficient_a,
                exponent: exponent_a,
            },
            Magnitude::Finite {
                coefficient: coefficient_b,
                exponent: exponent_b,
            },
        ) => ((coefficient_a, exponent_a), (coefficient_b, exponent_b)),
        (a, b) => return (a == Magnitude::Infinity).cmp(&(b == Magnitude::Infinity)),
    };
    if a.0 == 0 || b.0 == 0 {
        return a.0.cmp(&b.0);
    }
    // Where the highest digit stands decides first; when both stand alike, scaling the coefficient of
    // the larger exponent brings it to no more digits than the other has.
    adjusted_exponent(a.0, a.1)
        .cmp(&adjusted_exponent(b.0, b.1))
        .then_with(|| {
            let exponent = a.1.min(b.1);
            let scaled = |(coefficient, own): (u128, i32)| {
                coefficient * 10_u128.pow((own - exponent).unsigned_abs())
            };
            scaled(a).cmp(&scaled(b))
        })
}

/// How many decimal digits `coefficient` has; 1 for zero.
pub(crate) const fn digit_count(coefficient: u128) -> i32 {
    match coefficient.checked_ilog10() {
        // A u128 has at most 39 digits.
        Some(log) => log as i32 + 1,
        None => 1,
    }
}

/// The exponent of the highest digit.
pub(crate) const fn adjusted_exponent(coefficient: u128, exponent: i32) -> i32 {
    exponent + digit_count(coefficient) - 1
}

/// 10 to the power of `exponent`.
fn ten_pow(exponent: u32) -> UBig {
    UBig::from_word(10).pow(usize::try_from(exponent).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests;
