//! `$mod`.

use bson::RawBsonRef;
use millrace_value::{Error, ErrorCode, Number, Result};

/// The number, cut to an integer, leaves `remainder` when divided by `divisor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modulus {
    divisor: i64,
    remainder: i64,
}

impl Modulus {
    /// Fails for a divisor of zero.
    pub(super) fn new(divisor: i64, remainder: i64) -> Result<Self> {
        if divisor == 0 {
            return Err(Error::new(ErrorCode::BadValue, "divisor cannot be 0"));
        }
        Ok(Self { divisor, remainder })
    }

    pub(super) fn matches(self, value: RawBsonRef<'_>) -> bool {
        Number::from_raw(value)
            .and_then(truncate)
            .is_some_and(|n| n.wrapping_rem(self.divisor) == self.remainder)
    }
}

/// The integral part, if it is finite and fits.
pub(super) fn truncate(number: Number) -> Option<i64> {
    match number {
        Number::Int32(n) => Some(i64::from(n)),
        Number::Int64(n) => Some(n),
        number => number.trunc(0).and_then(Number::as_i64_exact),
    }
}
