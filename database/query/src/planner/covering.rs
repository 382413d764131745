//! Whether the keys of an index hold all that a query needs of a document.

use millrace_collection::Index;
use millrace_collection::index::FieldKind;
use millrace_expression::sort::SortPattern;
use millrace_matcher::{Matcher, Node, Predicate};
use millrace_value::{Collation, Path};

use super::query::Query;

/// Whether `query` can be answered from the keys of `index`, whose multikey mask is `multikey`, when
/// documents must still satisfy `residual` and be sorted by `sort`.
///
/// A key of null does not tell null from a missing field; the executor fetches the document then.
pub(crate) fn is_covered(
    query: &Query,
    index: &Index,
    multikey: u64,
    residual: Option<&Matcher>,
    sort: Option<&SortPattern>,
) -> bool {
    let Some(mut needed) = query
        .projection
        .as_ref()
        .and_then(|projection| projection.required_fields())
    else {
        return false;
    };
    // Keys of another collation do not hold the strings.
    if index.spec.collation != Collation::SIMPLE {
        return false;
    }
    // The keys of arrays are those of their elements.
    if multikey != 0 || query.return_key || query.show_record_id {
        return false;
    }
    if let Some(residual) = residual {
        if !collect_paths(residual.root(), &mut needed) {
            return false;
        }
    }
    if let Some(pattern) = sort {
        needed.extend(pattern.fields().iter().map(|field| field.path.clone()));
    }
    let held = |path: &Path| {
        index
            .spec
            .fields
            .iter()
            .any(|field| field.path == *path && field.kind != FieldKind::Hashed)
    };
    // Of a field and one inside it, the first alone would have to be rebuilt without the other.
    let nested = index.spec.fields.iter().any(|outer| {
        index
            .spec
            .fields
            .iter()
            .any(|inner| outer.path != inner.path && outer.path.is_prefix_of(&inner.path))
    });
    !nested && needed.iter().all(held)
}

/// Appends the paths that `node` looks at; false if it may look at others too.
fn collect_paths(node: &Node, out: &mut Vec<Path>) -> bool {
    match node {
        Node::And(nodes) | Node::Or(nodes) | Node::Nor(nodes) => {
            nodes.iter().all(|node| collect_paths(node, out))
        }
        Node::Not(node) => collect_paths(node, out),
        Node::Path { path, predicate } => {
            out.push(path.clone());
            !matches!(predicate, Predicate::ElementMatchObject(_))
        }
        Node::AlwaysTrue | Node::AlwaysFalse | Node::SampleRate(_) => true,
        Node::Expression(_) | Node::JsonSchema(_) => false,
    }
}
