//! `$pop`.

use std::sync::Arc;

use bson::Bson;
use millrace_value::{Error, ErrorCode, Result, type_alias};

use super::{Context, Effect, Failure, Modifier, Operand, parse_integer};
use crate::trail::Trail;

#[derive(Clone, Copy, Debug)]
enum Pop {
    First,
    Last,
}

pub(super) fn parse(operand: &Operand<'_>) -> Result<Arc<dyn Modifier>> {
    match parse_integer(operand.path, operand.value)? {
        1 => Ok(Arc::new(Pop::Last)),
        -1 => Ok(Arc::new(Pop::First)),
        other => {
            let message = format!("$pop expects 1 or -1, found: {other}");
            Err(Error::new(ErrorCode::FailedToParse, message))
        }
    }
}

impl Modifier for Pop {
    fn modify(
        &self,
        value: &mut Bson,
        trail: &Trail<'_>,
        _context: &Context<'_>,
    ) -> Result<Effect, Failure> {
        let Bson::Array(array) = value else {
            return Err(Failure::Final(Error::new(
                ErrorCode::TypeMismatch,
                format!(
                    "Path '{trail}' contains an element of non-array type '{}'",
                    type_alias(value)
                ),
            )));
        };
        if array.is_empty() {
            return Ok(Effect::Unchanged);
        }
        match self {
            Self::First => {
                array.remove(0);
            }
            Self::Last => {
                array.pop();
            }
        }
        Ok(Effect::Changed)
    }

    fn create(&self, _context: &Context<'_>) -> Result<Option<Bson>, Failure> {
        Ok(None)
    }
}
