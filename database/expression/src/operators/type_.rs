//! `$type`, `$isNumber`, and the size of values.

use bson::Bson;
use millrace_value::hashed::hashed_value;
use millrace_value::{Collation, Error, Number, Result};

use super::string::count;
use super::{Operator, null, present, type_name};
use crate::frame::Frame;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::unary("$type", |x, _| {
        Ok(Some(Bson::String(type_name(x).to_owned())))
    }),
    Operator::unary("$isNumber", |x, _| {
        Ok(Some(Bson::Boolean(x.and_then(Number::from_bson).is_some())))
    }),
    Operator::unary("$bsonSize", bson_size),
    Operator::unary("$binarySize", binary_size),
    Operator::unary("$tsSecond", |x, _| {
        timestamp_part("$tsSecond", 5_687_301, x, |timestamp| timestamp.time)
    }),
    Operator::unary("$tsIncrement", |x, _| {
        timestamp_part("$tsIncrement", 5_687_302, x, |timestamp| {
            timestamp.increment
        })
    }),
    Operator::unary("$toHashedIndexKey", |x, _| {
        // The operator never uses a collation.
        let value = x.unwrap_or(&Bson::Null);
        Ok(Some(Bson::Int64(hashed_value(value, Collation::SIMPLE)?)))
    }),
];

fn bson_size(operand: Option<&Bson>, _: Frame<'_>) -> Result<Option<Bson>> {
    match present(operand) {
        None => null(),
        Some(Bson::Document(document)) => count(document.to_vec()?.len()),
        other => Err(Error::location(
            31393,
            format!(
                "$bsonSize requires a document input, found: {}",
                type_name(other)
            ),
        )),
    }
}

fn binary_size(operand: Option<&Bson>, _: Frame<'_>) -> Result<Option<Bson>> {
    match present(operand) {
        None => null(),
        Some(Bson::String(text)) => count(text.len()),
        Some(Bson::Binary(binary)) => count(binary.bytes.len()),
        other => Err(Error::location(
            51276,
            format!(
                "$binarySize requires a string or BinData argument, found: {}",
                type_name(other)
            ),
        )),
    }
}

fn timestamp_part(
    operator: &str,
    code: i32,
    operand: Option<&Bson>,
    part: fn(&bson::Timestamp) -> u32,
) -> Result<Option<Bson>> {
    match present(operand) {
        None => null(),
        Some(Bson::Timestamp(timestamp)) => Ok(Some(Bson::Int64(i64::from(part(timestamp))))),
        other => Err(Error::location(
            code,
            format!(
                " Argument to {operator} must be a timestamp, but is {}",
                type_name(other)
            ),
        )),
    }
}
