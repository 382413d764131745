//! A scan of an index, and the documents its keys lead to.

use std::sync::Arc;

use bson::{RawDocument, RawDocumentBuf};
use millrace_collection::index::IndexEntry;
use millrace_value::ident::Ident;
use millrace_value::{Error, ErrorCode, Result};

use super::deduplicator::Deduplicator;
use super::rebuild;
use super::source::{Context, Emit, Found, Step};
use super::statistics::RunStatistics;
use super::walk::{Arrival, Walk};
use crate::planner::{IndexScan, Verdict};

/// The encoded empty document.
const NO_DOCUMENT: &[u8] = &[5, 0, 0, 0, 0];

/// The stage that visits the keys within the bounds of an index and emits their documents.
#[derive(Debug)]
pub(super) struct IndexScanStage {
    scan: IndexScan,
    walk: Walk,
    seen: Option<Deduplicator>,
    begun: bool,
    pub(super) statistics: RunStatistics,
}

impl IndexScanStage {
    pub(super) fn new(scan: IndexScan) -> Self {
        let seen = scan.may_repeat().then(Deduplicator::default);
        let mut walk = Walk::new(scan.bounds.range().clone(), scan.backward);
        if scan.bounds.is_empty() {
            walk.finish();
        }
        Self {
            scan,
            walk,
            seen,
            begun: false,
            statistics: RunStatistics::default(),
        }
    }

    pub(super) fn step(&mut self, context: &mut Context<'_>, emit: Emit<'_>) -> Result<Step> {
        self.statistics.works += 1;
        if self.walk.needs_cursor() && !self.open(context)? {
            return Ok(Step::Stale);
        }
        if self.walk.advance(false)? == Arrival::End || self.walk.is_finished() {
            self.statistics.ended = true;
            return Ok(Step::End);
        }
        self.statistics.keys_examined += 1;
        match self
            .scan
            .bounds
            .check(self.walk.entry().0, self.scan.backward)?
        {
            Verdict::Inside => self.statistics.keys_matched += 1,
            Verdict::Seek(target) => {
                self.statistics.seeks += 1;
                self.walk.seek(&target)?;
                return Ok(Step::Working);
            }
            Verdict::Done => {
                self.walk.finish();
                self.statistics.ended = true;
                return Ok(Step::End);
            }
        }
        let found = if self.scan.clustered {
            self.emit_record(context, emit)?
        } else {
            self.follow(context, emit)?
        };
        if !found {
            return Ok(Step::Working);
        }
        self.statistics.emitted += 1;
        Ok(Step::Emitted)
    }

    /// Takes a cursor; false if the plan rests on a mask that was too old from the beginning, or on an
    /// index that was gone.
    ///
    /// # Errors
    /// `QueryPlanKilled` when the index was dropped since the last batch.
    fn open(&mut self, context: &mut Context<'_>) -> Result<bool> {
        if !self.scan.clustered {
            context.view.hold()?;
        }
        self.walk
            .attach(context.view.cursor(self.walk.range().clone())?);
        // An index is marked as dropped before its entries go, and the mask grows before the first entry
        // that needs it is committed, so that reading both after the state was fixed misses nothing.
        if !self.scan.clustered && self.scan.index.is_dropped() {
            if !self.begun && context.fresh {
                return Ok(false);
            }
            return Err(Error::new(
                ErrorCode::QueryPlanKilled,
                format!("index '{}' dropped", self.scan.index.spec.name),
            ));
        }
        if self.scan.index.multikey() != self.scan.multikey {
            if !self.begun && context.fresh {
                return Ok(false);
            }
            self.distrust(context);
        }
        if !self.begun {
            self.begun = true;
            self.statistics.seeks += 1;
            self.scan.index.record_access();
        }
        Ok(true)
    }

    /// Goes on with an index in which documents have several keys, although the bounds were made for
    /// one key each: every document is checked against the whole filter.
    fn distrust(&mut self, context: &Context<'_>) {
        self.scan.multikey = self.scan.index.multikey();
        self.scan.filter = Some(Arc::new(context.query.filter.clone()));
        self.scan.covered = false;
        self.seen.get_or_insert_with(Deduplicator::default);
    }

    /// Emits the record that the walk is on; whether it satisfies the filter.
    fn emit_record(&mut self, context: &mut Context<'_>, emit: Emit<'_>) -> Result<bool> {
        let (key, value) = self.walk.entry();
        let document = RawDocument::from_bytes(value)?;
        self.statistics.documents_examined += u64::from(!self.scan.covered);
        if !context.accepts(self.scan.filter.as_deref(), document)? {
            return Ok(false);
        }
        let record_id = &key[Ident::LEN..];
        emit(Found {
            record_id,
            document,
            entry: None,
        })?;
        Ok(true)
    }

    /// Follows the entry that the walk is on to its record and emits that; whether it is new and
    /// satisfies the filter.
    fn follow(&mut self, context: &mut Context<'_>, emit: Emit<'_>) -> Result<bool> {
        let (key, value) = self.walk.entry();
        let entry = IndexEntry::parse(self.scan.index.spec.unique, key, value)?;
        if let Some(seen) = &mut self.seen {
            if !seen.insert(entry.record_id, context.view, context.evaluation.operation)? {
                self.statistics.duplicates_dropped += 1;
                return Ok(false);
            }
        }
        let filter = self.scan.filter.as_deref();
        let key_parts = Some((entry.fields, entry.type_bits));
        if !context.documents_wanted && filter.is_none() {
            let document = RawDocument::from_bytes(NO_DOCUMENT)?;
            emit(Found {
                record_id: entry.record_id,
                document,
                entry: key_parts,
            })?;
            return Ok(true);
        }
        if self.scan.covered {
            let spec = &self.scan.index.spec;
            if let Some(document) = rebuild::document(spec, entry.fields, entry.type_bits)? {
                let document = RawDocumentBuf::try_from(&document)?;
                if !context.accepts(filter, &document)? {
                    return Ok(false);
                }
                emit(Found {
                    record_id: entry.record_id,
                    document: &document,
                    entry: key_parts,
                })?;
                return Ok(true);
            }
        }
        self.statistics.documents_examined += 1;
        let record_key = context.collection.record_key(entry.record_id);
        let mut accepted = false;
        context.view.get_with(&record_key, &mut |bytes| {
            let document = RawDocument::from_bytes(bytes)?;
            accepted = context.accepts(filter, document)?;
            if accepted {
                emit(Found {
                    record_id: entry.record_id,
                    document,
                    entry: key_parts,
                })?;
            }
            Ok(())
        })?;
        Ok(accepted)
    }

    pub(super) fn save(&mut self) {
        self.walk.save();
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.seen.as_ref().map_or(0, Deduplicator::memory_bytes)
    }
}
