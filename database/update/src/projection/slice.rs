//! find's `$slice`.

use std::ops::Range;

use bson::Bson;
use millrace_value::{Error, Number, Result, type_alias};

/// A part of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slice {
    /// The first elements, or the last ones if negative.
    End(i32),
    /// So many elements from a place that counts from the end if negative.
    Window { skip: i32, limit: i32 },
}

impl Slice {
    /// Parses the operand of `$slice` in find's form.
    pub(super) fn parse(operand: &Bson) -> Result<Self> {
        if let Some(number) = Number::from_bson(operand) {
            return Ok(Self::End(clamp(number)));
        }
        let Bson::Array(operands) = operand else {
            let message = "$slice only supports numbers and [skip, limit] arrays";
            return Err(Error::location(31273, message));
        };
        let [skip, limit] = &operands[..] else {
            let message = "$slice array argument should be of form [skip, limit]";
            return Err(Error::location(31272, message));
        };
        let skip = part(31257, "skip", skip)?;
        let limit = part(31258, "limit", limit)?;
        if limit <= 0 {
            let message = format!("$slice limit must be positive, got {limit}");
            return Err(Error::location(31259, message));
        }
        Ok(Self::Window { skip, limit })
    }

    /// The indexes that remain of an array of `length` elements.
    pub(super) fn range(self, length: usize) -> Range<usize> {
        let magnitude = |n: i32| usize::try_from(n.unsigned_abs()).unwrap_or(usize::MAX);
        let (start, limit) = match self {
            Self::End(n) if n < 0 => (length.saturating_sub(magnitude(n)), length),
            Self::End(n) => (0, magnitude(n)),
            Self::Window { skip, limit } if skip < 0 => {
                (length.saturating_sub(magnitude(skip)), magnitude(limit))
            }
            Self::Window { skip, limit } => (magnitude(skip).min(length), magnitude(limit)),
        };
        start..start.saturating_add(limit).min(length)
    }
}

fn part(code: i32, name: &str, operand: &Bson) -> Result<i32> {
    Number::from_bson(operand).map(clamp).ok_or_else(|| {
        let found = type_alias(operand);
        let message = format!("$slice expects the {name} argument to be a number, got {found}");
        Error::location(code, message)
    })
}

/// The number as an `i32`: cut to an integer and to the range, zero for NaN.
fn clamp(number: Number) -> i32 {
    let integer = number.trunc(0).and_then(Number::as_i64_exact);
    let beyond = || match number.as_f64() {
        double if double > 0.0 => i64::MAX,
        double if double < 0.0 => i64::MIN,
        _ => 0,
    };
    let integer = integer.unwrap_or_else(beyond);
    let bounded = integer.clamp(i64::from(i32::MIN), i64::from(i32::MAX));
    i32::try_from(bounded).expect("invariant: the number was clamped to the range")
}

#[cfg(test)]
mod tests {
    use bson::bson;

    use super::*;

    #[test]
    fn ranges_count_from_both_ends() {
        for (operand, length, expected) in [
            (bson!(2), 5, 0..2),
            (bson!(9), 5, 0..5),
            (bson!(0), 5, 0..0),
            (bson!(-2), 5, 3..5),
            (bson!(-9), 5, 0..5),
            (bson!([1, 2]), 5, 1..3),
            (bson!([9, 2]), 5, 5..5),
            (bson!([-2, 1]), 5, 3..4),
            (bson!([-9, 1]), 5, 0..1),
            (bson!(i64::MIN), 5, 0..5),
            (bson!(1e300), 5, 0..5),
            (bson!(f64::NAN), 5, 0..0),
            (bson!([i64::MAX, i64::MAX]), 5, 5..5),
        ] {
            let slice = Slice::parse(&operand).expect("the operand is valid");
            assert_eq!(slice.range(length), expected, "{operand}");
        }
    }

    #[test]
    fn malformed_operands_have_mongodbs_codes() {
        for (operand, code) in [
            (bson!("x"), 31273),
            (bson!([1]), 31272),
            (bson!(["x", 1]), 31257),
            (bson!([1, "x"]), 31258),
            (bson!([1, 0]), 31259),
        ] {
            let error = Slice::parse(&operand).expect_err("the operand is malformed");
            assert_eq!(error.code().number(), code, "{operand}");
        }
    }
}
