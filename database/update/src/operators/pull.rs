//! `$pull` and `$pullAll`.

use std::collections::HashSet;
use std::sync::Arc;

use bson::Bson;
use millrace_matcher::ElementMatcher;
use millrace_value::{Collation, Result, type_alias};

use super::{Context, Effect, Failure, Modifier, Operand, bad_value};
use crate::trail::Trail;

/// Takes elements out of an array.
#[derive(Debug)]
enum Pull {
    /// Those that meet a condition.
    Matching(ElementMatcher),
    /// Those that equal a value.
    Equal(Bson),
    /// Those that equal one of some values, given by their [equality key](Collation::equality_key).
    AnyOf(HashSet<Vec<u8>>),
}

pub(super) fn parse(operand: &Operand<'_>) -> Result<Arc<dyn Modifier>> {
    Ok(Arc::new(match operand.value {
        condition @ (Bson::Document(_) | Bson::RegularExpression(_)) => {
            Pull::Matching(ElementMatcher::parse(condition, operand.scope)?)
        }
        value => Pull::Equal(value.clone()),
    }))
}

pub(super) fn parse_all(operand: &Operand<'_>) -> Result<Arc<dyn Modifier>> {
    let Bson::Array(values) = operand.value else {
        return Err(bad_value(format!(
            "$pullAll requires an array argument but was given a {}",
            type_alias(operand.value)
        )));
    };
    let collation = operand.scope.collation();
    let keys = values.iter().map(|value| collation.equality_key(value));
    Ok(Arc::new(Pull::AnyOf(keys.collect())))
}

impl Pull {
    fn takes(&self, element: &Bson, context: &Context<'_>) -> Result<bool> {
        let collation: Collation = context.evaluation.collation;
        match self {
            Self::Matching(matcher) => matcher.matches(element, context.evaluation),
            Self::Equal(value) => Ok(collation.compare_bson(value, element).is_eq()),
            Self::AnyOf(keys) => {
                Ok(!keys.is_empty() && keys.contains(&collation.equality_key(element)))
            }
        }
    }
}

impl Modifier for Pull {
    fn modify(
        &self,
        value: &mut Bson,
        _trail: &Trail<'_>,
        context: &Context<'_>,
    ) -> Result<Effect, Failure> {
        let Bson::Array(array) = value else {
            return Err(Failure::Final(bad_value(
                "Cannot apply $pull to a non-array value",
            )));
        };
        let mut taken = Vec::with_capacity(array.len());
        for element in array.iter() {
            context.evaluation.operation.check()?;
            taken.push(self.takes(element, context)?);
        }
        if !taken.contains(&true) {
            return Ok(Effect::Unchanged);
        }
        let mut taken = taken.into_iter();
        array.retain(|_| taken.next() == Some(false));
        Ok(Effect::Changed)
    }

    fn create(&self, _context: &Context<'_>) -> Result<Option<Bson>, Failure> {
        Ok(None)
    }
}
