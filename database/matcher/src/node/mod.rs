//! The tree a filter is parsed into.

mod evaluation;
mod predicate;

use millrace_expression::Expression;
use millrace_value::Path;

use crate::schema::Schema;

pub(crate) use evaluation::Evaluation;
pub use predicate::{Predicate, contains};

/// One condition on a document, possibly made of others. The planner reads it to find bounds.
///
/// `$ne`, `$nin` and `$exists: false` are a [`Node::Not`] around the positive condition; `$all` is a
/// [`Node::And`] of equalities on one path.
#[derive(Clone, Debug)]
pub enum Node {
    /// Every condition holds. An empty list matches everything.
    And(Vec<Node>),
    /// At least one condition holds.
    Or(Vec<Node>),
    /// None of the conditions holds.
    Nor(Vec<Node>),
    /// The condition does not hold.
    Not(Box<Node>),
    /// Some value the path leads to satisfies the predicate.
    Path {
        /// Where the values are.
        path: Path,
        /// What one of them satisfies.
        predicate: Predicate,
    },
    /// `$expr`: the expression's value is truthy.
    Expression(Box<Expression>),
    /// `$jsonSchema`: the document conforms.
    JsonSchema(Box<Schema>),
    /// `$sampleRate`: holds with this probability, drawn anew for each document.
    SampleRate(f64),
    /// Matches every document.
    AlwaysTrue,
    /// Matches no document.
    AlwaysFalse,
}

impl Node {
    /// The conjunction of `conditions`, without a level for a single one.
    pub(super) fn all_of(mut conditions: Vec<Self>) -> Self {
        match conditions.len() {
            1 => conditions.remove(0),
            _ => Self::And(conditions),
        }
    }

    /// Whether a value below the top-level field `field` is looked at by a condition. This is what
    /// a positional projection (`field.$`) requires of the query.
    #[must_use]
    pub fn looks_at(&self, field: &str) -> bool {
        match self {
            Self::And(nodes) | Self::Or(nodes) | Self::Nor(nodes) => {
                nodes.iter().any(|node| node.looks_at(field))
            }
            Self::Not(node) => node.looks_at(field),
            Self::Path { path, .. } => path.components().first().is_some_and(|c| **c == *field),
            Self::Expression(_)
            | Self::JsonSchema(_)
            | Self::SampleRate(_)
            | Self::AlwaysTrue
            | Self::AlwaysFalse => false,
        }
    }
}
