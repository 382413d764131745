//! Bounds on the fields of one index from the terms of a filter.

use bson::Bson;
use millrace_collection::Index;
use millrace_collection::index::{FieldKind, IndexField};
use millrace_value::hashed::hashed_value;
use millrace_value::{Collation, Path, Result, array_index};

use super::bounds::Tightness;
use super::interval::{Interval, IntervalSet};
use super::term::Term;

/// What a filter says about the fields of an index.
#[derive(Debug)]
pub(crate) struct Assignment {
    /// The values of each field that are to be visited.
    pub(crate) fields: Vec<IntervalSet>,
    /// The conjuncts that every document with a key within the bounds satisfies.
    pub(crate) satisfied: Vec<bool>,
}

impl Assignment {
    /// No bounds at all on an index of `field_count` fields, for a filter of `conjunct_count` conjuncts.
    pub(crate) fn unbounded(
        field_count: usize,
        conjunct_count: usize,
        collation: Collation,
    ) -> Self {
        Self {
            fields: vec![IntervalSet::all(collation); field_count],
            satisfied: vec![false; conjunct_count],
        }
    }

    /// The bounds that `terms`, of a filter of `conjunct_count` conjuncts, give on `index`.
    ///
    /// Where a document has several keys, two conditions on one field may be met by two of them, so
    /// that their intervals must not be intersected; and conditions on two fields that run through the
    /// same array may be met by two of its elements, so that only one of the fields may be bounded. Both
    /// are allowed for conditions inside one `$elemMatch`.
    pub(crate) fn new(
        index: &Index,
        multikey: u64,
        terms: &[Term],
        conjunct_count: usize,
    ) -> Result<Self> {
        let mut assignment = Self::unbounded(
            index.spec.fields.len(),
            conjunct_count,
            index.spec.collation,
        );
        let mut bounded: Vec<(usize, &Term)> = Vec::new();
        for (position, field) in index.spec.fields.iter().enumerate() {
            if has_position(&field.path) {
                continue;
            }
            let candidates = terms.iter().filter(|term| term.path == field.path);
            if multikey & Index::field_bit(position) == 0 {
                for term in candidates {
                    assignment.apply(position, field, term, false)?;
                }
                continue;
            }
            let chosen = candidates
                .filter(|term| {
                    bounded.iter().all(|&(other, chosen)| {
                        let other = &index.spec.fields[other].path;
                        let shared = shared_len(&field.path, other);
                        shared == 0 || term.shares_element(chosen, shared)
                    })
                })
                .min_by_key(|term| breadth(&term.bounds(true).0));
            if let Some(term) = chosen {
                assignment.apply(position, field, term, true)?;
                if !assignment.fields[position].is_all() {
                    bounded.push((position, term));
                }
            }
        }
        Ok(assignment)
    }

    fn apply(
        &mut self,
        position: usize,
        field: &IndexField,
        term: &Term,
        multikey: bool,
    ) -> Result<()> {
        let (mut set, mut tightness) = term.bounds(multikey);
        if field.kind == FieldKind::Hashed {
            let Some(hashed) = hashed_points(&set)? else {
                return Ok(());
            };
            // Two values may have the same hash.
            (set, tightness) = (hashed, Tightness::Inexact);
        }
        let narrowed = self.fields[position].intersect(&set);
        self.fields[position] = narrowed;
        if tightness == Tightness::Exact && !term.is_in_element_match() {
            self.satisfied[term.conjunct] = true;
        }
        Ok(())
    }
}

/// Whether a component of `path` may be the position of an element. What such a path leads to depends
/// on the arrays of each document, so that it is not compared with the path of an index.
pub(crate) fn has_position(path: &Path) -> bool {
    path.components()
        .iter()
        .any(|component| array_index(component).is_some())
}

/// How many of their first components two paths share.
pub(crate) fn shared_len(a: &Path, b: &Path) -> usize {
    a.components()
        .iter()
        .zip(b.components())
        .take_while(|(a, b)| a == b)
        .count()
}

/// The hashes of single values; none if the set has others.
fn hashed_points(set: &IntervalSet) -> Result<Option<IntervalSet>> {
    if !set.is_points() {
        return Ok(None);
    }
    let points = set
        .intervals()
        .iter()
        .map(|interval| {
            Ok(Interval::point(Bson::Int64(hashed_value(
                &interval.start,
                set.collation(),
            )?)))
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(Some(IntervalSet::new(points, set.collation())))
}

/// Roughly how much of an index lies in the set; less is better.
fn breadth(set: &IntervalSet) -> usize {
    const RANGE: usize = 1 << 20;
    let ranges = set
        .intervals()
        .iter()
        .filter(|interval| !interval.is_point(set.collation()));
    let open = |value: &Bson| match value {
        Bson::MinKey | Bson::MaxKey => true,
        Bson::Double(value) => value.is_infinite(),
        _ => false,
    };
    let cost = |interval: &Interval| {
        RANGE * (1 + usize::from(open(&interval.start)) + usize::from(open(&interval.end)))
    };
    set.intervals().len() + ranges.map(cost).sum::<usize>()
}
