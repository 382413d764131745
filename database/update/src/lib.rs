//! Updates: what MongoDB's update operators, replacements and update pipelines make of a document.
//!
//! # How an update runs
//! ```text
//!   { $set: { "a.b": 1 } }   --parse-->  tree of paths, operators at its leaves
//!   { a: 1, b: 2 }           --parse-->  replacement
//!   [ { $set: ... } ]        --parse-->  pipeline of stages that keep one document one
//!
//!   document --apply--> document after it, whether it changed, and a description of the change
//! ```
//! An [`Update`] is parsed once and applied to many documents. Applying operators walks the tree and
//! the document together (`walk`), so that a document with a thousand fields of which one changes
//! costs little more than copying it.
//!
//! # The change
//! [`Outcome::change`] tells what differs afterwards, in a form that may be applied again and again
//! with the same result; see [`change`]. `modified` is false when the document is identical bit by
//! bit, whatever the update said.
//!
//! # Limits
//! Results over 16 MiB or nested deeper than 180 levels are refused. A path has at most 200
//! components, and a new array element at most 1,500,000 nulls before it.

#![forbid(unsafe_code)]

pub mod projection;

mod array_filters;
pub mod change;
mod identical;
mod modifiers;
mod operators;
mod path;
mod pipeline;
mod rename;
mod replacement;
mod storage;
#[cfg(test)]
mod tests;
mod text;
mod trail;
mod tree;
mod upsert;
mod walk;

use bson::{Bson, Document};
use millrace_expression::{EvaluationContext, Scope};
use millrace_matcher::{MatchDetails, Node};
use millrace_value::{Error, ErrorCode, Result};

use array_filters::ArrayFilters;
use change::compare_documents;
use modifiers::Modifiers;
use operators::Context;
use pipeline::UpdatePipeline;

pub use change::Change;
pub use pipeline::check_stage_names;
pub use upsert::upsert_base;

/// A parsed update, applied to one document after the other.
#[derive(Debug)]
pub struct Update {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Modifiers(Modifiers),
    /// `keeps_zero_timestamps`: zero timestamps are stored as they are instead of the present time.
    Replacement {
        document: Document,
        keeps_zero_timestamps: bool,
    },
    Pipeline(UpdatePipeline),
}

/// What an update made of a document.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The document after the update, equal to the one before if `modified` is false.
    pub document: Document,
    /// Whether it differs from the document before in any bit.
    pub modified: bool,
    /// What differs. For an upsert, whose document is logged as a whole, this is empty.
    pub change: Change,
}

impl Update {
    /// Parses an update: a document of operators, a replacement document or an array of stages.
    ///
    /// A document is a replacement unless its first field begins with a dollar. `scope` names the
    /// variables that stages and conditions may use.
    ///
    /// # Errors
    /// MongoDB's codes, among them `FailedToParse` for an unknown operator or an array filter that no
    /// path uses, `ConflictingUpdateOperators` for operators on overlapping paths, `EmptyFieldName`.
    pub fn parse(update: &Bson, array_filters: &[Document], scope: &Scope) -> Result<Self> {
        let filters = ArrayFilters::parse(array_filters, scope)?;
        let kind = match update {
            Bson::Array(_) if !filters.is_empty() => {
                return Err(Error::new(
                    ErrorCode::FailedToParse,
                    "arrayFilters may not be specified for pipeline-style updates",
                ));
            }
            Bson::Array(stages) => Kind::Pipeline(UpdatePipeline::parse(stages, scope)?),
            Bson::Document(document) => {
                if document
                    .keys()
                    .next()
                    .is_some_and(|first| first.starts_with('$'))
                {
                    Kind::Modifiers(Modifiers::parse(document, filters, scope)?)
                } else {
                    Kind::Replacement {
                        document: document.clone(),
                        keeps_zero_timestamps: false,
                    }
                }
            }
            _ => {
                return Err(Error::new(
                    ErrorCode::FailedToParse,
                    "Update argument must be either an object or an array",
                ));
            }
        };
        Ok(Self { kind })
    }

    /// Sets whether a replacement stores zero timestamps as they are (`bypassEmptyTsReplacement`) instead of the
    /// present time. Other updates store them as they are in any case.
    pub const fn keep_zero_timestamps(&mut self, keep: bool) {
        if let Kind::Replacement {
            keeps_zero_timestamps,
            ..
        } = &mut self.kind
        {
            *keeps_zero_timestamps = keep;
        }
    }

    /// Whether the update puts a whole document in the other's place.
    #[must_use]
    pub const fn is_replacement(&self) -> bool {
        matches!(self.kind, Kind::Replacement { .. })
    }

    /// Whether the update is a pipeline.
    #[must_use]
    pub const fn is_pipeline(&self) -> bool {
        matches!(self.kind, Kind::Pipeline(_))
    }

    /// The document that an upsert applies this update to: what `query` requires to be equal, for a
    /// replacement only the `_id` of that.
    ///
    /// # Errors
    /// As [`upsert_base`].
    pub fn upsert_base(&self, query: &Node) -> Result<Document> {
        match self.kind {
            Kind::Replacement { .. } => upsert::replacement_base(query),
            Kind::Modifiers(_) | Kind::Pipeline(_) => upsert_base(query),
        }
    }

    /// Applies the update to a document that stays as it is; see [`Update::apply_owned`].
    ///
    /// # Errors
    /// As [`Update::apply_owned`].
    pub fn apply(
        &self,
        document: &Document,
        details: Option<&MatchDetails>,
        insert: bool,
        evaluation: &EvaluationContext<'_>,
    ) -> Result<Outcome> {
        self.apply_owned(document.clone(), details, insert, evaluation)
    }

    /// Applies the update.
    ///
    /// `details` tells how the document matched the query, for the positional `$`. `insert` says that
    /// an upsert is about to insert the result: then `$setOnInsert` takes effect, and the `_id`, if
    /// the result has one, comes first.
    ///
    /// # Errors
    /// MongoDB's codes, among them `ImmutableField` if `_id` would change, `PathNotViable` if a path
    /// leads through a value without fields, `TypeMismatch` and `BadValue` if an operator does not fit
    /// a value, `BSONObjectTooLarge` and `Overflow` if the result is too large or nested too deep.
    pub fn apply_owned(
        &self,
        document: Document,
        details: Option<&MatchDetails>,
        insert: bool,
        evaluation: &EvaluationContext<'_>,
    ) -> Result<Outcome> {
        let outcome = match &self.kind {
            Kind::Modifiers(modifiers) => {
                let context = Context {
                    is_insert: insert,
                    matched_index: details.and_then(|details| details.array_index),
                    evaluation,
                };
                let mut document = document;
                let change = modifiers.apply(&mut document, context)?;
                Outcome {
                    modified: !change.is_empty(),
                    document,
                    change,
                }
            }
            Kind::Replacement {
                document: replacement,
                keeps_zero_timestamps,
            } => {
                let mut after = replacement.clone();
                if !keeps_zero_timestamps {
                    replacement::fill_timestamps(&mut after, evaluation);
                }
                let after = replacement::replace(&document, after)?;
                if replacement::is_noop(&document, &after) {
                    Outcome {
                        document: after,
                        modified: false,
                        change: Change::default(),
                    }
                } else {
                    let change = Change::Replacement(after.clone());
                    Outcome {
                        document: after,
                        modified: true,
                        change,
                    }
                }
            }
            Kind::Pipeline(pipeline) => {
                let after = pipeline.run(document.clone(), evaluation)?;
                let after = replacement::with_id_of(&document, after)?;
                let change = compare_documents(&document, &after);
                Outcome {
                    modified: !change.is_empty(),
                    document: after,
                    change,
                }
            }
        };
        outcome.finish(insert)
    }
}

impl Outcome {
    /// Checks the result and brings it into the form in which it is stored.
    fn finish(self, insert: bool) -> Result<Self> {
        if insert {
            storage::check(&self.document, true)?;
            let document = replacement::id_first(self.document);
            return Ok(Self {
                document,
                modified: true,
                change: Change::default(),
            });
        }
        if self.modified {
            storage::check(&self.document, false)?;
        }
        Ok(self)
    }
}
