//! Conversion from and to doubles, and exact comparison with them.

use std::cmp::Ordering;

use dashu_int::UBig;

use super::{Decimal, Magnitude, Rounding, adjusted_exponent, ten_pow};

/// How many digits MongoDB keeps of a double that meets a decimal.
const F64_DIGITS: i32 = 15;

/// The parts of a finite double that is not zero: `mantissa * 2^exponent`, and the mantissa is odd.
fn decompose(value: f64) -> (u64, i32) {
    let bits = value.to_bits();
    let fraction = bits & ((1 << 52) - 1);
    let biased = i32::try_from((bits >> 52) & 0x7FF).unwrap_or(0);
    let (mantissa, exponent) = if biased == 0 {
        (fraction, -1074)
    } else {
        (fraction | (1 << 52), biased - 1075)
    };
    let shift = mantissa.trailing_zeros();
    // The mantissa is not zero, so fewer than 64 bits are shifted out.
    (
        mantissa >> shift,
        exponent + i32::try_from(shift).unwrap_or(0),
    )
}

impl Decimal {
    /// A double, rounded to 34 digits.
    #[must_use]
    pub fn from_f64(value: f64) -> Self {
        let negative = value.is_sign_negative();
        if value.is_nan() {
            return Self::NAN;
        }
        if value.is_infinite() {
            return Self {
                negative,
                magnitude: Magnitude::Infinity,
            };
        }
        if value == 0.0 {
            return Self::finite(negative, 0, 0);
        }
        let (mantissa, exponent) = decompose(value);
        let shift = usize::try_from(exponent.unsigned_abs()).unwrap_or(0);
        if exponent >= 0 {
            Self::round(negative, UBig::from(mantissa) << shift, 0, false)
        } else {
            // m / 2^k is m * 5^k / 10^k, and m is odd, so that no trailing zero is left.
            let coefficient = UBig::from(mantissa) * UBig::from_word(5).pow(shift);
            Self::round(negative, coefficient, i64::from(exponent), false)
        }
    }

    /// A double, rounded to 15 digits, trailing zeros kept: 0.1 becomes 0.100000000000000. This is how
    /// MongoDB takes a double where a decimal is wanted.
    #[must_use]
    pub fn from_f64_rounded(value: f64) -> Self {
        let exact = Self::from_f64(value);
        let Some((_, coefficient, exponent)) = exact.to_parts() else {
            return exact;
        };
        if coefficient == 0 {
            return exact;
        }
        let target = adjusted_exponent(coefficient, exponent) - (F64_DIGITS - 1);
        let rounded = exact.quantize(target, Rounding::HalfEven);
        match rounded.to_parts() {
            // Rounding up added a digit, which is a zero.
            Some((_, coefficient, _)) if super::digit_count(coefficient) > F64_DIGITS => {
                rounded.quantize(target + 1, Rounding::HalfEven)
            }
            _ => rounded,
        }
    }

    /// The nearest double, half to even; infinity beyond its range.
    #[must_use]
    pub fn to_f64(self) -> f64 {
        let magnitude = match self.magnitude {
            Magnitude::Nan => return f64::NAN,
            Magnitude::Infinity => f64::INFINITY,
            Magnitude::Finite {
                coefficient,
                exponent,
            } => nearest_f64(coefficient, exponent),
        };
        if self.negative { -magnitude } else { magnitude }
    }

    /// The double nearest to this value that is not farther from zero; the largest finite double for
    /// finite values beyond it.
    #[must_use]
    pub fn to_f64_toward_zero(self) -> f64 {
        let nearest = self.to_f64();
        if self.compare_f64(nearest) == Ordering::Equal || nearest.is_nan() {
            return nearest;
        }
        let too_far = self.abs().compare_f64(nearest.abs()) == Ordering::Less;
        if too_far {
            f64::from_bits(nearest.to_bits() - 1)
        } else {
            nearest
        }
    }

    /// Compares with a double by value without rounding either; see [`Decimal::compare`].
    #[must_use]
    pub fn compare_f64(self, other: f64) -> Ordering {
        let (coefficient, exponent) = match self.magnitude {
            Magnitude::Finite {
                coefficient,
                exponent,
            } if other.is_finite() => (coefficient, exponent),
            // Whether NaN or infinite, the double is the same as a decimal.
            _ => return self.compare(Self::from_f64(other)),
        };
        let sign_other = match other.partial_cmp(&0.0) {
            Some(Ordering::Greater) => 1,
            Some(Ordering::Less) => -1,
            _ => 0,
        };
        self.signum().cmp(&sign_other).then_with(|| {
            if coefficient == 0 {
                return Ordering::Equal;
            }
            let order = compare_magnitudes(coefficient, exponent, other.abs());
            if self.negative {
                order.reverse()
            } else {
                order
            }
        })
    }
}

/// The double nearest to `coefficient * 10^exponent`.
fn nearest_f64(coefficient: u128, exponent: i32) -> f64 {
    // Both factors are exact below these limits, so that the one operation rounds correctly.
    const EXACT_POWERS: [f64; 23] = [
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
        1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
    ];
    if coefficient < 1 << 53 {
        let power = usize::try_from(exponent.unsigned_abs())
            .ok()
            .and_then(|place| EXACT_POWERS.get(place));
        if let Some(power) = power {
            let whole = coefficient as f64;
            return if exponent < 0 {
                whole / power
            } else {
                whole * power
            };
        }
    }
    // The standard library's parser is correctly rounded for any number of digits.
    format!("{coefficient}e{exponent}")
        .parse()
        .unwrap_or(f64::NAN)
}

/// Compares `coefficient * 10^exponent` with `other`; both are finite and above zero.
fn compare_magnitudes(coefficient: u128, exponent: i32, other: f64) -> Ordering {
    // 10^adjusted <= decimal < 10^(adjusted + 1), and the double's logarithm is known within one.
    let adjusted = f64::from(adjusted_exponent(coefficient, exponent));
    let log = other.log10();
    if adjusted > log + 2.0 {
        return Ordering::Greater;
    }
    if adjusted + 1.0 < log - 2.0 {
        return Ordering::Less;
    }
    // What is left is within a double's range, so that the integers below stay under 1,300 bits.
    let (mantissa, binary) = decompose(other);
    let mut left = UBig::from(coefficient);
    let mut right = UBig::from(mantissa);
    if exponent < 0 {
        right *= ten_pow(exponent.unsigned_abs());
    } else {
        left *= ten_pow(exponent.unsigned_abs());
    }
    let shift = usize::try_from(binary.unsigned_abs()).unwrap_or(0);
    if binary < 0 {
        left <<= shift;
    } else {
        right <<= shift;
    }
    left.cmp(&right)
}
