//! Exact arithmetic, rounded once.

use dashu_int::UBig;

use super::{
    COEFFICIENT_MAX, DIGITS_MAX, Decimal, EXPONENT_MAX, EXPONENT_MIN, Magnitude, Rounding,
    digit_count, ten_pow,
};

/// How far apart exponents may be before the smaller operand of a sum is replaced by a stand-in that
/// rounds the same way. The larger one reaches at most 34 digits up and the result keeps 34 digits.
const ALIGNMENT_MAX: i32 = 120;

/// [`DIGITS_MAX`] for sums of exponents.
const DIGITS: i64 = DIGITS_MAX as i64;

impl Decimal {
    /// The sum, rounded to 34 digits; NaN for infinities of opposite signs.
    #[must_use]
    #[expect(
        clippy::should_implement_trait,
        reason = "it rounds, which + should not do unseen"
    )]
    pub fn add(self, other: Self) -> Self {
        let (a, b) = match (self.to_parts(), other.to_parts()) {
            (Some(a), Some(b)) => (a, b),
            _ => return self.add_special(other),
        };
        let (a, b) = limit_distance(a, b);
        let exponent = a.2.min(b.2);
        let align = |(_, coefficient, own): (bool, u128, i32)| {
            UBig::from(coefficient) * ten_pow((own - exponent).unsigned_abs())
        };
        let (left, right) = (align(a), align(b));
        let exponent = i64::from(exponent);
        if a.0 == b.0 {
            return Self::round(a.0, left + right, exponent, false);
        }
        match left.cmp(&right) {
            // The sum of numbers of opposite sign that cancel is +0.
            std::cmp::Ordering::Equal => Self::round(false, UBig::ZERO, exponent, false),
            std::cmp::Ordering::Greater => Self::round(a.0, left - right, exponent, false),
            std::cmp::Ordering::Less => Self::round(b.0, right - left, exponent, false),
        }
    }

    /// The difference, rounded to 34 digits; NaN for infinities of equal signs.
    #[must_use]
    pub fn subtract(self, other: Self) -> Self {
        self.add(other.negate())
    }

    /// The product, rounded to 34 digits; NaN for zero times infinity.
    #[must_use]
    pub fn multiply(self, other: Self) -> Self {
        let negative = self.negative != other.negative;
        match (self.to_parts(), other.to_parts()) {
            (Some(a), Some(b)) => Self::round(
                negative,
                UBig::from(a.1) * UBig::from(b.1),
                i64::from(a.2) + i64::from(b.2),
                false,
            ),
            _ if self.is_nan() || other.is_nan() || self.is_zero() || other.is_zero() => Self::NAN,
            _ => Self {
                negative,
                magnitude: Magnitude::Infinity,
            },
        }
    }

    /// The quotient; infinity for a zero divisor, NaN for 0/0.
    #[must_use]
    pub fn divide(self, other: Self) -> Self {
        let negative = self.negative != other.negative;
        let (a, b) = match (self.to_parts(), other.to_parts()) {
            (Some(a), Some(b)) => (a, b),
            _ if self.is_nan() || other.is_nan() => return Self::NAN,
            _ if self.is_infinite() && other.is_infinite() => return Self::NAN,
            (None, _) => {
                return Self {
                    negative,
                    magnitude: Magnitude::Infinity,
                };
            }
            (_, None) => return Self::finite(negative, 0, EXPONENT_MIN),
        };
        let preferred = i64::from(a.2) - i64::from(b.2);
        if b.1 == 0 {
            return if a.1 == 0 {
                Self::NAN
            } else {
                Self {
                    negative,
                    magnitude: Magnitude::Infinity,
                }
            };
        }
        if a.1 == 0 {
            return Self::round(negative, UBig::ZERO, preferred, false);
        }
        // Enough digits for a quotient of 36 or more, so that what the remainder says stands below
        // the digit that decides the rounding.
        let shift = (DIGITS + 2 + i64::from(digit_count(b.1) - digit_count(a.1))).max(0);
        let scale = ten_pow(u32::try_from(shift).unwrap_or(0));
        let (numerator, divisor) = (UBig::from(a.1) * scale, UBig::from(b.1));
        let quotient = &numerator / &divisor;
        let exact = &quotient * &divisor == numerator;
        if exact {
            Self::round_toward_exponent(negative, quotient, preferred - shift, preferred)
        } else {
            Self::round(negative, quotient, preferred - shift, true)
        }
    }

    /// The remainder of the division with truncated quotient; it has the sign of `self`. NaN for a
    /// zero divisor and an infinite dividend.
    #[must_use]
    pub fn remainder(self, other: Self) -> Self {
        let (a, b) = match (self.to_parts(), other.to_parts()) {
            (Some(a), Some(b)) if b.1 != 0 => (a, b),
            (Some(_), None) if other.is_infinite() => return self,
            _ => return Self::NAN,
        };
        let exponent = a.2.min(b.2);
        // A dividend that ends above the divisor's highest digit is smaller and is the remainder.
        if b.2 - exponent > 2 * digit_count(COEFFICIENT_MAX) {
            return self;
        }
        let dividend = UBig::from(a.1) * ten_pow((a.2 - exponent).unsigned_abs());
        let divisor = UBig::from(b.1) * ten_pow((b.2 - exponent).unsigned_abs());
        Self::round(a.0, dividend % divisor, i64::from(exponent), false)
    }

    /// The value with exactly this exponent, rounded or padded with zeros. The value itself if that
    /// takes more than 34 digits, or for NaN and the infinities.
    #[must_use]
    pub fn quantize(self, exponent: i32, rounding: Rounding) -> Self {
        let Some((negative, coefficient, own)) = self.to_parts() else {
            return self;
        };
        let quantized = if own >= exponent {
            let scale = 10_u128.checked_pow(own.abs_diff(exponent));
            match (coefficient, scale) {
                (0, _) => Some(0),
                (_, Some(scale)) => coefficient.checked_mul(scale),
                (_, None) => None,
            }
        } else {
            Some(drop_digits(
                coefficient,
                exponent.abs_diff(own),
                negative,
                rounding,
            ))
        };
        quantized
            .and_then(|coefficient| Self::from_parts(negative, coefficient, exponent))
            .unwrap_or(self)
    }

    /// Rounds to `place` digits after the decimal point, fewer than zero for places before it. Zeros
    /// are added where there are fewer digits.
    #[must_use]
    pub fn round_to_place(self, place: i32, rounding: Rounding) -> Self {
        self.quantize(
            place.saturating_neg().clamp(EXPONENT_MIN, EXPONENT_MAX),
            rounding,
        )
    }

    /// `±coefficient * 10^exponent` rounded to what a decimal holds. `inexact` says that the true
    /// value is a little above that; the coefficient must then have more than 34 digits.
    pub(super) fn round(negative: bool, coefficient: UBig, exponent: i64, inexact: bool) -> Self {
        let digits = big_digit_count(&coefficient);
        let excess = (digits - DIGITS)
            .max(i64::from(EXPONENT_MIN) - exponent)
            .max(0);
        if excess == 0 {
            // At most 34 digits fit.
            let coefficient = u128::try_from(coefficient).unwrap_or(0);
            return Self::fit_exponent(negative, coefficient, exponent);
        }
        if excess > digits + 1 {
            return Self::fit_exponent(negative, 0, exponent + excess);
        }
        let power = ten_pow(u32::try_from(excess).unwrap_or(0));
        let kept = &coefficient / &power;
        let rest = coefficient - &kept * &power;
        // At most 34 digits are kept.
        let mut kept = u128::try_from(kept).unwrap_or(0);
        let up = match (rest * UBig::from_word(2)).cmp(&power) {
            std::cmp::Ordering::Greater => true,
            std::cmp::Ordering::Equal => inexact || kept % 2 == 1,
            std::cmp::Ordering::Less => false,
        };
        kept += u128::from(up);
        let exponent = exponent + excess;
        if kept > COEFFICIENT_MAX {
            Self::fit_exponent(negative, kept / 10, exponent + 1)
        } else {
            Self::fit_exponent(negative, kept, exponent)
        }
    }

    /// As [`Decimal::round`] for an exact value, dropping trailing zeros until the exponent has risen
    /// to `preferred`.
    pub(super) fn round_toward_exponent(
        negative: bool,
        mut coefficient: UBig,
        mut exponent: i64,
        preferred: i64,
    ) -> Self {
        let ten = UBig::from_word(10);
        while exponent < preferred && !coefficient.is_zero() {
            let shorter = &coefficient / &ten;
            if &shorter * &ten != coefficient {
                break;
            }
            coefficient = shorter;
            exponent += 1;
        }
        Self::round(negative, coefficient, exponent, false)
    }

    /// Brings the exponent into its range: zeros move into the coefficient while there is room, larger
    /// values become infinite. The exponent is not below the range unless the coefficient is zero.
    fn fit_exponent(negative: bool, coefficient: u128, exponent: i64) -> Self {
        let bounded = exponent.clamp(i64::from(EXPONENT_MIN), i64::from(EXPONENT_MAX));
        let exponent_in_range = i32::try_from(bounded).unwrap_or(EXPONENT_MAX);
        if coefficient == 0 || bounded == exponent {
            return Self::finite(negative, coefficient, exponent_in_range);
        }
        u32::try_from(exponent - bounded)
            .ok()
            .and_then(|zeros| 10_u128.checked_pow(zeros))
            .and_then(|scale| coefficient.checked_mul(scale))
            .and_then(|coefficient| Self::from_parts(negative, coefficient, exponent_in_range))
            .unwrap_or(Self {
                negative,
                magnitude: Magnitude::Infinity,
            })
    }

    /// Sums in which not both operands are finite.
    fn add_special(self, other: Self) -> Self {
        match (self.magnitude, other.magnitude) {
            (Magnitude::Nan, _) | (_, Magnitude::Nan) => Self::NAN,
            (Magnitude::Infinity, Magnitude::Infinity) if self.negative != other.negative => {
                Self::NAN
            }
            (Magnitude::Infinity, _) => self,
            _ => other,
        }
    }
}

type Parts = (bool, u128, i32);

/// Replaces the operand with the far smaller exponent by one nearer that leads to the same rounded
/// sum, so that sums need no huge integers.
fn limit_distance(a: Parts, b: Parts) -> (Parts, Parts) {
    if a.2 < b.2 {
        let (b, a) = limit_distance(b, a);
        return (a, b);
    }
    if a.2 - b.2 <= ALIGNMENT_MAX || a.1 == 0 {
        return (limit_zero(a, b), b);
    }
    // The smaller operand stands far below the last digit the sum keeps.
    let near = a.2 - ALIGNMENT_MAX / 2;
    (a, (b.0, b.1.min(1), near))
}

/// A zero's high exponent does not matter: only the lower one shows in the sum.
const fn limit_zero(a: Parts, b: Parts) -> Parts {
    if a.1 == 0 { (a.0, 0, b.2) } else { a }
}

/// `coefficient` without its last `count` digits.
fn drop_digits(coefficient: u128, count: u32, negative: bool, rounding: Rounding) -> u128 {
    let Some(power) = 10_u128.checked_pow(count) else {
        // More digits go than there are, and the highest of them is below five.
        let up = coefficient != 0 && rounds_away(negative, rounding);
        return u128::from(up);
    };
    let (kept, rest) = (coefficient / power, coefficient % power);
    let up = match rounding {
        Rounding::HalfEven => match (rest * 2).cmp(&power) {
            std::cmp::Ordering::Greater => true,
            std::cmp::Ordering::Equal => kept % 2 == 1,
            std::cmp::Ordering::Less => false,
        },
        _ => rest != 0 && rounds_away(negative, rounding),
    };
    kept + u128::from(up)
}

/// Whether any rest is rounded away from zero.
const fn rounds_away(negative: bool, rounding: Rounding) -> bool {
    match rounding {
        Rounding::Ceiling => !negative,
        Rounding::Floor => negative,
        Rounding::HalfEven | Rounding::Zero => false,
    }
}

/// How many decimal digits `value` has; 1 for zero.
fn big_digit_count(value: &UBig) -> i64 {
    if value.is_zero() {
        return 1;
    }
    i64::try_from(value.ilog(&UBig::from_word(10))).unwrap_or(i64::MAX) + 1
}
