//! A look-up by `_id`.

use bson::{Bson, RawDocument};
use millrace_collection::RecordKind;
use millrace_collection::index::IndexEntry;
use millrace_value::Result;
use millrace_value::key::TypeBits;

use super::source::{Context, Emit, Found, Step};
use super::statistics::RunStatistics;

/// The stage of a running plan that finds the document with one `_id`.
#[derive(Debug)]
pub(super) struct IdLookupStage {
    id: Bson,
    done: bool,
    pub(super) statistics: RunStatistics,
}

impl IdLookupStage {
    pub(super) fn new(id: Bson) -> Self {
        Self {
            id,
            done: false,
            statistics: RunStatistics::default(),
        }
    }

    pub(super) fn step(&mut self, context: &mut Context<'_>, emit: Emit<'_>) -> Result<Step> {
        if self.done {
            return Ok(Step::End);
        }
        self.done = true;
        self.statistics.works += 1;
        self.statistics.ended = true;
        let mut id = Vec::new();
        context.collection.collation().encode_key_bson(
            &mut id,
            &mut TypeBits::default(),
            &self.id,
            false,
        )?;
        let record_id = match context.collection.kind {
            RecordKind::Clustered => Some(id),
            RecordKind::Sequenced => Self::look_up(context, &id)?,
        };
        let Some(record_id) = record_id else {
            return Ok(Step::End);
        };
        let found =
            context
                .view
                .get_with(&context.collection.record_key(&record_id), &mut |bytes| {
                    let document = RawDocument::from_bytes(bytes)?;
                    emit(Found {
                        record_id: &record_id,
                        document,
                        entry: None,
                    })
                })?;
        if !found {
            return Ok(Step::End);
        }
        self.statistics.keys_examined += 1;
        self.statistics.documents_examined += 1;
        self.statistics.emitted += 1;
        Ok(Step::Emitted)
    }

    /// The record id that the index on `_id` has for an encoded `_id`.
    fn look_up(context: &mut Context<'_>, id: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some(index) = context.collection.id_index() else {
            return Ok(None);
        };
        context.view.hold()?;
        let key = index.ident.key(id);
        let mut record_id = None;
        context.view.get_with(&key, &mut |value| {
            record_id = Some(
                IndexEntry::parse(index.spec.unique, &key, value)?
                    .record_id
                    .to_vec(),
            );
            Ok(())
        })?;
        Ok(record_id)
    }
}
