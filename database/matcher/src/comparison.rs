//! The order comparisons of filters: between values of one canonical type.

use std::cmp::Ordering;

use bson::{RawBson, RawBsonRef};
use millrace_value::{Collation, Number, canonical_rank};

/// The four order comparisons and equality.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `$eq`
    Equal,
    /// `$lt`
    Less,
    /// `$lte`
    LessOrEqual,
    /// `$gt`
    Greater,
    /// `$gte`
    GreaterOrEqual,
}

/// The class within which values compare.
fn class(value: RawBsonRef<'_>) -> u8 {
    canonical_rank(value.element_type())
}

fn is_nan(value: RawBsonRef<'_>) -> bool {
    Number::from_raw(value).is_some_and(Number::is_nan)
}

/// Whether `value` (`None`: missing) stands in the relation to `operand`.
pub fn compare(
    comparison: Comparison,
    value: Option<RawBsonRef<'_>>,
    operand: &RawBson,
    collation: Collation,
) -> bool {
    let inclusive = matches!(
        comparison,
        Comparison::Equal | Comparison::LessOrEqual | Comparison::GreaterOrEqual
    );
    let less = matches!(comparison, Comparison::Less | Comparison::LessOrEqual);
    let operand = operand.as_raw_bson_ref();
    let same_class = match value {
        // `undefined` shares the rank of null but equals nothing since MongoDB 8.0.
        Some(RawBsonRef::Undefined) => false,
        Some(value) => class(value) == class(operand),
        None => false,
    };
    if !same_class {
        return match operand {
            RawBsonRef::Null => value.is_none() && inclusive,
            RawBsonRef::MaxKey => less,
            RawBsonRef::MinKey => !less && comparison != Comparison::Equal,
            _ => false,
        };
    }
    let Some(value) = value else {
        return false;
    };
    if is_nan(value) || is_nan(operand) {
        return inclusive && is_nan(value) && is_nan(operand);
    }
    let order = collation.compare(value, operand);
    match comparison {
        Comparison::Equal => order == Ordering::Equal,
        Comparison::Less => order == Ordering::Less,
        Comparison::LessOrEqual => order != Ordering::Greater,
        Comparison::Greater => order == Ordering::Greater,
        Comparison::GreaterOrEqual => order != Ordering::Less,
    }
}
