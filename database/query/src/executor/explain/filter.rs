//! Filters as `explain` shows them.

use bson::spec::ElementType;
use bson::{Bson, Document, RawBson, doc};
use millrace_expression::regex::Regex;
use millrace_matcher::{Node, Predicate};
use millrace_value::{Path, TypeSet};

/// A filter with its operators spelt out; none if it has a condition that cannot be shown from its
/// parsed form.
pub(super) fn shown(node: &Node) -> Option<Document> {
    Some(match node {
        Node::And(nodes) if nodes.is_empty() => Document::new(),
        Node::And(nodes) => doc! { "$and": all(nodes)? },
        Node::Or(nodes) => doc! { "$or": all(nodes)? },
        Node::Nor(nodes) => doc! { "$nor": all(nodes)? },
        Node::Not(inner) => match &**inner {
            Node::Path { path, predicate } => {
                doc! { path.to_string(): { "$not": operators(predicate)? } }
            }
            other => doc! { "$nor": [shown(other)?] },
        },
        Node::Path { path, predicate } => at(path, operators(predicate)?),
        Node::AlwaysTrue => doc! { "$alwaysTrue": 1 },
        Node::AlwaysFalse => doc! { "$alwaysFalse": 1 },
        Node::SampleRate(rate) => doc! { "$sampleRate": *rate },
        Node::Expression(_) | Node::JsonSchema(_) => return None,
    })
}

fn all(nodes: &[Node]) -> Option<Vec<Bson>> {
    nodes
        .iter()
        .map(|node| shown(node).map(Bson::Document))
        .collect()
}

fn at(path: &Path, operators: Document) -> Document {
    doc! { path.to_string(): operators }
}

/// A predicate as a document of operators.
fn operators(predicate: &Predicate) -> Option<Document> {
    Some(match predicate {
        Predicate::Equal(operand) => doc! { "$eq": owned(operand)? },
        Predicate::Less(operand) => doc! { "$lt": owned(operand)? },
        Predicate::LessOrEqual(operand) => doc! { "$lte": owned(operand)? },
        Predicate::Greater(operand) => doc! { "$gt": owned(operand)? },
        Predicate::GreaterOrEqual(operand) => doc! { "$gte": owned(operand)? },
        Predicate::In { values, regexes } => {
            let mut list = values.iter().map(owned).collect::<Option<Vec<_>>>()?;
            for regex in regexes {
                list.push(stored(regex)?);
            }
            doc! { "$in": list }
        }
        Predicate::Regex(regex) => {
            let mut shown = doc! { "$regex": regex.pattern() };
            if !regex.options().is_empty() {
                shown.insert("$options", regex.options());
            }
            shown
        }
        Predicate::Exists => doc! { "$exists": true },
        Predicate::Type(types) => doc! { "$type": type_numbers(*types) },
        Predicate::Size(size) => doc! { "$size": i64::try_from(*size).ok()? },
        Predicate::ElementMatchObject(node) => doc! { "$elemMatch": shown(node)? },
        Predicate::ElementMatchValue(predicates) => {
            let mut inner = Document::new();
            for predicate in predicates {
                inner.extend(operators(predicate)?);
            }
            doc! { "$elemMatch": inner }
        }
        Predicate::Not(predicates) => {
            let mut inner = Document::new();
            for predicate in predicates {
                inner.extend(operators(predicate)?);
            }
            doc! { "$not": inner }
        }
        Predicate::Modulus(_) | Predicate::Bits(_) => return None,
    })
}

fn owned(operand: &RawBson) -> Option<Bson> {
    Bson::try_from(operand.as_raw_bson_ref()).ok()
}

fn stored(regex: &Regex) -> Option<Bson> {
    Some(Bson::RegularExpression(bson::Regex {
        pattern: regex.pattern().to_owned().try_into().ok()?,
        options: regex.options().to_owned().try_into().ok()?,
    }))
}

/// The numbers of the types, as BSON has them; MinKey is -1.
fn type_numbers(types: TypeSet) -> Vec<Bson> {
    (0..=u8::MAX)
        .filter_map(|number| ElementType::from(number).map(|element_type| (number, element_type)))
        .filter(|(_, element_type)| types.contains(*element_type))
        .map(|(number, _)| {
            Bson::Int32(if number == u8::MAX {
                -1
            } else {
                i32::from(number)
            })
        })
        .collect()
}
