//! The condition of a partial index.

use bson::raw::RawBsonRef;
use bson::{Document, RawDocument, RawDocumentBuf};
use millrace_expression::Scope;
use millrace_matcher::{Comparison, Leaf, Matcher, Node, Predicate, compare, contains, walk};
use millrace_value::{Collation, Error, ErrorCode, Result, document_text};

/// Decides which documents are in a partial index. It uses only the part of the query language whose
/// answer depends on the document alone, so that it needs no running operation: comparisons, `$in`,
/// `$exists: true`, `$type`, joined by `$and` and `$or`.
#[derive(Clone, Debug)]
pub(super) struct PartialFilter {
    matcher: Matcher,
}

impl PartialFilter {
    /// Parses a `partialFilterExpression`, whose strings are compared by the index's collation.
    ///
    /// # Errors
    /// Those of filters, and `CannotCreateIndex` for what a partial index cannot be made of.
    pub(super) fn parse(filter: &Document, collation: Collation) -> Result<Self> {
        let raw = RawDocumentBuf::try_from(filter)?;
        let matcher = Matcher::parse(&raw, &Scope::new(collation))?;
        if !is_supported(matcher.root()) {
            return Err(Error::new(
                ErrorCode::CannotCreateIndex,
                format!(
                    "Expression not supported in partial index: {}",
                    document_text(filter)
                ),
            ));
        }
        Ok(Self { matcher })
    }

    /// Whether `document` satisfies the condition.
    ///
    /// # Errors
    /// `InvalidBSON`.
    pub(super) fn holds(&self, document: &RawDocument) -> Result<bool> {
        node_holds(self.matcher.root(), document, self.matcher.collation())
    }
}

fn is_supported(node: &Node) -> bool {
    match node {
        Node::And(nodes) | Node::Or(nodes) => nodes.iter().all(is_supported),
        Node::Path { predicate, .. } => match predicate {
            Predicate::In { regexes, .. } => regexes.is_empty(),
            // Which predicates are supported is the same for all collations.
            predicate => predicate_holds(predicate, None, Collation::SIMPLE).is_some(),
        },
        Node::AlwaysTrue => true,
        _ => false,
    }
}

fn node_holds(node: &Node, document: &RawDocument, collation: Collation) -> Result<bool> {
    match node {
        Node::And(nodes) => {
            for node in nodes {
                if !node_holds(node, document, collation)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        Node::Or(nodes) => {
            for node in nodes {
                if node_holds(node, document, collation)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Node::Path { path, predicate } => walk(
            document,
            path.components(),
            Leaf::Elements,
            &mut |value, _| Ok(predicate_holds(predicate, value, collation).unwrap_or(false)),
        ),
        // `parse` lets nothing else through but what is always true.
        node => Ok(matches!(node, Node::AlwaysTrue)),
    }
}

/// Whether `value` (`None`: missing) satisfies `predicate`; `None` if that is not supported here.
fn predicate_holds(
    predicate: &Predicate,
    value: Option<RawBsonRef<'_>>,
    collation: Collation,
) -> Option<bool> {
    Some(match predicate {
        Predicate::Equal(operand) => compare(Comparison::Equal, value, operand, collation),
        Predicate::Less(operand) => compare(Comparison::Less, value, operand, collation),
        Predicate::LessOrEqual(operand) => {
            compare(Comparison::LessOrEqual, value, operand, collation)
        }
        Predicate::Greater(operand) => compare(Comparison::Greater, value, operand, collation),
        Predicate::GreaterOrEqual(operand) => {
            compare(Comparison::GreaterOrEqual, value, operand, collation)
        }
        Predicate::In { values, .. } => contains(values, value, collation),
        Predicate::Exists => value.is_some(),
        Predicate::Type(types) => value.is_some_and(|value| types.contains(value.element_type())),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn decides() {
        for (filter, document, expected) in [
            (doc! {}, doc! {}, true),
            (doc! {"a": 1}, doc! {"a": 1.0}, true),
            (doc! {"a": 1}, doc! {"a": [0, 1]}, true),
            (doc! {"a": 1}, doc! {"a": 2}, false),
            (
                doc! {"a.b": {"$gt": 5}},
                doc! {"a": [{"b": 1}, {"b": 6}]},
                true,
            ),
            (doc! {"a": {"$gt": 5}}, doc! {"a": "x"}, false),
            (doc! {"a": {"$gte": 1, "$lt": 3}}, doc! {"a": 3}, false),
            (doc! {"a": {"$exists": true}}, doc! {"a": null}, true),
            (doc! {"a": {"$exists": true}}, doc! {"b": 1}, false),
            (doc! {"a": {"$type": "string"}}, doc! {"a": "x"}, true),
            (doc! {"a": {"$type": "string"}}, doc! {"a": 1}, false),
            (doc! {"a": {"$in": [1, 2]}}, doc! {"a": 2}, true),
            (doc! {"a": {"$in": [1, 2]}}, doc! {"a": 3}, false),
            (doc! {"a": null}, doc! {}, true),
            (doc! {"$or": [{"a": 1}, {"b": 1}]}, doc! {"b": 1}, true),
            (doc! {"$and": [{"a": 1}, {"b": 1}]}, doc! {"b": 1}, false),
        ] {
            let raw = RawDocumentBuf::try_from(&document).unwrap();
            let holds = PartialFilter::parse(&filter, Collation::SIMPLE)
                .unwrap()
                .holds(&raw)
                .unwrap();
            assert_eq!(holds, expected, "{filter} on {document}");
        }
    }

    #[test]
    fn refuses_what_cannot_be_indexed() {
        for filter in [
            doc! {"a": {"$exists": false}},
            doc! {"a": {"$ne": 1}},
            doc! {"a": {"$not": {"$gt": 1}}},
            doc! {"a": {"$regex": "x"}},
            doc! {"a": {"$in": [bson::Regex { pattern: bson::cstr!("x").into(), options: bson::cstr!("").into() }]}},
            doc! {"a": {"$size": 1}},
            doc! {"a": {"$mod": [2, 0]}},
            doc! {"$nor": [{"a": 1}]},
            doc! {"$expr": {"$eq": ["$a", 1]}},
            doc! {"$and": [{"a": 1}, {"b": {"$elemMatch": {"c": 1}}}]},
        ] {
            let error = PartialFilter::parse(&filter, Collation::SIMPLE).unwrap_err();
            assert_eq!(error.code(), ErrorCode::CannotCreateIndex, "{filter}");
        }
        let error = PartialFilter::parse(&doc! {"a": {"$what": 1}}, Collation::SIMPLE).unwrap_err();
        assert_eq!(error.code(), ErrorCode::BadValue);
    }
}
