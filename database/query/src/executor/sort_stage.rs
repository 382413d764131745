//! A sort of everything the plan finds.

use bson::RawDocumentBuf;
use millrace_expression::sort::{ExternalSort, SortItem, SortPattern, Sorted};
use millrace_expression::spill::ScratchFactory;
use millrace_value::{Error, ErrorCode, Result};

use super::source::{Context, Emit, Found, Source, Step};

/// A document to be sorted, and where it is from.
#[derive(Debug)]
struct SortedRecord {
    record_id: Vec<u8>,
    document: RawDocumentBuf,
    /// The index entry that led to it: the encoded fields and their type bits.
    entry: Option<(Vec<u8>, Vec<u8>)>,
}

impl SortItem for SortedRecord {
    fn memory_bytes(&self) -> usize {
        let entry = self
            .entry
            .as_ref()
            .map_or(0, |(fields, bits)| fields.len() + bits.len());
        size_of::<Self>() + self.record_id.len() + self.document.as_bytes().len() + entry
    }

    /// `count u8 | count times (len u32 LE, bytes) | document`; the parts are the record id and, if
    /// there are three, the encoded fields and the type bits.
    fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut parts = vec![&self.record_id];
        if let Some((fields, bits)) = &self.entry {
            parts.extend([fields, bits]);
        }
        let mut bytes = vec![if parts.len() == 1 { 1 } else { 3 }];
        for part in parts {
            let len = u32::try_from(part.len()).map_err(|_| damaged())?;
            bytes.extend_from_slice(&len.to_le_bytes());
            bytes.extend_from_slice(part);
        }
        bytes.extend_from_slice(self.document.as_bytes());
        Ok(bytes)
    }

    fn from_bytes(bytes: Vec<u8>) -> Result<Self> {
        let (&count, mut rest) = bytes.split_first().ok_or_else(damaged)?;
        let mut part = || {
            let (len, after) = rest.split_first_chunk::<4>()?;
            let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
            let (part, after) = after.split_at_checked(len)?;
            rest = after;
            Some(part.to_vec())
        };
        let record_id = part().ok_or_else(damaged)?;
        let entry = match count {
            3 => Some(part().zip(part()).ok_or_else(damaged)?),
            _ => None,
        };
        Ok(Self {
            record_id,
            document: RawDocumentBuf::from_bytes(rest.to_vec())?,
            entry,
        })
    }
}

fn damaged() -> Error {
    Error::new(
        ErrorCode::InternalError,
        "scratch space does not hold what was written to it",
    )
}

/// The stage that reads its input to the end, then emits it in the order of a pattern.
#[derive(Debug)]
pub(super) struct SortStage {
    pub(super) input: Source,
    pattern: SortPattern,
    sort: Option<ExternalSort<SortedRecord>>,
    sorted: Option<Sorted<SortedRecord>>,
    /// How many documents went into the sort.
    pub(super) pushed: u64,
}

impl SortStage {
    pub(super) const fn new(input: Source, pattern: SortPattern) -> Self {
        Self {
            input,
            pattern,
            sort: None,
            sorted: None,
            pushed: 0,
        }
    }

    pub(super) fn step(&mut self, context: &mut Context<'_>, emit: Emit<'_>) -> Result<Step> {
        if let Some(sorted) = &mut self.sorted {
            let Some(record) = sorted.next(context.evaluation.operation)? else {
                return Ok(Step::End);
            };
            let entry = record
                .entry
                .as_ref()
                .map(|(fields, bits)| (&fields[..], &bits[..]));
            emit(Found {
                record_id: &record.record_id,
                document: &record.document,
                entry,
            })?;
            return Ok(Step::Emitted);
        }
        let sort = match &mut self.sort {
            Some(sort) => sort,
            none => none.insert(new_sort(context)),
        };
        let keeps_entries = context.query.return_key;
        // What is found is copied out of the engine before it is pushed: that may spill into the engine.
        let mut found = None;
        let step = self.input.step(context, &mut |record| {
            let key = self.pattern.key(record.document)?;
            if sort.accepts(&key) {
                let entry = record.entry.filter(|_| keeps_entries);
                found = Some((
                    key,
                    SortedRecord {
                        record_id: record.record_id.to_vec(),
                        document: record.document.to_owned(),
                        entry: entry.map(|(fields, bits)| (fields.to_vec(), bits.to_vec())),
                    },
                ));
            }
            Ok(())
        })?;
        match step {
            Step::Emitted => {
                self.pushed += 1;
                if let Some((key, record)) = found {
                    sort.push(context.evaluation.operation, key, record)?;
                }
            }
            Step::Working => {}
            Step::Stale => return Ok(Step::Stale),
            Step::End => {
                let sort = self.sort.take().expect("invariant: it was made above");
                self.sorted = Some(sort.finish(context.evaluation.operation)?);
                // Nothing more is read from the engine's present state.
                context.view.release();
            }
        }
        Ok(Step::Working)
    }

    pub(super) fn save(&mut self) {
        self.input.save();
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.sort.as_ref().map_or(0, ExternalSort::memory_bytes)
            + self.sorted.as_ref().map_or(0, Sorted::memory_bytes)
            + self.input.memory_bytes()
    }
}

/// A sort that keeps as many documents as the query skips and returns.
fn new_sort(context: &Context<'_>) -> ExternalSort<SortedRecord> {
    let query = context.query;
    let limit = query
        .limit
        .and_then(|limit| usize::try_from(limit.saturating_add(query.skip)).ok());
    let view = context.view.unheld().clone();
    let scratch: ScratchFactory = Box::new(move || view.scratch());
    ExternalSort::new(limit, scratch, query.allow_disk_use)
}
