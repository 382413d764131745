//! `$count` as an accumulator.

use std::sync::Arc;

use bson::Bson;
use millrace_value::{Error, ErrorCode, Result};

use crate::accumulator::Parsed;
use crate::accumulator::sum::Sum;
use crate::{Expression, Scope};

/// `{$count: {}}` is `{$sum: 1}`.
pub(super) fn parse(_name: &'static str, argument: &Bson, _scope: &Scope) -> Result<Parsed> {
    match argument {
        Bson::Document(fields) if fields.is_empty() => Ok(Parsed {
            input: Expression::constant(Bson::Int32(1)),
            sort_by: None,
            count: None,
            start: Arc::new(|_, _| Box::new(Sum::default())),
        }),
        _ => Err(Error::new(
            ErrorCode::TypeMismatch,
            "$count takes no arguments, i.e. $count:{}",
        )),
    }
}
