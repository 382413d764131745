//! Several scans run as one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use bson::{RawDocument, RawDocumentBuf};
use millrace_expression::sort::SortPattern;
use millrace_value::Result;

use super::deduplicator::Deduplicator;
use super::index_scan_stage::IndexScanStage;
use super::source::{Context, Emit, Found, Step};
use super::statistics::RunStatistics;
use crate::planner::Union;

/// The next document of an arm, by which the arms are merged.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    sort_key: Vec<u8>,
    arm: usize,
    record_id: Vec<u8>,
    document: Vec<u8>,
}

/// The stage that runs scans one after the other, or merges them by a sort pattern. A record counts once.
#[derive(Debug)]
pub(super) struct UnionStage {
    arms: Vec<IndexScanStage>,
    /// The arm that is running, without a merge.
    current: usize,
    merge: Option<Merge>,
    seen: Option<Deduplicator>,
}

#[derive(Debug)]
struct Merge {
    pattern: SortPattern,
    heads: BinaryHeap<Reverse<Head>>,
    /// The arms whose next document is not known yet.
    wanting: Vec<usize>,
}

impl UnionStage {
    pub(super) fn new(union: &Union) -> Self {
        let merge = union.merge.as_ref().map(|pattern| Merge {
            pattern: pattern.clone(),
            heads: BinaryHeap::new(),
            wanting: (0..union.arms.len()).collect(),
        });
        let seen = (!union.disjoint).then(Deduplicator::default);
        let arms = union
            .arms
            .iter()
            .cloned()
            .map(IndexScanStage::new)
            .collect();
        Self {
            arms,
            current: 0,
            merge,
            seen,
        }
    }

    pub(super) fn step(&mut self, context: &mut Context<'_>, emit: Emit<'_>) -> Result<Step> {
        if self.merge.is_some() {
            self.step_merged(context, emit)
        } else {
            self.step_in_turn(context, emit)
        }
    }

    fn step_in_turn(&mut self, context: &mut Context<'_>, emit: Emit<'_>) -> Result<Step> {
        let Some(arm) = self.arms.get_mut(self.current) else {
            return Ok(Step::End);
        };
        let Some(seen) = &mut self.seen else {
            let step = arm.step(context, emit)?;
            return Ok(self.pass_on(step));
        };
        // Whether a record was seen may be asked of scratch space, which is the engine's, so that the
        // document is copied out of the engine first.
        let mut found = None;
        let step = arm.step(context, &mut |record| {
            found = Some((record.record_id.to_vec(), record.document.to_owned()));
            Ok(())
        })?;
        let Some((record_id, document)) = found else {
            return Ok(self.pass_on(step));
        };
        if !seen.insert(&record_id, context.view, context.evaluation.operation)? {
            arm.statistics.take_back();
            return Ok(Step::Working);
        }
        emit(Found {
            record_id: &record_id,
            document: &document,
            entry: None,
        })?;
        Ok(Step::Emitted)
    }

    /// What a step of the current arm means for the union.
    fn pass_on(&mut self, step: Step) -> Step {
        if step != Step::End {
            return step;
        }
        self.current += 1;
        if self.current < self.arms.len() {
            Step::Working
        } else {
            Step::End
        }
    }

    fn step_merged(&mut self, context: &mut Context<'_>, emit: Emit<'_>) -> Result<Step> {
        let merge = self
            .merge
            .as_mut()
            .expect("invariant: only called with a merge");
        if let Some(&arm) = merge.wanting.last() {
            let mut found = None;
            let step = self.arms[arm].step(context, &mut |record| {
                let document: RawDocumentBuf = record.document.to_owned();
                found = Some((record.record_id.to_vec(), document));
                Ok(())
            })?;
            if step == Step::Stale {
                return Ok(step);
            }
            if step == Step::End {
                merge.wanting.pop();
            }
            if let Some((record_id, document)) = found {
                merge.wanting.pop();
                let sort_key = merge.pattern.key(&document)?;
                let document = document.into_bytes();
                merge.heads.push(Reverse(Head {
                    sort_key,
                    arm,
                    record_id,
                    document,
                }));
            }
            return Ok(Step::Working);
        }
        let Some(Reverse(head)) = merge.heads.pop() else {
            return Ok(Step::End);
        };
        merge.wanting.push(head.arm);
        if let Some(seen) = &mut self.seen {
            if !seen.insert(&head.record_id, context.view, context.evaluation.operation)? {
                self.arms[head.arm].statistics.take_back();
                return Ok(Step::Working);
            }
        }
        let document = RawDocument::from_bytes(&head.document)?;
        emit(Found {
            record_id: &head.record_id,
            document,
            entry: None,
        })?;
        Ok(Step::Emitted)
    }

    pub(super) fn save(&mut self) {
        self.arms.iter_mut().for_each(IndexScanStage::save);
    }

    pub(super) fn statistics(&self) -> Vec<RunStatistics> {
        self.arms.iter().map(|arm| arm.statistics).collect()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let heads = self.merge.iter().flat_map(|merge| &merge.heads);
        heads
            .map(|Reverse(head)| head.document.len() + head.sort_key.len())
            .sum::<usize>()
            + self.seen.as_ref().map_or(0, Deduplicator::memory_bytes)
            + self
                .arms
                .iter()
                .map(IndexScanStage::memory_bytes)
                .sum::<usize>()
    }
}
