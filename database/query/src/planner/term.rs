//! What the conjuncts of a filter say about single paths.

use millrace_matcher::{Node, Predicate};
use millrace_value::{Collation, Path, Result};

use super::bounds::{self, Bounds, Tightness};
use super::interval::IntervalSet;

/// Appends the conditions that all must hold for `node` to hold.
pub(crate) fn flatten<'a>(node: &'a Node, out: &mut Vec<&'a Node>) {
    match node {
        Node::And(nodes) => nodes.iter().for_each(|node| flatten(node, out)),
        Node::AlwaysTrue => {}
        other => out.push(other),
    }
}

/// An `$elemMatch` around a term: the values of all terms inside belong to one element of one array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ElementMatch {
    /// Tells it from others of the same filter.
    number: usize,
    /// The length of the path to the array.
    path_len: usize,
}

/// A condition on the values of one path which an index on that path can narrow.
#[derive(Clone, Debug)]
pub(crate) struct Term {
    pub(crate) path: Path,
    /// Which of the filter's conjuncts it is or is part of.
    pub(crate) conjunct: usize,
    bounds: Bounds,
    /// Whether it is the negation of what `bounds` describe.
    negated: bool,
    /// Whether the condition is `null`, whose negation is exact where there are no arrays.
    null: bool,
    element_matches: Vec<ElementMatch>,
}

impl Term {
    /// The values of the keys that lead to all matching documents, in an index of whose keys a document
    /// may have several (`multikey`) or just one.
    pub(crate) fn bounds(&self, multikey: bool) -> Bounds {
        let (set, tightness) = &self.bounds;
        if !self.negated {
            return self.bounds.clone();
        }
        let invertible = *tightness == Tightness::Exact || (self.null && !multikey);
        match (invertible, multikey) {
            (false, _) => (IntervalSet::all(set.collation()), Tightness::Inexact),
            // A document whose array has the value has keys beside it all the same.
            (true, true) => (set.complement(), Tightness::Inexact),
            (true, false) => (set.complement(), Tightness::Exact),
        }
    }

    /// Whether the condition is on the elements of an array, of which it is only a part.
    pub(crate) fn is_in_element_match(&self) -> bool {
        !self.element_matches.is_empty()
    }

    /// Whether the values of both terms belong to one element of the array at the first `path_len`
    /// components of their paths, or to one below it.
    pub(crate) fn shares_element(&self, other: &Self, path_len: usize) -> bool {
        self.element_matches
            .iter()
            .any(|around| around.path_len >= path_len && other.element_matches.contains(around))
    }
}

/// The terms of `conjuncts`, which were parsed for `collation`.
pub(crate) fn collect(conjuncts: &[&Node], collation: Collation) -> Result<Vec<Term>> {
    let mut collector = Collector {
        terms: Vec::new(),
        element_match_count: 0,
        collation,
    };
    for (conjunct, node) in conjuncts.iter().enumerate() {
        collector.visit(node, conjunct, None, &[])?;
    }
    Ok(collector.terms)
}

struct Collector {
    terms: Vec<Term>,
    element_match_count: usize,
    collation: Collation,
}

impl Collector {
    /// Adds the terms of `node`, whose paths begin at `base`, inside `around`.
    fn visit(
        &mut self,
        node: &Node,
        conjunct: usize,
        base: Option<&Path>,
        around: &[ElementMatch],
    ) -> Result<()> {
        let (path, predicate, negated) = match node {
            Node::Path { path, predicate } => (path, predicate, false),
            Node::Not(inner) => match &**inner {
                Node::Path { path, predicate } => (path, predicate, true),
                _ => return Ok(()),
            },
            _ => return Ok(()),
        };
        let path = match base {
            Some(base) => join(base, path),
            None => path.clone(),
        };
        if let Predicate::ElementMatchObject(inner) = predicate {
            if !negated {
                return self.visit_elements(inner, conjunct, &path, around);
            }
            return Ok(());
        }
        let Some((set, mut tightness)) = bounds::of_predicate(predicate, self.collation)? else {
            return Ok(());
        };
        let null = set.is_point() && set.contains(&bson::Bson::Null);
        if !around.is_empty() {
            // What an index says of one value says nothing of the element as a whole.
            tightness = if negated {
                tightness
            } else {
                Tightness::Inexact
            };
        }
        self.terms.push(Term {
            path,
            conjunct,
            bounds: (set, tightness),
            negated,
            null,
            element_matches: around.to_vec(),
        });
        Ok(())
    }

    fn visit_elements(
        &mut self,
        inner: &Node,
        conjunct: usize,
        path: &Path,
        around: &[ElementMatch],
    ) -> Result<()> {
        let mut around = around.to_vec();
        around.push(ElementMatch {
            number: self.element_match_count,
            path_len: path.len(),
        });
        self.element_match_count += 1;
        let mut nodes = Vec::new();
        flatten(inner, &mut nodes);
        nodes
            .into_iter()
            .try_for_each(|node| self.visit(node, conjunct, Some(path), &around))
    }
}

fn join(base: &Path, path: &Path) -> Path {
    path.components()
        .iter()
        .fold(base.clone(), |joined, component| joined.child(component))
}
