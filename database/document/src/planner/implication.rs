//! Whether every document that a query finds is in a sparse or partial index.

use bson::Bson;

use super::bounds::{self, Tightness};
use super::term::{self, Term};
use crate::Result;
use crate::catalog::Index;
use crate::expression::Scope;
use crate::matcher::{Matcher, Node, Predicate};
use crate::value::Path;

/// Whether an index holds a key of every document that satisfies all of `conjuncts`, whose terms are
/// `terms`.
pub(crate) fn index_is_complete(
    index: &Index,
    conjuncts: &[&Node],
    terms: &[Term],
) -> Result<bool> {
    if let Some(filter) = &index.spec.partial_filter {
        let filter = bson::RawDocumentBuf::try_from(filter)?;
        let condition = Matcher::parse(&filter, &Scope::default())?;
        if !implies(conjuncts, condition.root())? {
            return Ok(false);
        }
    }
    // A sparse index has the documents that have at least one of its fields.
    Ok(!index.spec.sparse
        || index.spec.fields.iter().any(|field| {
            terms
                .iter()
                .any(|term| term.path == field.path && requires_value(term))
                || conjuncts
                    .iter()
                    .any(|node| demands_existence(node, &field.path))
        }))
}

fn requires_value(term: &Term) -> bool {
    !term.bounds(true).0.contains(&Bson::Null)
}

fn demands_existence(node: &Node, wanted: &Path) -> bool {
    matches!(node, Node::Path { path, predicate: Predicate::Exists } if path == wanted)
}

/// Whether every document that satisfies all of `conjuncts` satisfies `condition`. Says no when in
/// doubt.
fn implies(conjuncts: &[&Node], condition: &Node) -> Result<bool> {
    match condition {
        Node::And(nodes) => {
            for node in nodes {
                if !implies(conjuncts, node)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        Node::Or(nodes) => {
            for node in nodes {
                if implies(conjuncts, node)? {
                    return Ok(true);
                }
            }
            alternatives_imply(conjuncts, condition)
        }
        Node::AlwaysTrue => Ok(true),
        Node::Path { path, predicate } => {
            for conjunct in conjuncts {
                if let Node::Path {
                    path: given_path,
                    predicate: given,
                } = conjunct
                {
                    if given_path == path && predicate_implies(given, predicate)? {
                        return Ok(true);
                    }
                }
            }
            alternatives_imply(conjuncts, condition)
        }
        _ => Ok(false),
    }
}

/// Whether a disjunction among `conjuncts` satisfies `condition` by each of its alternatives.
fn alternatives_imply(conjuncts: &[&Node], condition: &Node) -> Result<bool> {
    for conjunct in conjuncts {
        let Node::Or(alternatives) = conjunct else {
            continue;
        };
        let mut all = !alternatives.is_empty();
        for alternative in alternatives {
            let mut parts = Vec::new();
            term::flatten(alternative, &mut parts);
            all = all && implies(&parts, condition)?;
        }
        if all {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a value that satisfies `given` always satisfies `wanted`.
fn predicate_implies(given: &Predicate, wanted: &Predicate) -> Result<bool> {
    let Some((given_set, _)) = bounds::of_predicate(given)? else {
        return Ok(matches!(
            (given, wanted),
            (Predicate::Exists, Predicate::Exists)
        ));
    };
    match wanted {
        Predicate::Exists => Ok(!given_set.contains(&Bson::Null)),
        _ => match bounds::of_predicate(wanted)? {
            // The same value that satisfies the one satisfies the other.
            Some((wanted_set, Tightness::Exact)) => Ok(given_set.is_subset_of(&wanted_set)),
            _ => Ok(same_equality(given, wanted)),
        },
    }
}

fn same_equality(given: &Predicate, wanted: &Predicate) -> bool {
    match (given, wanted) {
        (Predicate::Equal(given), Predicate::Equal(wanted)) => {
            crate::value::compare(given.as_raw_bson_ref(), wanted.as_raw_bson_ref()).is_eq()
        }
        (Predicate::Type(given), Predicate::Type(wanted)) => given == wanted,
        _ => false,
    }
}
