//! A plan as a tree of MongoDB's stages.

use bson::{Bson, Document, doc};
use millrace_collection::Index;
use millrace_collection::index::FieldKind;
use millrace_matcher::{Matcher, Node};

use super::super::display;
use super::super::statistics::{ExecutionStats, RunStatistics};
use super::{filter, number};
use crate::planner::{Access, IndexScan, Plan, Query, Union, key_pattern};

/// The part of a stage that `explain` shows.
#[derive(Clone, Copy)]
pub(super) enum Detail<'a> {
    /// What it is.
    Plan,
    /// And what it did: the counters of the scans, in their order, and those of the whole plan.
    Execution {
        runs: &'a [RunStatistics],
        totals: ExecutionStats,
    },
}

/// What one stage did.
#[derive(Clone, Copy)]
struct Work {
    returned: u64,
    works: u64,
    ended: bool,
}

/// Shows the plans of one query.
#[derive(Clone, Copy)]
pub(super) struct Stages<'a> {
    pub(super) query: &'a Query,
    pub(super) detail: Detail<'a>,
}

impl Stages<'_> {
    /// The tree of `plan`, from the stage that answers down to those that read.
    pub(super) fn of(&self, plan: &Plan) -> Document {
        let mut tree = self.access(&plan.access);
        if let Some(pattern) = &plan.sort {
            tree = self.sort(pattern.document(), tree);
        }
        if self.query.skip > 0 {
            let work = self.top_work();
            tree = stage(
                "SKIP",
                work,
                doc! { "skipAmount": number(self.query.skip) },
                Some(tree),
            );
        }
        tree = self.projection(plan, tree);
        match self.query.limit.filter(|_| plan.sort.is_none()) {
            Some(limit) => {
                let fields = doc! { "limitAmount": number(limit) };
                stage("LIMIT", self.top_work(), fields, Some(tree))
            }
            None => tree,
        }
    }

    /// What a stage above all scans did.
    fn top_work(&self) -> Option<Work> {
        match self.detail {
            Detail::Plan => None,
            Detail::Execution { totals, .. } => Some(Work {
                returned: totals.returned,
                works: totals.works + u64::from(totals.ended),
                ended: totals.ended,
            }),
        }
    }

    fn run(&self, position: usize) -> Option<&RunStatistics> {
        match self.detail {
            Detail::Plan => None,
            Detail::Execution { runs, .. } => runs.get(position),
        }
    }

    fn sort(&self, pattern: &Document, input: Document) -> Document {
        let mut fields = doc! { "sortPattern": pattern.clone() };
        let limit = self
            .query
            .limit
            .map(|limit| limit.saturating_add(self.query.skip));
        if let Some(limit) = limit {
            fields.insert("limitAmount", number(limit));
        }
        fields.insert("type", "simple");
        if let Detail::Execution { totals, .. } = self.detail {
            fields.insert("inputDocs", number(totals.sorted));
        }
        stage("SORT", self.top_work(), fields, Some(input))
    }

    fn projection(&self, plan: &Plan, input: Document) -> Document {
        if self.query.return_key {
            return stage("RETURN_KEY", self.top_work(), Document::new(), Some(input));
        }
        let Some(projection) = &self.query.projection else {
            return input;
        };
        let covered = matches!(&plan.access, Access::Index(scan) if scan.covered);
        let name = match () {
            () if covered => "PROJECTION_COVERED",
            () if projection.is_simple() => "PROJECTION_SIMPLE",
            () => "PROJECTION_DEFAULT",
        };
        stage(name, self.top_work(), Document::new(), Some(input))
    }

    fn access(&self, access: &Access) -> Document {
        match access {
            Access::Nothing => stage("EOF", self.top_work(), Document::new(), None),
            Access::Id(_) => {
                let run = self.run(0);
                let mut fields = Document::new();
                if let Some(run) = run {
                    fields.insert("keysExamined", number(run.keys_examined));
                    fields.insert("docsExamined", number(run.documents_examined));
                }
                stage("IDHACK", run.map(work_of), fields, None)
            }
            Access::Collection(scan) => {
                let run = self.run(0);
                let mut fields = Document::new();
                insert_filter(&mut fields, scan.filter.as_deref(), self.query);
                fields.insert(
                    "direction",
                    if scan.backward { "backward" } else { "forward" },
                );
                if let Some(run) = run {
                    fields.insert("docsExamined", number(run.documents_examined));
                }
                stage("COLLSCAN", run.map(work_of), fields, None)
            }
            Access::Index(scan) => self.fetched(scan, 0),
            Access::Union(union) => self.union(union),
        }
    }

    /// An index scan with the fetch above it, unless the keys suffice.
    fn fetched(&self, scan: &IndexScan, position: usize) -> Document {
        let keys = self.index_scan(scan, position);
        if scan.covered {
            keys
        } else {
            self.fetch(scan.filter.as_deref(), position, keys)
        }
    }

    fn fetch(&self, filter: Option<&Matcher>, position: usize, input: Document) -> Document {
        let run = self.run(position);
        let mut fields = Document::new();
        insert_filter(&mut fields, filter, self.query);
        if let Some(run) = run {
            fields.insert("docsExamined", number(run.documents_examined));
        }
        stage("FETCH", run.map(work_of), fields, Some(input))
    }

    fn index_scan(&self, scan: &IndexScan, position: usize) -> Document {
        let run = self.run(position);
        let work = run.map(|run| Work {
            returned: run.keys_matched.saturating_sub(run.duplicates_dropped),
            ..work_of(run)
        });
        let mut fields = Document::new();
        if scan.covered {
            insert_filter(&mut fields, scan.filter.as_deref(), self.query);
        }
        fields.extend(index_fields(scan));
        fields.insert(
            "direction",
            if scan.backward { "backward" } else { "forward" },
        );
        fields.insert("indexBounds", index_bounds(scan, self.query));
        if let Some(run) = run {
            fields.insert("keysExamined", number(run.keys_examined));
            fields.insert("seeks", number(run.seeks));
            fields.insert(
                "dupsTested",
                number(if scan.may_repeat() {
                    run.keys_matched
                } else {
                    0
                }),
            );
            fields.insert("dupsDropped", number(run.duplicates_dropped));
        }
        stage("IXSCAN", work, fields, None)
    }

    fn union(&self, union: &Union) -> Document {
        let any_filter = union.arms.iter().any(|arm| arm.filter.is_some());
        let arms: Vec<Bson> = union
            .arms
            .iter()
            .enumerate()
            .map(|(position, arm)| {
                let tree = if any_filter {
                    self.fetched(arm, position)
                } else {
                    self.index_scan(arm, position)
                };
                Bson::Document(tree)
            })
            .collect();
        let work = match self.detail {
            Detail::Plan => None,
            Detail::Execution { runs, .. } => Some(Work {
                returned: runs.iter().map(|run| run.emitted).sum(),
                works: runs.iter().map(|run| run.works).sum(),
                ended: runs.iter().all(|run| run.ended),
            }),
        };
        let (name, fields) = match &union.merge {
            Some(pattern) => (
                "SORT_MERGE",
                doc! { "sortPattern": pattern.document().clone() },
            ),
            None => ("OR", Document::new()),
        };
        let mut tree = stage(name, work, fields, None);
        tree.insert("inputStages", arms);
        if !any_filter {
            tree = stage("FETCH", work, Document::new(), Some(tree));
        }
        if matches!(self.query.filter.root(), Node::Or(_)) {
            tree = stage("SUBPLAN", work, Document::new(), Some(tree));
        }
        tree
    }
}

fn work_of(run: &RunStatistics) -> Work {
    Work {
        returned: run.emitted,
        works: run.works,
        ended: run.ended,
    }
}

/// A stage: its name, what it did, its own fields, its input.
fn stage(name: &str, work: Option<Work>, fields: Document, input: Option<Document>) -> Document {
    let mut shown = doc! { "stage": name };
    if let Some(work) = work {
        shown.insert("nReturned", number(work.returned));
        shown.insert("executionTimeMillisEstimate", 0);
        shown.insert("works", number(work.works));
        shown.insert("advanced", number(work.returned));
        let idle = work
            .works
            .saturating_sub(work.returned + u64::from(work.ended));
        shown.insert("needTime", number(idle));
        shown.insert("needYield", 0);
        shown.insert("saveState", 0);
        shown.insert("restoreState", 0);
        shown.insert("isEOF", i32::from(work.ended));
    }
    shown.extend(fields);
    if let Some(input) = input {
        shown.insert("inputStage", input);
    }
    shown
}

fn insert_filter(fields: &mut Document, filter: Option<&Matcher>, query: &Query) {
    let Some(filter) = filter else { return };
    // A condition that cannot be shown from its parsed form is shown with all the others, as written.
    let shown =
        filter::shown(filter.root()).or_else(|| Document::try_from(&*query.filter_document).ok());
    fields.extend(shown.map(|shown| ("filter".to_owned(), Bson::Document(shown))));
}

fn index_fields(scan: &IndexScan) -> Document {
    let spec = &scan.index.spec;
    let paths: Document = spec
        .fields
        .iter()
        .enumerate()
        .map(|(position, field)| {
            let multikey = scan.multikey & Index::field_bit(position) != 0;
            // Which component of the path has the arrays is not known, so that the first is named.
            let arrays = if multikey {
                vec![Bson::from(field.path.first())]
            } else {
                Vec::new()
            };
            (field.path.to_string(), Bson::Array(arrays))
        })
        .collect();
    doc! {
        "keyPattern": key_pattern(&scan.index).cloned().unwrap_or_default(),
        "indexName": &spec.name,
        "isMultiKey": scan.multikey != 0,
        "multiKeyPaths": paths,
        "isUnique": spec.unique || spec.name == "_id_",
        "isSparse": spec.sparse,
        "isPartial": spec.partial_filter.is_some(),
        "indexVersion": 2,
    }
}

fn index_bounds(scan: &IndexScan, query: &Query) -> Document {
    if scan.fields.is_empty() {
        let mut bounds = Document::new();
        if let Some(min) = &query.min {
            bounds.insert("startKey", min.clone());
        }
        if let Some(max) = &query.max {
            bounds.insert("endKey", max.clone());
        }
        return bounds;
    }
    scan.fields
        .iter()
        .zip(&scan.index.spec.fields)
        .map(|(set, field)| {
            let reversed = (field.kind == FieldKind::Descending) != scan.backward;
            let mut shown: Vec<Bson> = set
                .intervals()
                .iter()
                .map(|interval| display::directed(interval, reversed).into())
                .collect();
            if reversed {
                shown.reverse();
            }
            (field.path.to_string(), Bson::Array(shown))
        })
        .collect()
}
