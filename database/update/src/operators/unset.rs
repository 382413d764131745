//! `$unset`.

use std::sync::Arc;

use bson::Bson;
use millrace_value::Result;

use super::{Context, Effect, Failure, Modifier, Operand};
use crate::trail::Trail;

#[derive(Debug)]
struct Unset;

/// The value beside the path means nothing.
pub(super) fn parse(_operand: &Operand<'_>) -> Result<Arc<dyn Modifier>> {
    Ok(Arc::new(Unset))
}

impl Modifier for Unset {
    fn modify(
        &self,
        _value: &mut Bson,
        _trail: &Trail<'_>,
        _context: &Context<'_>,
    ) -> Result<Effect, Failure> {
        Ok(Effect::Removed)
    }

    fn create(&self, _context: &Context<'_>) -> Result<Option<Bson>, Failure> {
        Ok(None)
    }

    fn accepts_blocked_path(&self, _context: &Context<'_>) -> bool {
        true
    }
}
