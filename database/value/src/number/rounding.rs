//! Rounding to whole numbers and to decimal places.

use super::Number;
use crate::{Decimal, Rounding};

impl Number {
    /// The smallest whole number that is not below this one.
    #[must_use]
    pub fn ceil(self) -> Self {
        match self {
            Self::Double(value) => Self::Double(value.ceil()),
            Self::Decimal(value) => Self::Decimal(value.round_to_place(0, Rounding::Ceiling)),
            int => int,
        }
    }

    /// The largest whole number that is not above this one.
    #[must_use]
    pub fn floor(self) -> Self {
        match self {
            Self::Double(value) => Self::Double(value.floor()),
            Self::Decimal(value) => Self::Decimal(value.round_to_place(0, Rounding::Floor)),
            int => int,
        }
    }

    /// Rounds to `place` digits after the decimal point, to the even digit when in the middle; a
    /// negative place rounds before the point. `None` if an integer's result does not fit 64 bits.
    #[must_use]
    pub fn round(self, place: i32) -> Option<Self> {
        self.to_place(place, Rounding::HalfEven)
    }

    /// Cuts at `place` digits after the decimal point; see [`Number::round`].
    #[must_use]
    pub fn trunc(self, place: i32) -> Option<Self> {
        self.to_place(place, Rounding::Zero)
    }

    fn to_place(self, place: i32, rounding: Rounding) -> Option<Self> {
        let int_to_place = |value: i64| {
            if place >= 0 {
                return Some(value);
            }
            Decimal::from_i64(value)
                .round_to_place(place, rounding)
                .to_i64_exact()
        };
        Some(match self {
            Self::Int32(value) => Self::from_i64(int_to_place(i64::from(value))?),
            Self::Int64(value) => Self::Int64(int_to_place(value)?),
            Self::Double(value) => Self::Double(f64_to_place(value, place, rounding)),
            Self::Decimal(value) => Self::Decimal(value.round_to_place(place, rounding)),
        })
    }
}

/// Rounds through a decimal of 34 digits, as MongoDB does: 2.675 is a little less than that and
/// becomes 2.67.
fn f64_to_place(value: f64, place: i32, rounding: Rounding) -> f64 {
    if !value.is_finite() {
        return value;
    }
    match (place, rounding) {
        (0, Rounding::HalfEven) => value.round_ties_even(),
        (0, Rounding::Zero) => value.trunc(),
        _ => Decimal::from_f64(value)
            .round_to_place(place, rounding)
            .to_f64(),
    }
}
