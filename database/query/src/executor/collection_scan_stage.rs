//! A scan of a whole collection.

use std::sync::Arc;

use bson::RawDocument;
use millrace_collection::{Collection, RecordKind};
use millrace_matcher::Matcher;
use millrace_value::ident::Ident;
use millrace_value::{Error, ErrorCode, Result};

use super::source::{Context, Emit, Found, Step};
use super::statistics::RunStatistics;
use super::walk::{Arrival, Walk};
use crate::planner::CollectionScan;

/// The stage that reads every document of a collection in natural order.
#[derive(Debug)]
pub(super) struct CollectionScanStage {
    walk: Walk,
    filter: Option<Arc<Matcher>>,
    backward: bool,
    /// Whether more documents may come after the end.
    tailable: bool,
    pub(super) statistics: RunStatistics,
}

impl CollectionScanStage {
    pub(super) fn new(scan: &CollectionScan, collection: &Collection, tailable: bool) -> Self {
        Self {
            walk: Walk::new(collection.ident.range(), scan.backward),
            filter: scan.filter.clone(),
            backward: scan.backward,
            tailable: tailable && !scan.backward,
            statistics: RunStatistics::default(),
        }
    }

    pub(super) fn step(&mut self, context: &mut Context<'_>, emit: Emit<'_>) -> Result<Step> {
        self.statistics.works += 1;
        if self.walk.needs_cursor() {
            self.walk
                .attach(context.view.cursor(self.walk.range().clone())?);
        }
        match self.walk.advance(self.tailable)? {
            Arrival::End => {
                self.statistics.ended = true;
                return Ok(Step::End);
            }
            // The documents of a capped collection disappear from its beginning: a reader whose place
            // is gone has missed some.
            Arrival::Displaced
                if context.collection.kind == RecordKind::Sequenced && !self.backward =>
            {
                return Err(Error::new(
                    ErrorCode::CappedPositionLost,
                    "CollectionScan died due to position in capped collection being deleted.",
                ));
            }
            Arrival::Displaced if self.walk.is_finished() => {
                self.statistics.ended = true;
                return Ok(Step::End);
            }
            Arrival::Displaced | Arrival::Moved => {}
        }
        self.statistics.documents_examined += 1;
        let (key, value) = self.walk.entry();
        let document = RawDocument::from_bytes(value)?;
        if !context.accepts(self.filter.as_deref(), document)? {
            return Ok(Step::Working);
        }
        emit(Found {
            record_id: &key[Ident::LEN..],
            document,
            entry: None,
        })?;
        self.statistics.emitted += 1;
        Ok(Step::Emitted)
    }

    pub(super) fn save(&mut self) {
        self.walk.save();
    }
}
