//! Capped collections, which remove their own oldest documents.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use bson::{RawDocument, RawDocumentBuf};
use millrace_engine::{Counter, Cursor};
use millrace_value::ident::Ident;
use millrace_value::{Error, ErrorCode, ReadView, Result};

use super::{WriteSet, internal};
use crate::{Capped, Collection, Sequence};

/// Inserts into a capped collection. It holds the collection's sequence from taking a number to the
/// commit, so that documents become visible in the order of their numbers.
pub(crate) struct CappedWriter<'a> {
    view: &'a ReadView,
    collection: &'a Collection,
    limits: Capped,
    sequence: MutexGuard<'a, Option<Sequence>>,
    taken: Sequence,
    /// The number of the first document that this writer adds: smaller ones are in the engine.
    added: u64,
    /// At the oldest document of the engine that is not removed yet; none before the first removal.
    oldest: Option<Box<dyn Cursor>>,
    /// Documents and bytes once the set is committed, but for what others change meanwhile.
    held: Counter,
}

impl<'a> CappedWriter<'a> {
    /// A writer that holds the sequence from now on.
    ///
    /// # Errors
    /// `OperationNotSupportedInTransaction` at a fixed view, which does not have the numbers and documents
    /// that were added since; those of the engine.
    pub(crate) fn new(view: &'a ReadView, collection: &'a Collection) -> Result<Self> {
        if view.is_fixed() {
            return Err(Error::new(
                ErrorCode::OperationNotSupportedInTransaction,
                format!(
                    "cannot insert into the capped collection {} while reading at a snapshot",
                    collection.namespace
                ),
            ));
        }
        let limits = collection
            .capped()
            .ok_or_else(|| internal("a sequenced collection is capped"))?;
        let sequence = collection
            .shared
            .sequence
            .lock()
            .map_err(|_| internal("an insertion into the capped collection broke down"))?;
        let taken = match *sequence {
            Some(sequence) => sequence,
            None => read_sequence(view, collection)?,
        };
        let held = view.counter(&collection.counter_key())?;
        Ok(Self {
            view,
            collection,
            limits,
            sequence,
            taken,
            added: taken.next,
            oldest: None,
            held,
        })
    }

    /// Adds a document and removes the oldest ones that no longer fit.
    pub(crate) fn insert(&mut self, set: &mut WriteSet<'_>, document: &RawDocument) -> Result<()> {
        let bytes = i64::try_from(document.as_bytes().len()).unwrap_or(i64::MAX);
        if bytes > self.limits.bytes_max {
            return Err(Error::new(
                ErrorCode::BadValue,
                format!(
                    "object to insert exceeds cappedMaxSize. size in bytes: {bytes}, max size: {}",
                    self.limits.bytes_max
                ),
            ));
        }
        set.insert(&self.taken.next.to_be_bytes(), document)?;
        self.taken.next += 1;
        self.held = self.held.plus(Counter { count: 1, bytes });
        while self.is_over() {
            if !self.remove_oldest(set)? {
                break;
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        let many = |max| self.held.count > max;
        self.held.bytes > self.limits.bytes_max || self.limits.count_max.is_some_and(many)
    }

    fn remove_oldest(&mut self, set: &mut WriteSet<'_>) -> Result<bool> {
        while let Some(number) = self.next_oldest()? {
            let record_id = number.to_be_bytes();
            self.taken.first = number + 1;
            // Another commit may have removed it since; the guard turns that into a conflict.
            let Some(document) = set.read(&record_id)? else {
                continue;
            };
            let document = RawDocumentBuf::from_bytes(document)?;
            let bytes = i64::try_from(document.as_bytes().len()).unwrap_or(i64::MAX);
            set.delete(&record_id, &document)?;
            self.held = self.held.plus(Counter {
                count: -1,
                bytes: -bytes,
            });
            return Ok(true);
        }
        Ok(false)
    }

    /// The number of the oldest document from `taken.first` on. Numbers of documents that were removed
    /// singly are stepped over by the engine, however many they are.
    fn next_oldest(&mut self) -> Result<Option<u64>> {
        let first = self.taken.first;
        if first < self.added {
            let key = self.collection.record_key(&first.to_be_bytes());
            let cursor = match &mut self.oldest {
                Some(cursor) => cursor,
                none => none.insert(self.view.cursor(self.collection.ident.range())?),
            };
            if cursor.seek(&key)? {
                return number(cursor.key()).map(Some);
            }
        }
        let first = first.max(self.added);
        Ok((first < self.taken.next).then_some(first))
    }

    /// To be called once the set is visible. The sequence stays held, so that observers learn of the
    /// insertions in the order of their numbers.
    pub(crate) fn committed(&mut self) {
        *self.sequence = Some(self.taken);
        self.collection
            .shared
            .inserts
            .fetch_add(1, Ordering::Release);
    }
}

/// The number of the document under a key.
fn number(key: &[u8]) -> Result<u64> {
    key[Ident::LEN..]
        .try_into()
        .map(u64::from_be_bytes)
        .map_err(|_| internal("a record id is damaged"))
}

fn read_sequence(view: &ReadView, collection: &Collection) -> Result<Sequence> {
    let mut cursor = view.cursor(collection.ident.range())?;
    if !cursor.seek_first()? {
        return Ok(Sequence { first: 1, next: 1 });
    }
    let first = number(cursor.key())?;
    cursor.seek_last()?;
    Ok(Sequence {
        first,
        next: number(cursor.key())? + 1,
    })
}
