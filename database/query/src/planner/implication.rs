//! Whether every document that a query finds is in a sparse or partial index.

use bson::Bson;
use millrace_collection::Index;
use millrace_expression::Scope;
use millrace_matcher::{Matcher, Node, Predicate};
use millrace_value::{Collation, Path, Result};

use super::bounds::{self, Tightness};
use super::term::{self, Term};

/// Whether an index holds a key of every document that satisfies all of `conjuncts`, whose terms are
/// `terms`.
pub(crate) fn index_is_complete(
    index: &Index,
    conjuncts: &[&Node],
    terms: &[Term],
) -> Result<bool> {
    if let Some(filter) = &index.spec.partial_filter {
        let filter = bson::RawDocumentBuf::try_from(filter)?;
        let condition = Matcher::parse(&filter, &Scope::new(index.spec.collation))?;
        if !implies(conjuncts, condition.root(), condition.collation())? {
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

/// Whether every document that satisfies all of `conjuncts` satisfies `condition`, both parsed for
/// `collation`. Says no when in
/// doubt.
fn implies(conjuncts: &[&Node], condition: &Node, collation: Collation) -> Result<bool> {
    match condition {
        Node::And(nodes) => {
            for node in nodes {
                if !implies(conjuncts, node, collation)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        Node::Or(nodes) => {
            for node in nodes {
                if implies(conjuncts, node, collation)? {
                    return Ok(true);
                }
            }
            alternatives_imply(conjuncts, condition, collation)
        }
        Node::AlwaysTrue => Ok(true),
        Node::Path { path, predicate } => {
            for conjunct in conjuncts {
                if let Node::Path {
                    path: given_path,
                    predicate: given,
                } = conjunct
                {
                    if given_path == path && predicate_implies(given, predicate, collation)? {
                        return Ok(true);
                    }
                }
            }
            alternatives_imply(conjuncts, condition, collation)
        }
        _ => Ok(false),
    }
}

/// Whether a disjunction among `conjuncts` satisfies `condition` by each of its alternatives.
fn alternatives_imply(conjuncts: &[&Node], condition: &Node, collation: Collation) -> Result<bool> {
    for conjunct in conjuncts {
        let Node::Or(alternatives) = conjunct else {
            continue;
        };
        let mut all = !alternatives.is_empty();
        for alternative in alternatives {
            let mut parts = Vec::new();
            term::flatten(alternative, &mut parts);
            all = all && implies(&parts, condition, collation)?;
        }
        if all {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a value that satisfies `given` always satisfies `wanted`.
fn predicate_implies(given: &Predicate, wanted: &Predicate, collation: Collation) -> Result<bool> {
    let Some((given_set, _)) = bounds::of_predicate(given, collation)? else {
        return Ok(matches!(
            (given, wanted),
            (Predicate::Exists, Predicate::Exists)
        ));
    };
    match wanted {
        Predicate::Exists => Ok(!given_set.contains(&Bson::Null)),
        _ => match bounds::of_predicate(wanted, collation)? {
            // The same value that satisfies the one satisfies the other.
            Some((wanted_set, Tightness::Exact)) => Ok(given_set.is_subset_of(&wanted_set)),
            _ => Ok(same_equality(given, wanted, collation)),
        },
    }
}

fn same_equality(given: &Predicate, wanted: &Predicate, collation: Collation) -> bool {
    match (given, wanted) {
        (Predicate::Equal(given), Predicate::Equal(wanted)) => collation
            .compare(given.as_raw_bson_ref(), wanted.as_raw_bson_ref())
            .is_eq(),
        (Predicate::Type(given), Predicate::Type(wanted)) => given == wanted,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use bson::{Document, doc};
    use millrace_collection::index::IndexSpec;
    use millrace_value::ident::Ident;

    use super::*;

    /// Whether an index on `a` with these options holds every document that `filter` finds.
    fn is_complete(options: &Document, filter: &Document) -> bool {
        let mut document = doc! { "v": 2, "key": { "a": 1 }, "name": "a_1" };
        document.extend(options.clone());
        let spec = IndexSpec::parse(&document).expect("a valid index");
        let index = Index::new(Ident::new(1), spec, true, 0);
        let filter = bson::RawDocumentBuf::try_from(filter).expect("a valid filter");
        let matcher =
            Matcher::parse(&filter, &Scope::new(Collation::SIMPLE)).expect("a valid filter");
        let mut conjuncts = Vec::new();
        term::flatten(matcher.root(), &mut conjuncts);
        let terms = term::collect(&conjuncts, matcher.collation()).expect("valid terms");
        index_is_complete(&index, &conjuncts, &terms).expect("a decision")
    }

    #[test]
    fn a_sparse_index_serves_filters_that_need_its_field() {
        let sparse = doc! { "sparse": true };
        for (filter, complete) in [
            (doc! { "a": 5 }, true),
            (doc! { "a": { "$exists": true } }, true),
            (doc! { "a": { "$in": [1, "x"] }, "b": 3 }, true),
            (doc! { "a": Bson::Null }, false),
            (doc! { "a": { "$ne": 5 } }, false),
            (doc! { "a": { "$exists": false } }, false),
            (doc! { "b": 5 }, false),
            (doc! {}, false),
        ] {
            assert_eq!(is_complete(&sparse, &filter), complete, "{filter}");
        }
    }

    #[test]
    fn a_partial_index_serves_filters_that_imply_its_condition() {
        for (condition, filter, complete) in [
            (
                doc! { "b": { "$gt": 5 } },
                doc! { "a": 1, "b": { "$gt": 5 } },
                true,
            ),
            (
                doc! { "b": { "$gt": 5 } },
                doc! { "a": 1, "b": { "$gte": 6, "$lt": 9 } },
                true,
            ),
            (
                doc! { "b": { "$gt": 5 } },
                doc! { "a": 1, "b": { "$in": [6, 7.5] } },
                true,
            ),
            (
                doc! { "b": { "$gt": 5 } },
                doc! { "a": 1, "b": { "$gte": 5 } },
                false,
            ),
            (doc! { "b": { "$gt": 5 } }, doc! { "a": 1, "b": "x" }, false),
            (doc! { "b": { "$gt": 5 } }, doc! { "a": 1 }, false),
            (
                doc! { "b": { "$exists": true } },
                doc! { "a": 1, "b": { "$lt": 3 } },
                true,
            ),
            (
                doc! { "b": { "$exists": true } },
                doc! { "a": 1, "b": { "$ne": 3 } },
                false,
            ),
            (
                doc! { "b": 1, "c": 2 },
                doc! { "a": 1, "b": 1, "c": 2 },
                true,
            ),
            (doc! { "b": 1, "c": 2 }, doc! { "a": 1, "b": 1 }, false),
            (
                doc! { "$or": [{ "b": 1 }, { "c": 2 }] },
                doc! { "a": 1, "c": 2 },
                true,
            ),
            (
                doc! { "b": { "$gt": 5 } },
                doc! { "a": 1, "$or": [{ "b": 7 }, { "b": 8, "c": 1 }] },
                true,
            ),
            (
                doc! { "b": { "$gt": 5 } },
                doc! { "a": 1, "$or": [{ "b": 7 }, { "c": 1 }] },
                false,
            ),
        ] {
            let options = doc! { "partialFilterExpression": condition.clone() };
            assert_eq!(
                is_complete(&options, &filter),
                complete,
                "{condition} for {filter}"
            );
        }
    }
}
