//! `$min` and `$max`.

use std::cmp::Ordering;
use std::sync::Arc;

use bson::Bson;
use millrace_value::Result;

use super::{Context, Effect, Failure, Modifier, Operand};
use crate::trail::Trail;

/// Keeps the lesser or the greater of the field and a value, in the order of all types.
#[derive(Debug)]
struct Extremum {
    value: Bson,
    /// How the value compares with what it replaces.
    replaces: Ordering,
}

pub(super) fn parse_min(operand: &Operand<'_>) -> Result<Arc<dyn Modifier>> {
    Ok(Arc::new(Extremum {
        value: operand.value.clone(),
        replaces: Ordering::Less,
    }))
}

pub(super) fn parse_max(operand: &Operand<'_>) -> Result<Arc<dyn Modifier>> {
    Ok(Arc::new(Extremum {
        value: operand.value.clone(),
        replaces: Ordering::Greater,
    }))
}

impl Modifier for Extremum {
    fn modify(
        &self,
        value: &mut Bson,
        _trail: &Trail<'_>,
        context: &Context<'_>,
    ) -> Result<Effect, Failure> {
        let collation = context.evaluation.collation;
        if collation.compare_bson(&self.value, value) != self.replaces {
            return Ok(Effect::Unchanged);
        }
        value.clone_from(&self.value);
        Ok(Effect::Changed)
    }

    fn create(&self, _context: &Context<'_>) -> Result<Option<Bson>, Failure> {
        Ok(Some(self.value.clone()))
    }
}
