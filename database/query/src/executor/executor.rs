//! A plan that is running.

use std::sync::Arc;

use bson::raw::RawBson;
use bson::spec::BinarySubtype;
use bson::{Binary, RawDocumentBuf};
use millrace_collection::index::IndexSpec;
use millrace_collection::{Collection, RecordKind};
use millrace_expression::{EvaluationContext, Variables};
use millrace_matcher::MatchDetails;
use millrace_value::{Error, ErrorCode, Operation, ReadView, Result};

use super::rebuild;
use super::source::{Context, Found, Source, Step};
use super::statistics::{ExecutionStats, RunStatistics};
use super::trial::choose_plan;
use super::view::PlanView;
use crate::planner::{Access, Plan, Query};

/// A document and the id of its record.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Under which it lies in its collection.
    pub record_id: Vec<u8>,
    /// The document, projected if the query has a projection.
    pub document: RawDocumentBuf,
}

/// What came of a unit of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Result,
    Nothing,
    End,
}

/// Answers a query by its plan, one document at a time.
#[derive(Debug)]
pub struct Executor {
    view: PlanView,
    collection: Arc<Collection>,
    query: Arc<Query>,
    plan: Plan,
    variables: Variables,
    source: Source,
    /// Documents the source emitted.
    emitted: u64,
    returned: u64,
    /// Whether the collection has to be looked for again before the engine is read.
    saved: bool,
    /// Whether the plan has gone on in a later state of the engine than it began in.
    resumed: bool,
}

impl Executor {
    /// An executor of `plan`, which was made for `query` on `collection`. All its reads are made at
    /// `view`. Nothing is read yet.
    ///
    /// # Errors
    /// `QueryPlanKilled` when the collection has been dropped.
    pub fn new(
        view: ReadView,
        collection: Arc<Collection>,
        query: Arc<Query>,
        plan: Plan,
        variables: Variables,
    ) -> Result<Self> {
        let source = Source::new(&plan, &collection, &query);
        let executor = Self {
            view: PlanView::new(view),
            collection,
            query,
            plan,
            variables,
            source,
            emitted: 0,
            returned: 0,
            saved: false,
            resumed: false,
        };
        executor.restore()?;
        Ok(executor)
    }

    /// The next document and its record id.
    ///
    /// # Errors
    /// The operation's interruption, a dropped collection, a failure of the engine, of a filter, sort or
    /// projection.
    pub fn next(&mut self, operation: &Operation) -> Result<Option<Record>> {
        let mut record_id = Vec::new();
        let mut document = Vec::new();
        let found = self.produce(operation, true, &mut |output, found| {
            record_id.extend_from_slice(found.record_id);
            output.append(found, &mut document)
        })?;
        if !found {
            return Ok(None);
        }
        Ok(Some(Record {
            record_id,
            document: RawDocumentBuf::from_bytes(document)?,
        }))
    }

    /// Appends the next document to `out`; whether there was one. After an error `out` may hold a part
    /// of a document.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn next_into(&mut self, operation: &Operation, out: &mut Vec<u8>) -> Result<bool> {
        self.produce(operation, true, &mut |output, found| {
            output.append(found, out)
        })
    }

    /// The number of documents that remain. Where the keys of an index suffice, the documents are not
    /// read.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn count(&mut self, operation: &Operation) -> Result<u64> {
        let mut count = 0;
        while self.produce(operation, false, &mut |_, _| Ok(()))? {
            count += 1;
        }
        Ok(count)
    }

    /// Lets go of everything the engine lent, but remembers the place. The next call goes on from there.
    pub fn save(&mut self) {
        self.source.save();
        self.view.release();
        self.saved = true;
    }

    /// Checks that a saved executor can go on. [`next`](Self::next) and its kin do so by themselves.
    ///
    /// # Errors
    /// `QueryPlanKilled` when the collection has been dropped.
    pub fn restore(&self) -> Result<()> {
        if self.collection.is_dropped() {
            return Err(Error::new(
                ErrorCode::QueryPlanKilled,
                format!("collection dropped. ns: {}", self.collection.namespace),
            ));
        }
        Ok(())
    }

    /// The work that the plan has done so far, summed over its scans.
    #[must_use]
    pub fn stats(&self) -> ExecutionStats {
        let runs = self.source.statistics();
        let sum = |field: fn(&RunStatistics) -> u64| runs.iter().map(field).sum::<u64>();
        ExecutionStats {
            keys_examined: sum(|run| run.keys_examined),
            documents_examined: sum(|run| run.documents_examined),
            returned: self.returned,
            works: sum(|run| run.works),
            sorted: self.source.sorted(),
            ended: runs.iter().all(|run| run.ended),
        }
    }

    /// About how many bytes of memory are held, not counting the engine's.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.source.memory_bytes()
    }

    pub(super) fn run_statistics(&self) -> Vec<RunStatistics> {
        self.source.statistics()
    }

    pub(super) const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Works until one document has passed skip and limit and hands it to `take`; false at the end.
    fn produce(
        &mut self,
        operation: &Operation,
        documents_wanted: bool,
        take: &mut dyn FnMut(&Output<'_>, Found<'_>) -> Result<()>,
    ) -> Result<bool> {
        while self.query.limit.is_none_or(|limit| self.returned < limit) {
            match self.step(operation, documents_wanted, take)? {
                Step::Emitted if self.emitted > self.query.skip => {
                    self.returned += 1;
                    return Ok(true);
                }
                Step::Emitted | Step::Working | Step::Stale => {}
                Step::End => return Ok(false),
            }
        }
        Ok(false)
    }

    /// Does one unit of work and throws its result away: plans are compared so.
    pub(crate) fn progress(&mut self, operation: &Operation) -> Result<Progress> {
        Ok(match self.step(operation, true, &mut |_, _| Ok(()))? {
            Step::Emitted => Progress::Result,
            Step::Working | Step::Stale => Progress::Nothing,
            Step::End => Progress::End,
        })
    }

    /// One unit of work.
    fn step(
        &mut self,
        operation: &Operation,
        documents_wanted: bool,
        take: &mut dyn FnMut(&Output<'_>, Found<'_>) -> Result<()>,
    ) -> Result<Step> {
        operation.check()?;
        if self.saved {
            self.restore()?;
            self.saved = false;
            self.resumed = true;
        }
        let evaluation = EvaluationContext::new(operation, &self.variables, self.query.collation());
        let spec = entry_spec(&self.plan);
        let output = Output {
            query: &self.query,
            collection: &self.collection,
            evaluation: &evaluation,
            spec,
        };
        let skip = self.query.skip;
        let emitted = &mut self.emitted;
        let mut context = Context {
            view: &mut self.view,
            collection: &self.collection,
            query: &self.query,
            evaluation: &evaluation,
            fresh: *emitted == 0,
            documents_wanted,
        };
        let step = self.source.step(&mut context, &mut |found| {
            *emitted += 1;
            if *emitted <= skip {
                Ok(())
            } else {
                take(&output, found)
            }
        })?;
        if step == Step::End && self.resumed {
            // The end may be that of a collection that was dropped after the place was found again.
            self.restore()?;
        }
        if step == Step::Stale {
            self.view.release();
            let view = self.view.unheld();
            self.plan = choose_plan(view, &self.collection, &self.query, operation)?.winning;
            self.source = Source::new(&self.plan, &self.collection, &self.query);
        }
        Ok(step)
    }
}

/// The index whose entries lead to the documents, if it is one alone.
fn entry_spec(plan: &Plan) -> Option<&IndexSpec> {
    match &plan.access {
        Access::Index(scan) => Some(&scan.index.spec),
        _ => None,
    }
}

/// Writes documents as the query wants them.
struct Output<'a> {
    query: &'a Query,
    collection: &'a Collection,
    evaluation: &'a EvaluationContext<'a>,
    spec: Option<&'a IndexSpec>,
}

impl Output<'_> {
    fn append(&self, found: Found<'_>, out: &mut Vec<u8>) -> Result<()> {
        if self.query.show_record_id || self.query.return_key {
            return self.append_annotated(found, out);
        }
        let Some(projection) = &self.query.projection else {
            out.extend_from_slice(found.document.as_bytes());
            return Ok(());
        };
        let mut details = MatchDetails::default();
        let matched = projection.needs_match_details().then_some(&mut details);
        if let Some(details) = matched {
            self.query
                .filter
                .matches_recording(found.document, self.evaluation, details)?;
        }
        projection.append_raw(out, found.document, Some(&details), self.evaluation)
    }

    /// The document with its record id, or the index key in its place: that goes without a record id.
    fn append_annotated(&self, found: Found<'_>, out: &mut Vec<u8>) -> Result<()> {
        let mut document = if self.query.return_key {
            self.key_document(found)?
        } else {
            let mut plain = Vec::new();
            let query = Query {
                show_record_id: false,
                ..self.query.clone()
            };
            Output {
                query: &query,
                ..*self
            }
            .append(found, &mut plain)?;
            RawDocumentBuf::from_bytes(plain)?
        };
        if self.query.show_record_id && !self.query.return_key {
            document.append(
                bson::cstr!("$recordId"),
                self.shown_record_id(found.record_id),
            );
        }
        out.extend_from_slice(document.as_bytes());
        Ok(())
    }

    fn key_document(&self, found: Found<'_>) -> Result<RawDocumentBuf> {
        let Some(spec) = self.spec else {
            return Ok(RawDocumentBuf::new());
        };
        match found.entry {
            Some((fields, type_bits)) => Ok(RawDocumentBuf::try_from(&rebuild::key_document(
                spec, fields, type_bits,
            )?)?),
            // The collection's own order: its key is the `_id`.
            None => {
                let mut key = RawDocumentBuf::new();
                if let Some(id) = found.document.get("_id")? {
                    key.append(bson::cstr!("_id"), id);
                }
                Ok(key)
            }
        }
    }

    fn shown_record_id(&self, record_id: &[u8]) -> RawBson {
        let sequence = match self.collection.kind {
            RecordKind::Sequenced => record_id.try_into().ok().map(i64::from_be_bytes),
            RecordKind::Clustered => None,
        };
        match sequence {
            Some(sequence) => RawBson::Int64(sequence),
            None => RawBson::Binary(Binary {
                subtype: BinarySubtype::Generic,
                bytes: record_id.to_vec(),
            }),
        }
    }
}
