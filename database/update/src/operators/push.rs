//! `$push`.

use std::sync::Arc;

use bson::{Bson, Document};
use millrace_value::{Collation, ErrorCode, Result, type_alias};

use super::push_sort::ElementOrder;
use super::{Context, Effect, Failure, Modifier, Operand, bad_value, parse_integer};
use crate::trail::Trail;

/// Puts values into an array, then sorts it, then cuts it.
#[derive(Debug)]
struct Push {
    values: Vec<Bson>,
    /// Where the values come: counted from the end if negative; `None` for the end.
    position: Option<i64>,
    sort: Option<ElementOrder>,
    /// How many elements remain: the first ones, or the last ones if negative.
    slice: Option<i64>,
}

pub(super) fn parse(operand: &Operand<'_>) -> Result<Arc<dyn Modifier>> {
    if let Bson::Document(clauses) = operand.value {
        if clauses.contains_key("$each") {
            return Ok(Arc::new(parse_clauses(clauses)?));
        }
    }
    let values = vec![operand.value.clone()];
    Ok(Arc::new(Push {
        values,
        position: None,
        sort: None,
        slice: None,
    }))
}

fn parse_clauses(clauses: &Document) -> Result<Push> {
    let mut push = Push {
        values: Vec::new(),
        position: None,
        sort: None,
        slice: None,
    };
    for (name, value) in clauses {
        match name.as_str() {
            "$each" => {
                let Bson::Array(values) = value else {
                    return Err(bad_value(format!(
                        "The argument to $each in $push must be an array but it was of type: {}",
                        type_alias(value)
                    )));
                };
                push.values.clone_from(values);
            }
            "$position" => {
                push.position = Some(parse_integer(name, value).map_err(|_| {
                    bad_value(format!(
                        "The value for $position must be an integer value, not of type: {}",
                        type_alias(value)
                    ))
                })?);
            }
            "$slice" => {
                push.slice = Some(parse_integer(name, value).map_err(|_| {
                    bad_value(format!(
                        "The value for $slice must be an integer value but was given type: {}",
                        type_alias(value)
                    ))
                })?);
            }
            "$sort" => push.sort = Some(ElementOrder::parse(value)?),
            _ => return Err(bad_value(format!("Unrecognized clause in $push: {name}"))),
        }
    }
    Ok(push)
}

/// A signed count without its sign; one that does not fit is beyond any array.
fn magnitude(count: i64) -> usize {
    usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX)
}

impl Push {
    /// Where in an array of `length` elements the values come.
    fn insertion_point(&self, length: usize) -> usize {
        match self.position {
            None => length,
            Some(position) if position >= 0 => magnitude(position).min(length),
            Some(position) => length.saturating_sub(magnitude(position)),
        }
    }

    fn push(&self, array: &mut Vec<Bson>, collation: Collation) {
        let at = self.insertion_point(array.len());
        array.splice(at..at, self.values.iter().cloned());
        if let Some(order) = &self.sort {
            order.sort(array, collation);
        }
        let Some(slice) = self.slice else { return };
        let kept = magnitude(slice).min(array.len());
        if slice >= 0 {
            array.truncate(kept);
        } else {
            array.drain(..array.len() - kept);
        }
    }
}

impl Modifier for Push {
    fn modify(
        &self,
        value: &mut Bson,
        trail: &Trail<'_>,
        context: &Context<'_>,
    ) -> Result<Effect, Failure> {
        let Bson::Array(array) = value else {
            return Err(Failure::Naming {
                code: ErrorCode::BadValue,
                head: format!(
                    "The field '{trail}' must be an array but is of type {} in document ",
                    type_alias(value)
                ),
                tail: String::new(),
            });
        };
        if self.values.is_empty() && self.sort.is_none() && self.slice.is_none() {
            return Ok(Effect::Unchanged);
        }
        self.push(array, context.evaluation.collation);
        Ok(Effect::Changed)
    }

    fn create(&self, context: &Context<'_>) -> Result<Option<Bson>, Failure> {
        let mut array = Vec::new();
        self.push(&mut array, context.evaluation.collation);
        Ok(Some(Bson::Array(array)))
    }
}
