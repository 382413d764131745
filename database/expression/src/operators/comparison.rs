//! `$cmp` and its relatives. They compare any two values in MongoDB's total order; missing is below null.

use std::cmp::Ordering;

use bson::Bson;

use super::Operator;
use crate::frame::Frame;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::binary("$cmp", |a, b, frame| {
        Ok(Some(Bson::Int32(match compare(a, b, frame) {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        })))
    }),
    Operator::binary("$eq", |a, b, frame| {
        Ok(Some(Bson::Boolean(compare(a, b, frame).is_eq())))
    }),
    Operator::binary("$ne", |a, b, frame| {
        Ok(Some(Bson::Boolean(compare(a, b, frame).is_ne())))
    }),
    Operator::binary("$gt", |a, b, frame| {
        Ok(Some(Bson::Boolean(compare(a, b, frame).is_gt())))
    }),
    Operator::binary("$gte", |a, b, frame| {
        Ok(Some(Bson::Boolean(compare(a, b, frame).is_ge())))
    }),
    Operator::binary("$lt", |a, b, frame| {
        Ok(Some(Bson::Boolean(compare(a, b, frame).is_lt())))
    }),
    Operator::binary("$lte", |a, b, frame| {
        Ok(Some(Bson::Boolean(compare(a, b, frame).is_le())))
    }),
];

/// Compares values that may be missing.
pub(super) fn compare(a: Option<&Bson>, b: Option<&Bson>, frame: Frame<'_>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => frame.collation().compare_bson(a, b),
        // Missing sorts with undefined: after MinKey, before null.
        (None, Some(Bson::MinKey)) => Ordering::Greater,
        (Some(Bson::MinKey), None) => Ordering::Less,
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
}
