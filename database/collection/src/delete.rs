//! Removal of documents.

use bson::{RawDocument, RawDocumentBuf};
use millrace_engine::CommitSeq;
use millrace_value::ident::Ident;
use millrace_value::{Operation, ReadView, Result};

use super::{BYTES_PER_COMMIT, WriteSet, latest, retry_conflicts};
use crate::catalog::Catalog;
use crate::{Collection, Namespace};

/// Removes the document with this record id if `is_wanted` says so of its present version, and returns
/// that version. When the collection is gone, or its name, so is the document.
///
/// # Errors
/// Those of `is_wanted` and of the engine.
pub fn delete_record(
    catalog: &Catalog,
    collection: &Collection,
    record_id: &[u8],
    operation: &Operation,
    mut is_wanted: impl FnMut(&RawDocument) -> Result<bool>,
) -> Result<Option<(RawDocumentBuf, Option<CommitSeq>)>> {
    retry_conflicts(operation, || {
        let Some(guard) = catalog.share_same(collection) else {
            return Ok(None);
        };
        let view = catalog.read_view(operation);
        let mut set = WriteSet::new(catalog.committer(), view, guard.collection());
        let Some(document) = set.read(record_id)? else {
            return Ok(None);
        };
        let document = RawDocumentBuf::from_bytes(document)?;
        if !is_wanted(&document)? {
            return Ok(None);
        }
        set.delete(record_id, &document)?;
        let commit_seq = set.commit()?;
        Ok(Some((document, commit_seq)))
    })
}

/// How many documents one commit removes at most when all are.
const DELETES_PER_COMMIT: u64 = 256;

/// Removes every document, keeping the collection and its indexes, and returns how many there were.
/// What others insert meanwhile may stay.
///
/// # Errors
/// The operation's interruption and those of the engine.
pub fn delete_all_records(
    catalog: &Catalog,
    namespace: &Namespace,
    operation: &Operation,
) -> Result<(u64, Option<CommitSeq>)> {
    let mut sweep = Sweep::default();
    while !sweep.ended {
        operation.check()?;
        sweep = retry_conflicts(operation, || {
            let Some(guard) = catalog.share(namespace) else {
                return Ok(Sweep {
                    ended: true,
                    ..sweep.clone()
                });
            };
            sweep.go_on(catalog, catalog.read_view(operation), guard.collection())
        })?;
    }
    Ok((sweep.removed, sweep.commit_seq))
}

/// How far the removal of all documents has come.
#[derive(Clone, Debug, Default)]
struct Sweep {
    /// The last key that was looked at. The next commit begins there, and not at the keys that were
    /// just deleted, over which a cursor would have to step one by one.
    position: Option<Vec<u8>>,
    /// No key behind this one was there at the beginning.
    last: Vec<u8>,
    removed: u64,
    commit_seq: Option<CommitSeq>,
    ended: bool,
}

impl Sweep {
    /// One more commit.
    fn go_on(&self, catalog: &Catalog, view: &ReadView, collection: &Collection) -> Result<Self> {
        let mut next = self.clone();
        let mut set = WriteSet::new(catalog.committer(), view, collection);
        let mut cursor = view.cursor(collection.ident.range())?;
        let mut found = match &self.position {
            Some(position) => cursor.seek(position)?,
            None => {
                if cursor.seek_last()? {
                    next.last = cursor.key().to_vec();
                }
                cursor.seek_first()?
            }
        };
        let mut count = 0;
        while found && count < DELETES_PER_COMMIT && set.bytes() < BYTES_PER_COMMIT {
            let key = cursor.key();
            if *key > *next.last {
                found = false;
                break;
            }
            next.position = Some(key.to_vec());
            let record_id = key[Ident::LEN..].to_vec();
            if let Some(document) = set.read(&record_id)? {
                set.delete(&record_id, &RawDocumentBuf::from_bytes(document)?)?;
                count += 1;
            }
            found = cursor.next()?;
        }
        drop(cursor);
        next.commit_seq = latest(self.commit_seq, set.commit()?);
        next.removed += count;
        next.ended = !found;
        Ok(next)
    }
}
