//! `$addToSet`.

use std::collections::HashSet;
use std::sync::Arc;

use bson::Bson;
use millrace_value::{Collation, Error, ErrorCode, Result, document_text, type_alias};

use super::{Context, Effect, Failure, Modifier, Operand, bad_value};
use crate::trail::Trail;

/// Up to so many new values, each is compared with the elements; for more, a table is built first.
const COMPARE_MAX: usize = 4;

#[derive(Debug)]
struct AddToSet {
    /// No two of them are equal.
    values: Vec<Bson>,
}

pub(super) fn parse(operand: &Operand<'_>) -> Result<Arc<dyn Modifier>> {
    let each = match operand.value {
        Bson::Document(fields) => fields
            .iter()
            .next()
            .filter(|(name, _)| *name == "$each")
            .map(|(_, each)| (fields, each)),
        _ => None,
    };
    let Some((fields, each)) = each else {
        return Ok(Arc::new(AddToSet {
            values: vec![operand.value.clone()],
        }));
    };
    let Bson::Array(each) = each else {
        return Err(Error::new(
            ErrorCode::TypeMismatch,
            format!(
                "The argument to $each in $addToSet must be an array but it was of type {}",
                type_alias(each)
            ),
        ));
    };
    if fields.len() > 1 {
        return Err(bad_value(format!(
            "Found unexpected fields after $each in $addToSet: {}",
            document_text(fields)
        )));
    }
    let (mut seen, collation) = (HashSet::new(), operand.scope.collation());
    let values = each
        .iter()
        .filter(|value| seen.insert(collation.equality_key(value)))
        .cloned()
        .collect();
    Ok(Arc::new(AddToSet { values }))
}

impl AddToSet {
    /// The values that are not in `array`.
    fn missing_from(&self, array: &[Bson], collation: Collation) -> Vec<Bson> {
        let is_equal = |a: &Bson, b: &Bson| collation.compare_bson(a, b).is_eq();
        let new = self.values.iter();
        if self.values.len() <= COMPARE_MAX {
            return new
                .filter(|value| !array.iter().any(|e| is_equal(e, value)))
                .cloned()
                .collect();
        }
        let key = |value| collation.equality_key(value);
        let present: HashSet<Vec<u8>> = array.iter().map(key).collect();
        new.filter(|value| !present.contains(&key(value)))
            .cloned()
            .collect()
    }
}

impl Modifier for AddToSet {
    fn modify(
        &self,
        value: &mut Bson,
        trail: &Trail<'_>,
        context: &Context<'_>,
    ) -> Result<Effect, Failure> {
        let Bson::Array(array) = value else {
            return Err(Failure::Final(bad_value(format!(
                "Cannot apply $addToSet to a non-array field. Field named '{}' has a non-array \
                 type {}",
                trail.name(),
                type_alias(value)
            ))));
        };
        let mut missing = self.missing_from(array, context.evaluation.collation);
        if missing.is_empty() {
            return Ok(Effect::Unchanged);
        }
        array.append(&mut missing);
        Ok(Effect::Changed)
    }

    fn create(&self, _context: &Context<'_>) -> Result<Option<Bson>, Failure> {
        Ok(Some(Bson::Array(self.values.clone())))
    }
}
