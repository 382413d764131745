//! `$bit`.

use std::sync::Arc;

use bson::Bson;
use millrace_value::{ErrorCode, Result, type_alias};

use super::{Context, Effect, Failure, Modifier, Operand, bad_value};
use crate::identical::identical;
use crate::text;
use crate::trail::Trail;

#[derive(Clone, Copy, Debug)]
enum Operation {
    And,
    Or,
    Xor,
}

#[derive(Debug)]
struct Bit {
    /// In the order in which they were written.
    operations: Vec<(Operation, Integer)>,
}

/// The types that have bits.
#[derive(Clone, Copy, Debug)]
enum Integer {
    Int32(i32),
    Int64(i64),
}

pub(super) fn parse(operand: &Operand<'_>) -> Result<Arc<dyn Modifier>> {
    let Bson::Document(written) = operand.value else {
        return Err(bad_value(format!(
            "The $bit modifier is not compatible with a {}. You must pass in an embedded document: \
             {{$bit: {{field: {{and/or/xor: #}}}}",
            type_alias(operand.value)
        )));
    };
    let mut operations = Vec::with_capacity(written.len());
    for (name, value) in written {
        let operation = match name.as_str() {
            "and" => Operation::And,
            "or" => Operation::Or,
            "xor" => Operation::Xor,
            _ => {
                return Err(bad_value(format!(
                    "The $bit modifier only supports 'and', 'or', and 'xor', not '{name}' which is \
                     an unknown operator: {{{}}}",
                    text::element(name, value)
                )));
            }
        };
        let Some(integer) = Integer::from_bson(value) else {
            return Err(bad_value(format!(
                "The $bit modifier field must be an Integer(32/64 bit); a '{}' is not supported \
                 here: {{{}}}",
                type_alias(value),
                text::element(name, value)
            )));
        };
        operations.push((operation, integer));
    }
    if operations.is_empty() {
        return Err(bad_value(
            "You must pass in at least one bitwise operation. The format is: {$bit: {field: \
             {and/or/xor: #}}",
        ));
    }
    Ok(Arc::new(Bit { operations }))
}

impl Integer {
    const fn from_bson(value: &Bson) -> Option<Self> {
        match value {
            Bson::Int32(value) => Some(Self::Int32(*value)),
            Bson::Int64(value) => Some(Self::Int64(*value)),
            _ => None,
        }
    }

    fn wide(self) -> i64 {
        match self {
            Self::Int32(value) => i64::from(value),
            Self::Int64(value) => value,
        }
    }

    /// Two short integers give a short one.
    fn combine(self, operation: Operation, other: Self) -> Self {
        match (self, other) {
            (Self::Int32(a), Self::Int32(b)) => Self::Int32(match operation {
                Operation::And => a & b,
                Operation::Or => a | b,
                Operation::Xor => a ^ b,
            }),
            (a, b) => Self::Int64(match operation {
                Operation::And => a.wide() & b.wide(),
                Operation::Or => a.wide() | b.wide(),
                Operation::Xor => a.wide() ^ b.wide(),
            }),
        }
    }
}

impl Bit {
    fn compute(&self, current: Integer) -> Bson {
        let result = self
            .operations
            .iter()
            .fold(current, |value, (operation, operand)| {
                value.combine(*operation, *operand)
            });
        match result {
            Integer::Int32(value) => Bson::Int32(value),
            Integer::Int64(value) => Bson::Int64(value),
        }
    }
}

impl Modifier for Bit {
    fn modify(
        &self,
        value: &mut Bson,
        trail: &Trail<'_>,
        _context: &Context<'_>,
    ) -> Result<Effect, Failure> {
        let Some(current) = Integer::from_bson(value) else {
            return Err(Failure::Naming {
                code: ErrorCode::BadValue,
                head: "Cannot apply $bit to a value of non-integral type.".to_owned(),
                tail: format!(
                    " has the field {} of non-integer type {}",
                    trail.name(),
                    type_alias(value)
                ),
            });
        };
        let result = self.compute(current);
        if identical(value, &result) {
            return Ok(Effect::Unchanged);
        }
        *value = result;
        Ok(Effect::Changed)
    }

    fn create(&self, _context: &Context<'_>) -> Result<Option<Bson>, Failure> {
        Ok(Some(self.compute(Integer::Int32(0))))
    }
}
