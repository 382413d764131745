//! Roots, exponentials and logarithms, correctly rounded.

use dashu_float::round::Rounded;
use dashu_float::round::mode::HalfEven;
use dashu_float::{Context, FBig, Repr};
use dashu_int::{IBig, Sign, UBig};

use super::{
    COEFFICIENT_MAX, DIGITS_MAX, Decimal, EXPONENT_MIN, Magnitude, adjusted_exponent, digit_count,
};

/// ln(10^6145): e to a higher power than this is beyond the largest decimal.
const EXP_ARGUMENT_MAX: f64 = 14_149.4;
/// ln(10^-6177): e to a lower power than this is below half of the smallest decimal.
const EXP_ARGUMENT_MIN: f64 = -14_223.1;
/// The same limits for powers of ten.
const POWER_OF_TEN_MAX: f64 = 6_145.1;
const POWER_OF_TEN_MIN: f64 = -6_178.1;

/// 34 digits, half to even. Results below the smallest normal number are rounded a second time.
fn context() -> Context<HalfEven> {
    Context::new(usize::try_from(DIGITS_MAX).unwrap_or(0))
}

impl Decimal {
    /// The square root; NaN for negative numbers. -0 for -0.
    #[must_use]
    pub fn sqrt(self) -> Self {
        let (coefficient, exponent) = match self.magnitude {
            Magnitude::Finite {
                coefficient: 0,
                exponent,
            } => {
                return Self::finite(self.negative, 0, exponent.div_euclid(2));
            }
            _ if self.negative || self.is_nan() => return Self::NAN,
            Magnitude::Finite {
                coefficient,
                exponent,
            } => (coefficient, exponent),
            _ => return self,
        };
        // An even exponent and 70 or more digits, of which the root has half.
        let shift = 70 + exponent.rem_euclid(2);
        let radicand = UBig::from(coefficient) * super::ten_pow(shift.unsigned_abs());
        let root = dashu_int::ops::SquareRoot::sqrt(&radicand);
        let exact = &root * &root == radicand;
        let exponent_root = i64::from((exponent - shift) / 2);
        if exact {
            let preferred = i64::from(exponent.div_euclid(2));
            Self::round_toward_exponent(false, root, exponent_root, preferred)
        } else {
            Self::round(false, root, exponent_root, true)
        }
    }

    /// e to the power of this value, correctly rounded; infinity above the range.
    #[must_use]
    pub fn exp(self) -> Self {
        if self.is_nan() {
            return self;
        }
        if self.is_zero() {
            return Self::ONE;
        }
        let argument = self.to_f64();
        if argument > EXP_ARGUMENT_MAX {
            return Self::INFINITY;
        }
        if argument < EXP_ARGUMENT_MIN {
            return Self::finite(false, 0, EXPONENT_MIN);
        }
        self.apply(|context, value| context.exp(value, None).ok())
    }

    /// The natural logarithm; NaN for negative numbers, negative infinity for zero.
    #[must_use]
    pub fn ln(self) -> Self {
        self.logarithm(|context, value| context.ln(value, None).ok())
    }

    /// The decimal logarithm; NaN for negative numbers, negative infinity for zero.
    #[must_use]
    pub fn log10(self) -> Self {
        self.logarithm(|context, value| context.log10(value, None).ok())
    }

    /// This value to the power of `exponent`, with the special cases of IEEE 754's `pow`.
    #[must_use]
    pub fn pow(self, exponent: Self) -> Self {
        if exponent.is_zero() || self.compare(Self::ONE).is_eq() {
            return Self::ONE;
        }
        if self.is_nan() || exponent.is_nan() {
            return Self::NAN;
        }
        let parity = Parity::of(exponent);
        let negative = self.negative && parity == Parity::Odd;
        if self.is_zero() || self.is_infinite() || exponent.is_infinite() {
            return self.pow_special(exponent, negative);
        }
        if self.negative && parity == Parity::Fraction {
            return Self::NAN;
        }
        let base = self.abs();
        if base.compare(Self::ONE).is_eq() {
            return Self::finite(negative, 1, 0);
        }
        let log = base.log10().multiply(exponent).to_f64();
        if log > POWER_OF_TEN_MAX {
            return Self {
                negative,
                magnitude: Magnitude::Infinity,
            };
        }
        if log < POWER_OF_TEN_MIN {
            return Self::finite(negative, 0, EXPONENT_MIN);
        }
        let power = base.apply(|context, value| {
            let exponent = exponent.to_repr()?;
            context.powf(value, &exponent, None).ok()
        });
        Self {
            negative,
            magnitude: power.magnitude,
        }
    }

    /// Powers of and to zero and infinity. `negative` is the result's sign.
    fn pow_special(self, exponent: Self, negative: bool) -> Self {
        let grows = if exponent.is_infinite() {
            match self.abs().compare(Self::ONE) {
                std::cmp::Ordering::Equal => return Self::ONE,
                order => order.is_gt() != exponent.negative,
            }
        } else {
            self.is_infinite() != exponent.negative
        };
        if grows {
            Self {
                negative,
                magnitude: Magnitude::Infinity,
            }
        } else {
            Self::finite(negative, 0, 0)
        }
    }

    fn logarithm(
        self,
        log: impl Fn(Context<HalfEven>, &Repr<10>) -> Option<Rounded<Float>>,
    ) -> Self {
        match self.magnitude {
            Magnitude::Finite { coefficient: 0, .. } => Self::NEGATIVE_INFINITY,
            _ if self.negative || !self.is_finite() => {
                if self.negative {
                    Self::NAN
                } else {
                    self
                }
            }
            _ if self.compare(Self::ONE).is_eq() => Self::ZERO,
            _ => self.apply(log),
        }
    }

    /// Applies a function of the arithmetic library to a finite value. The functions above keep to
    /// the arguments it answers; should it refuse one all the same, the result is NaN.
    fn apply(
        self,
        function: impl Fn(Context<HalfEven>, &Repr<10>) -> Option<Rounded<Float>>,
    ) -> Self {
        let result = self.to_repr().and_then(|repr| function(context(), &repr));
        result.map_or(Self::NAN, |rounded| {
            let (value, exact) = rounded.value_with_exact();
            Self::from_repr(value.into_repr(), exact)
        })
    }

    fn to_repr(self) -> Option<Repr<10>> {
        let (negative, coefficient, exponent) = self.to_parts()?;
        let sign = if negative {
            Sign::Negative
        } else {
            Sign::Positive
        };
        let significand = IBig::from_parts(sign, UBig::from(coefficient));
        Some(Repr::new(significand, isize::try_from(exponent).ok()?))
    }

    /// The library drops trailing zeros. Inexact results get them back, since all 34 digits are known;
    /// exact whole numbers get exponent 0 where they have the room.
    fn from_repr(repr: Repr<10>, exact: bool) -> Self {
        let negative = repr.sign() == Sign::Negative;
        if repr.is_infinite() {
            return Self {
                negative,
                magnitude: Magnitude::Infinity,
            };
        }
        let (significand, exponent) = repr.into_parts();
        let (_, coefficient) = significand.into_parts();
        let exponent = i64::try_from(exponent).unwrap_or(i64::MAX);
        let Ok(coefficient) = u128::try_from(&coefficient) else {
            return Self::round(negative, coefficient, exponent, false);
        };
        let room = i64::from(digit_count(COEFFICIENT_MAX) - digit_count(coefficient)).max(0);
        let zeros = match (exact, exponent.clamp(0, i64::from(DIGITS_MAX))) {
            (false, _) => room,
            (true, zeros) if zeros <= room => zeros,
            (true, _) => 0,
        };
        let padding = super::ten_pow(u32::try_from(zeros).unwrap_or(0));
        Self::round(
            negative,
            UBig::from(coefficient) * padding,
            exponent - zeros,
            false,
        )
    }
}

type Float = FBig<HalfEven, 10>;

/// What kind of number an exponent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parity {
    Even,
    Odd,
    Fraction,
}

impl Parity {
    fn of(value: Decimal) -> Self {
        let Some((_, coefficient, exponent)) = value.to_parts() else {
            return Self::Even;
        };
        if coefficient == 0 || exponent > 0 {
            return Self::Even;
        }
        let Some(power) = 10_u128.checked_pow(exponent.unsigned_abs()) else {
            return Self::Fraction;
        };
        debug_assert!(
            adjusted_exponent(coefficient, exponent) <= 34,
            "an exponent of at most 0"
        );
        if coefficient % power != 0 {
            Self::Fraction
        } else if (coefficient / power) % 2 == 0 {
            Self::Even
        } else {
            Self::Odd
        }
    }
}
