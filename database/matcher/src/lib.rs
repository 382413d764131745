//! Filters: MongoDB's query language, matched against raw documents.
//!
//! # Purpose
//! [`Matcher::parse`] turns a filter into a tree of [`Node`]s, which the planner reads to find index
//! bounds, and [`Matcher::matches`] decides on one document at a time.
//!
//! # Cost
//! Matching works on the bytes of the document: `{_id: X}` or `{a: 5}` is one scan over the fields
//! and allocates nothing. Only `$expr` makes a tree of the document, once for each document.
//!
//! # Semantics
//! `walk` yields the values a dotted path leads to, [`Predicate`] decides which of them count. A condition
//! on a path holds if *one* value satisfies it; a negation holds if none does.
//!
//! # Limits
//! Filters nest at most [`DEPTH_MAX`] levels. Regular expressions have a bounded effort, see
//! [`Regex`](millrace_expression::regex::Regex). `$where`, `$text` and the geospatial operators are refused.

#![forbid(unsafe_code)]

mod bits;
mod comparison;
mod depth;
mod details;
mod element;
mod integer;
mod modulus;
mod node;
mod operator;
mod parser;
mod schema;
#[cfg(test)]
mod tests;
mod walk;

use bson::RawDocument;
use millrace_expression::{EvaluationContext, Scope};
use millrace_value::{Collation, Result};

use node::Evaluation;
use parser::Parser;

pub use bits::{BitTest, BitTestKind};
pub use comparison::{Comparison, compare};
pub use depth::DEPTH_MAX;
pub use details::MatchDetails;
pub use element::ElementMatcher;
pub use modulus::Modulus;
pub use node::{Node, Predicate, contains};
pub use schema::Schema;
pub use walk::{Leaf, walk};

/// A parsed filter, applied to one document after the other.
#[derive(Clone, Debug)]
pub struct Matcher {
    root: Node,
    collation: Collation,
}

impl Matcher {
    /// Parses `filter`. `scope` names the variables that `$expr` may use, and the collation.
    ///
    /// # Errors
    /// MongoDB's codes and messages, mostly `BadValue`.
    pub fn parse(filter: &RawDocument, scope: &Scope) -> Result<Self> {
        Ok(Self {
            root: Parser::new(scope).filter(filter)?,
            collation: scope.collation(),
        })
    }

    /// A filter of conditions that must all hold, all parsed for `collation`.
    pub fn of_conditions(conditions: Vec<Node>, collation: Collation) -> Self {
        Self {
            root: Node::all_of(conditions),
            collation,
        }
    }

    /// The root of the tree of conditions, for the planner.
    #[must_use]
    pub const fn root(&self) -> &Node {
        &self.root
    }

    /// The rule by which the conditions compare strings.
    #[must_use]
    pub const fn collation(&self) -> Collation {
        self.collation
    }

    /// Whether `document` matches.
    ///
    /// # Errors
    /// Those of expressions (`$expr`), of an interrupted operation, of a regular expression that
    /// exceeds its limits, and `InvalidBSON` for bytes that are no document.
    pub fn matches(&self, document: &RawDocument, context: &EvaluationContext<'_>) -> Result<bool> {
        self.matches_recording(document, context, &mut MatchDetails::default())
    }

    /// Whether `document` matches, and how.
    ///
    /// # Errors
    /// As for [`Matcher::matches`].
    pub fn matches_recording(
        &self,
        document: &RawDocument,
        context: &EvaluationContext<'_>,
        details: &mut MatchDetails,
    ) -> Result<bool> {
        details.array_index = None;
        let context = EvaluationContext {
            collation: self.collation,
            ..*context
        };
        Evaluation::new(document, &context).node_matches(&self.root, document, details)
    }
}
