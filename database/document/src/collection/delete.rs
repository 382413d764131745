//! Removal of documents.

use bson::{RawDocument, RawDocumentBuf};
use millrace_engine::Optime;

use super::{WriteSet, latest, retry_conflicts};
use crate::catalog::{Catalog, Ident, Namespace};
use crate::{Operation, Result};

/// Removes the document with this record id if `is_wanted` says so of its present version, and returns
/// that version.
///
/// # Errors
/// Those of `is_wanted` and of the engine.
pub fn delete_record(
    catalog: &Catalog,
    namespace: &Namespace,
    record_id: &[u8],
    operation: &Operation,
    mut is_wanted: impl FnMut(&RawDocument) -> Result<bool>,
) -> Result<Option<(RawDocumentBuf, Option<Optime>)>> {
    retry_conflicts(operation, || {
        let Some(guard) = catalog.share(namespace) else {
            return Ok(None);
        };
        let mut set = WriteSet::new(&**catalog.engine(), guard.collection());
        let Some(document) = set.read(record_id)? else {
            return Ok(None);
        };
        let document = RawDocumentBuf::from_bytes(document)?;
        if !is_wanted(&document)? {
            return Ok(None);
        }
        set.delete(record_id, &document)?;
        let optime = set.commit()?;
        Ok(Some((document, optime)))
    })
}

/// How many documents one commit removes when all are.
const DELETES_PER_COMMIT: usize = 256;

/// Removes every document, keeping the collection and its indexes, and returns how many there were.
///
/// # Errors
/// The operation's interruption and those of the engine.
pub fn delete_all_records(
    catalog: &Catalog,
    namespace: &Namespace,
    operation: &Operation,
) -> Result<(u64, Option<Optime>)> {
    let mut removed = 0;
    let mut optime = None;
    loop {
        operation.check()?;
        let (count, committed) = retry_conflicts(operation, || {
            let Some(guard) = catalog.share(namespace) else {
                return Ok((0, None));
            };
            let collection = guard.collection();
            let engine = &**catalog.engine();
            let mut set = WriteSet::new(engine, collection);
            let mut cursor = engine.cursor(collection.ident.range())?;
            let mut found = cursor.seek_first()?;
            let mut count = 0_u64;
            while found && count < DELETES_PER_COMMIT as u64 {
                let record_id = cursor.key()[Ident::LEN..].to_vec();
                if let Some(document) = set.read(&record_id)? {
                    set.delete(&record_id, &RawDocumentBuf::from_bytes(document)?)?;
                    count += 1;
                }
                found = cursor.next()?;
            }
            drop(cursor);
            Ok((count, set.commit()?))
        })?;
        optime = latest(optime, committed);
        removed += count;
        if count == 0 {
            return Ok((removed, optime));
        }
    }
}
