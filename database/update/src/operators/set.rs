//! `$set` and `$setOnInsert`.

use std::sync::Arc;

use bson::Bson;
use millrace_value::Result;

use super::{Context, Effect, Failure, Modifier, Operand};
use crate::identical::identical;
use crate::trail::Trail;

#[derive(Debug)]
struct Set {
    value: Bson,
    only_on_insert: bool,
}

pub(super) fn parse(operand: &Operand<'_>) -> Result<Arc<dyn Modifier>> {
    Ok(Arc::new(Set {
        value: operand.value.clone(),
        only_on_insert: false,
    }))
}

pub(super) fn parse_on_insert(operand: &Operand<'_>) -> Result<Arc<dyn Modifier>> {
    Ok(Arc::new(Set {
        value: operand.value.clone(),
        only_on_insert: true,
    }))
}

impl Set {
    const fn is_active(&self, context: &Context<'_>) -> bool {
        context.is_insert || !self.only_on_insert
    }
}

impl Modifier for Set {
    fn modify(
        &self,
        value: &mut Bson,
        _trail: &Trail<'_>,
        context: &Context<'_>,
    ) -> Result<Effect, Failure> {
        if !self.is_active(context) || identical(value, &self.value) {
            return Ok(Effect::Unchanged);
        }
        value.clone_from(&self.value);
        Ok(Effect::Changed)
    }

    fn create(&self, context: &Context<'_>) -> Result<Option<Bson>, Failure> {
        Ok(self.is_active(context).then(|| self.value.clone()))
    }

    fn accepts_blocked_path(&self, context: &Context<'_>) -> bool {
        !self.is_active(context)
    }
}
