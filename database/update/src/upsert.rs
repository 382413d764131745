//! The document that an upsert starts from: what its query says must be equal.

use bson::{Bson, Document, RawBson};
use millrace_matcher::{Node, Predicate};
use millrace_value::{Error, ErrorCode, Path, Result};

/// The document whose fields are those that `query` requires to equal a value.
///
/// Conditions below `$and` count; below `$or` only if there is one branch.
///
/// # Errors
/// `NotSingleValueField` if two conditions concern the same path or one leads to the other; 224
/// (`QueryFeatureNotAllowed`) for `$expr`, from which no equalities can be derived.
pub fn upsert_base(query: &Node) -> Result<Document> {
    let mut equalities = Vec::new();
    collect(query, &mut equalities)?;
    build(&equalities)
}

/// The same for a replacement: of the query, only `_id` goes into the new document.
///
/// # Errors
/// As [`upsert_base`], but only about `_id`; `NotExactValueField` (111) if the query knows only a part
/// of it.
pub(super) fn replacement_base(query: &Node) -> Result<Document> {
    let mut equalities = Vec::new();
    collect(query, &mut equalities)?;
    equalities.retain(|(path, _)| path.first() == "_id");
    if let Some((path, _)) = equalities.iter().find(|(path, _)| path.len() > 1) {
        return Err(Error::location(
            111,
            format!("field at '_id' must be exactly specified, field at sub-path '{path}'found"),
        ));
    }
    build(&equalities)
}

fn build(equalities: &[(&Path, &RawBson)]) -> Result<Document> {
    check_distinct(equalities)?;
    let mut document = Document::new();
    for (path, value) in equalities {
        insert(&mut document, path, value)?;
    }
    Ok(document)
}

fn collect<'q>(node: &'q Node, equalities: &mut Vec<(&'q Path, &'q RawBson)>) -> Result<()> {
    match node {
        Node::And(nodes) => nodes.iter().try_for_each(|node| collect(node, equalities)),
        Node::Or(nodes) => match nodes.as_slice() {
            [node] => collect(node, equalities),
            _ => Ok(()),
        },
        Node::Path { path, predicate } => {
            match predicate {
                Predicate::Equal(value) => equalities.push((path, value)),
                Predicate::In { values, regexes } if regexes.is_empty() && values.len() == 1 => {
                    equalities.push((path, &values[0]));
                }
                _ => {}
            }
            Ok(())
        }
        Node::Expression(_) => Err(Error::location(
            224,
            "$expr is not allowed in the query predicate for an upsert",
        )),
        _ => Ok(()),
    }
}

/// Checks that no two paths lead to the same place or through each other.
fn check_distinct(equalities: &[(&Path, &RawBson)]) -> Result<()> {
    let mut paths: Vec<&Path> = equalities.iter().map(|(path, _)| *path).collect();
    // A path comes right before those that it leads to.
    paths.sort();
    for pair in paths.windows(2) {
        if pair[0].is_prefix_of(pair[1]) {
            return Err(matched_twice(pair[1], pair[0]));
        }
    }
    Ok(())
}

/// Puts `value` at `path`, where nothing is yet.
fn insert(document: &mut Document, path: &Path, value: &RawBson) -> Result<()> {
    let components = path.components();
    let (last, way) = components
        .split_last()
        .expect("invariant: a path has a component");
    let mut holder = document;
    for component in way {
        let inner = holder
            .entry(&**component)
            .or_insert_with(|| Bson::Document(Document::new()));
        let Bson::Document(inner) = inner else {
            unreachable!("invariant: no path leads through the value of another");
        };
        holder = inner;
    }
    holder.insert(&**last, Bson::try_from(value.clone())?);
    Ok(())
}

fn matched_twice(path: &Path, other: &Path) -> Error {
    let problem = if path == other {
        format!("path '{path}' is matched twice")
    } else {
        format!("both paths '{path}' and '{other}' are matched")
    };
    let message = format!("cannot infer query fields to set, {problem}");
    Error::new(ErrorCode::NotSingleValueField, message)
}
