//! The update operators: one table, one small file a family.
//!
//! To add an operator, implement [`Modifier`] and add a row to [`OPERATORS`].

mod add_to_set;
mod arithmetic;
mod bit;
mod current_date;
mod extremum;
mod pop;
mod pull;
mod push;
mod push_sort;
mod set;
mod unset;

#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::sync::Arc;

use bson::{Bson, Document};
use millrace_expression::{EvaluationContext, Scope};
use millrace_value::{Error, ErrorCode, Number, Result};

use super::text;
use super::trail::Trail;

/// What an operator does to one value.
///
/// Operators are parsed once and applied to many documents.
pub(super) trait Modifier: Debug + Send + Sync {
    /// Changes a value that exists.
    fn modify(
        &self,
        value: &mut Bson,
        trail: &Trail<'_>,
        context: &Context<'_>,
    ) -> Result<Effect, Failure>;

    /// The value of a path that does not exist yet; `None` leaves it so.
    fn create(&self, context: &Context<'_>) -> Result<Option<Bson>, Failure>;

    /// Whether it is fine that the path cannot exist, because it leads through a value that can have
    /// no fields. For most operators that is an error.
    fn accepts_blocked_path(&self, _context: &Context<'_>) -> bool {
        false
    }
}

/// What operators may know besides the value.
#[derive(Clone, Copy)]
pub(super) struct Context<'c> {
    /// Whether the document is about to be inserted by an upsert.
    pub(super) is_insert: bool,
    /// The array position that the query matched, for `$`.
    pub(super) matched_index: Option<usize>,
    pub(super) evaluation: &'c EvaluationContext<'c>,
}

/// What happened to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Unchanged,
    Changed,
    /// The value is to be taken out of its document; in an array, null takes its place.
    Removed,
}

/// Why an operator failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// This is the error.
    Final(Error),
    /// The message names the document: it consists of `head`, the document's `_id`, and `tail`.
    Naming {
        code: ErrorCode,
        head: String,
        tail: String,
    },
}

impl Failure {
    /// The error, now that the document is known.
    pub(super) fn resolve(self, document: &Document) -> Error {
        match self {
            Self::Final(error) => error,
            Self::Naming { code, head, tail } => Error::new(
                code,
                format!("{head}{{{}}}{tail}", text::identity(document)),
            ),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Final(error)
    }
}

/// How the value beside a path in an update becomes an operator.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Modifier(fn(&Operand<'_>) -> Result<Arc<dyn Modifier>>),
    /// `$rename` concerns two paths, so it is not a [`Modifier`].
    Rename,
}

/// The value that an update has beside a path.
pub(super) struct Operand<'o> {
    pub(super) path: &'o str,
    pub(super) value: &'o Bson,
    pub(super) scope: &'o Scope,
}

/// All operators by name.
const OPERATORS: &[(&str, Kind)] = &[
    ("$addToSet", Kind::Modifier(add_to_set::parse)),
    ("$bit", Kind::Modifier(bit::parse)),
    ("$currentDate", Kind::Modifier(current_date::parse)),
    ("$inc", Kind::Modifier(arithmetic::parse_inc)),
    ("$max", Kind::Modifier(extremum::parse_max)),
    ("$min", Kind::Modifier(extremum::parse_min)),
    ("$mul", Kind::Modifier(arithmetic::parse_mul)),
    ("$pop", Kind::Modifier(pop::parse)),
    ("$pull", Kind::Modifier(pull::parse)),
    ("$pullAll", Kind::Modifier(pull::parse_all)),
    ("$push", Kind::Modifier(push::parse)),
    ("$rename", Kind::Rename),
    ("$set", Kind::Modifier(set::parse)),
    ("$setOnInsert", Kind::Modifier(set::parse_on_insert)),
    ("$unset", Kind::Modifier(unset::parse)),
];

/// The operator of this name.
pub(super) fn find(name: &str) -> Option<Kind> {
    OPERATORS
        .iter()
        .find(|(candidate, _)| *candidate == name)
        .map(|(_, kind)| *kind)
}

fn bad_value(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::BadValue, message)
}

/// The integer that `value` is, whatever its numeric type.
fn parse_integer(name: &str, value: &Bson) -> Result<i64> {
    let problem = match Number::from_bson(value) {
        None => "Expected a number in",
        Some(number) if number.is_nan() => "Expected an integer, but found NaN in",
        Some(number) => match number.as_i64_exact() {
            Some(integer) => return Ok(integer),
            None if number.is_infinite() || number.as_f64().abs() >= TWO_POW_63 => {
                "Cannot represent as a 64-bit integer"
            }
            None => "Expected an integer",
        },
    };
    let message = format!("{problem}: {}", text::element(name, value));
    Err(Error::new(ErrorCode::FailedToParse, message))
}

/// The first double that no 64-bit integer equals.
const TWO_POW_63: f64 = 9_223_372_036_854_775_808.0;
