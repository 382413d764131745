//! `$inc` and `$mul`.

use std::sync::Arc;

use bson::Bson;
use millrace_value::{Error, ErrorCode, Number, Result, type_alias};

use super::{Context, Effect, Failure, Modifier, Operand};
use crate::identical::identical;
use crate::text;
use crate::trail::Trail;

#[derive(Clone, Copy, Debug)]
enum Operation {
    Increment,
    Multiply,
}

#[derive(Debug)]
struct Arithmetic {
    operation: Operation,
    operand: Number,
    /// The operand as it was written, which is what a new field gets.
    written: Bson,
}

pub(super) fn parse_inc(operand: &Operand<'_>) -> Result<Arc<dyn Modifier>> {
    parse(Operation::Increment, operand)
}

pub(super) fn parse_mul(operand: &Operand<'_>) -> Result<Arc<dyn Modifier>> {
    parse(Operation::Multiply, operand)
}

fn parse(operation: Operation, operand: &Operand<'_>) -> Result<Arc<dyn Modifier>> {
    let Some(number) = Number::from_bson(operand.value) else {
        let verb = match operation {
            Operation::Increment => "increment",
            Operation::Multiply => "multiply",
        };
        return Err(Error::new(
            ErrorCode::TypeMismatch,
            format!(
                "Cannot {verb} with non-numeric argument: {{{}}}",
                text::element(operand.path, operand.value)
            ),
        ));
    };
    Ok(Arc::new(Arithmetic {
        operation,
        operand: number,
        written: operand.value.clone(),
    }))
}

impl Arithmetic {
    const fn name(&self) -> &'static str {
        match self.operation {
            Operation::Increment => "$inc",
            Operation::Multiply => "$mul",
        }
    }

    fn compute(&self, current: Number) -> Option<Number> {
        match self.operation {
            Operation::Increment => current.add_exact(self.operand),
            Operation::Multiply => current.multiply_exact(self.operand),
        }
    }

    fn overflow(&self, current: Number) -> Failure {
        let kind = match current {
            Number::Int32(_) => "NumberInt",
            Number::Int64(_) => "NumberLong",
            Number::Double(_) => "NumberDouble",
            Number::Decimal(_) => "NumberDecimal",
        };
        Failure::Naming {
            code: ErrorCode::BadValue,
            head: format!(
                "Failed to apply {} operations to current value (({kind}){current}) for document ",
                self.name()
            ),
            tail: String::new(),
        }
    }
}

impl Modifier for Arithmetic {
    fn modify(
        &self,
        value: &mut Bson,
        trail: &Trail<'_>,
        _context: &Context<'_>,
    ) -> Result<Effect, Failure> {
        let Some(current) = Number::from_bson(value) else {
            return Err(Failure::Naming {
                code: ErrorCode::TypeMismatch,
                head: format!(
                    "Cannot apply {} to a value of non-numeric type. ",
                    self.name()
                ),
                tail: format!(
                    " has the field '{}' of non-numeric type {}",
                    trail.name(),
                    type_alias(value)
                ),
            });
        };
        let result = self
            .compute(current)
            .ok_or_else(|| self.overflow(current))?
            .to_bson();
        if identical(value, &result) {
            return Ok(Effect::Unchanged);
        }
        *value = result;
        Ok(Effect::Changed)
    }

    fn create(&self, _context: &Context<'_>) -> Result<Option<Bson>, Failure> {
        match self.operation {
            Operation::Increment => Ok(Some(self.written.clone())),
            // A zero of the operand's type.
            Operation::Multiply => {
                let zero = Number::Int32(0);
                let product = self.compute(zero).ok_or_else(|| self.overflow(zero))?;
                Ok(Some(product.to_bson()))
            }
        }
    }
}
