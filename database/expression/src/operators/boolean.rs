//! `$and`, `$or`, `$not`.

use bson::Bson;
use millrace_value::{Result, is_truthy};

use super::Operator;
use crate::frame::Frame;
use crate::{Expression, Value, owned};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::lazy("$and", 0, None, and),
    Operator::lazy("$or", 0, None, or),
    Operator::unary("$not", not),
];

fn and<'a>(operands: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    for operand in operands {
        if !operand.eval(frame)?.is_some_and(|value| is_truthy(&value)) {
            return Ok(owned(Bson::Boolean(false)));
        }
    }
    Ok(owned(Bson::Boolean(true)))
}

fn or<'a>(operands: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    for operand in operands {
        if operand.eval(frame)?.is_some_and(|value| is_truthy(&value)) {
            return Ok(owned(Bson::Boolean(true)));
        }
    }
    Ok(owned(Bson::Boolean(false)))
}

fn not(operand: Option<&Bson>, _: Frame<'_>) -> Result<Option<Bson>> {
    Ok(Some(Bson::Boolean(!operand.is_some_and(is_truthy))))
}
