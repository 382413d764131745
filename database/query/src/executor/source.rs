//! The interface between the stages of a running plan.

use bson::RawDocument;
use millrace_collection::Collection;
use millrace_expression::EvaluationContext;
use millrace_matcher::Matcher;
use millrace_value::Result;

use super::collection_scan_stage::CollectionScanStage;
use super::id_lookup_stage::IdLookupStage;
use super::index_scan_stage::IndexScanStage;
use super::sort_stage::SortStage;
use super::statistics::RunStatistics;
use super::union_stage::UnionStage;
use super::view::PlanView;
use crate::planner::{Access, Plan, Query};

/// A document that satisfies the filter, borrowed from wherever it was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<'a> {
    pub(super) record_id: &'a [u8],
    pub(super) document: &'a RawDocument,
    /// The index entry that led to it: the encoded fields and their type bits.
    pub(super) entry: Option<(&'a [u8], &'a [u8])>,
}

/// Receives a document. It must not call the engine.
pub(super) type Emit<'a> = &'a mut dyn FnMut(Found<'_>) -> Result<()>;

/// What came of one unit of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A document was emitted.
    Emitted,
    /// Nothing yet.
    Working,
    /// There is nothing more, at least for now.
    End,
    /// The plan rests on something that was no longer so when it began. Only said while nothing was
    /// emitted.
    Stale,
}

/// What a stage needs to do its work.
pub(super) struct Context<'a> {
    pub(super) view: &'a mut PlanView,
    pub(super) collection: &'a Collection,
    pub(super) query: &'a Query,
    pub(super) evaluation: &'a EvaluationContext<'a>,
    /// Whether nothing was emitted yet, so that the query may still be planned anew.
    pub(super) fresh: bool,
    /// Whether the documents themselves are wanted, or only how many there are.
    pub(super) documents_wanted: bool,
}

impl Context<'_> {
    /// Whether `document` satisfies `filter`.
    pub(super) fn accepts(&self, filter: Option<&Matcher>, document: &RawDocument) -> Result<bool> {
        match filter {
            None => Ok(true),
            Some(filter) => filter.matches(document, self.evaluation),
        }
    }
}

/// The stages of a running plan that find documents and put them into order.
#[derive(Debug)]
pub(super) enum Source {
    Nothing,
    Id(IdLookupStage),
    Collection(CollectionScanStage),
    Index(Box<IndexScanStage>),
    Union(Box<UnionStage>),
    Sort(Box<SortStage>),
}

impl Source {
    pub(super) fn new(plan: &Plan, collection: &Collection, query: &Query) -> Self {
        let access = match &plan.access {
            Access::Nothing => Self::Nothing,
            Access::Id(id) => Self::Id(IdLookupStage::new(id.clone())),
            Access::Collection(scan) => {
                Self::Collection(CollectionScanStage::new(scan, collection, query.tailable))
            }
            Access::Index(scan) => Self::Index(Box::new(IndexScanStage::new(scan.clone()))),
            Access::Union(union) => Self::Union(Box::new(UnionStage::new(union))),
        };
        match &plan.sort {
            None => access,
            Some(pattern) => Self::Sort(Box::new(SortStage::new(access, pattern.clone()))),
        }
    }

    /// Does one unit of work.
    pub(super) fn step(&mut self, context: &mut Context<'_>, emit: Emit<'_>) -> Result<Step> {
        match self {
            Self::Nothing => Ok(Step::End),
            Self::Id(run) => run.step(context, emit),
            Self::Collection(run) => run.step(context, emit),
            Self::Index(run) => run.step(context, emit),
            Self::Union(run) => run.step(context, emit),
            Self::Sort(run) => run.step(context, emit),
        }
    }

    /// Lets go of the engine's cursors.
    pub(super) fn save(&mut self) {
        match self {
            Self::Nothing | Self::Id(_) => {}
            Self::Collection(run) => run.save(),
            Self::Index(run) => run.save(),
            Self::Union(run) => run.save(),
            Self::Sort(run) => run.save(),
        }
    }

    /// The counters of the scans, in the order in which the plan has them.
    pub(super) fn statistics(&self) -> Vec<RunStatistics> {
        match self {
            Self::Nothing => Vec::new(),
            Self::Id(run) => vec![run.statistics],
            Self::Collection(run) => vec![run.statistics],
            Self::Index(run) => vec![run.statistics],
            Self::Union(run) => run.statistics(),
            Self::Sort(run) => run.input.statistics(),
        }
    }

    /// How many documents were sorted.
    pub(super) const fn sorted(&self) -> u64 {
        match self {
            Self::Sort(run) => run.pushed,
            _ => 0,
        }
    }

    /// Memory held, not counting the engine's.
    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            Self::Nothing | Self::Id(_) | Self::Collection(_) => 0,
            Self::Index(run) => run.memory_bytes(),
            Self::Union(run) => run.memory_bytes(),
            Self::Sort(run) => run.memory_bytes(),
        }
    }
}
