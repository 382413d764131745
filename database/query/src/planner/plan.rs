//! How a query is answered.

use std::sync::Arc;

use bson::Bson;
use millrace_collection::Index;
use millrace_expression::sort::SortPattern;
use millrace_matcher::Matcher;

use super::interval::IntervalSet;
use super::key_bounds::KeyBounds;

/// One way to answer a query: how its documents are found, and whether they must be sorted then. Skip,
/// limit and projection are the query's own.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) access: Access,
    /// What to sort by, when the access does not give that order by itself.
    pub(crate) sort: Option<SortPattern>,
}

/// How the documents of a query are found.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    /// There are none.
    Nothing,
    /// By `_id`, of which there is at most one.
    Id(Bson),
    /// By looking at every document of the collection.
    Collection(CollectionScan),
    /// By the keys of an index.
    Index(IndexScan),
    /// By the keys of several scans; a document found by several counts once.
    Union(Union),
}

/// A scan of all documents in natural order.
#[derive(Clone, Debug)]
pub(crate) struct CollectionScan {
    pub(crate) backward: bool,
    /// What the documents must satisfy.
    pub(crate) filter: Option<Arc<Matcher>>,
}

/// A scan of the keys of an index.
#[derive(Clone, Debug)]
pub(crate) struct IndexScan {
    pub(crate) index: Arc<Index>,
    /// Whether the index is the collection itself, whose record ids are the keys of `_id`.
    pub(crate) clustered: bool,
    /// The index's multikey mask on which the plan rests.
    pub(crate) multikey: u64,
    /// The values of each field of the index that are visited. Empty when `bounds` come from `min` and
    /// `max`.
    pub(crate) fields: Vec<IntervalSet>,
    pub(crate) bounds: KeyBounds,
    pub(crate) backward: bool,
    /// What the documents must satisfy beyond having a key within the bounds.
    pub(crate) filter: Option<Arc<Matcher>>,
    /// Whether the keys hold all that the query needs of a document.
    pub(crate) covered: bool,
}

impl IndexScan {
    /// Whether a document may have several keys within the bounds.
    pub(crate) const fn may_repeat(&self) -> bool {
        self.multikey != 0
    }

    /// How many of the index's first fields have one value only.
    pub(crate) fn leading_points(&self) -> usize {
        self.fields.iter().take_while(|set| set.is_point()).count()
    }

    /// Whether at most one key lies within the bounds.
    pub(crate) fn is_unique_point(&self) -> bool {
        (self.clustered || self.index.spec.unique)
            && !self.fields.is_empty()
            && self.leading_points() == self.fields.len()
    }
}

/// Several scans.
#[derive(Clone, Debug)]
pub(crate) struct Union {
    pub(crate) arms: Vec<IndexScan>,
    /// The order in which each arm finds its documents and into which they are merged; none: one arm
    /// after the other.
    pub(crate) merge: Option<SortPattern>,
    /// Whether no document can be found by two arms.
    pub(crate) disjoint: bool,
}

/// The plan that was chosen and those that were not.
#[derive(Clone, Debug)]
pub struct PlannedQuery {
    /// The plan that is run, chosen by trial or by rule.
    pub winning: Plan,
    /// The other plans that were considered, for `explain`; may be empty.
    pub rejected: Vec<Plan>,
}
