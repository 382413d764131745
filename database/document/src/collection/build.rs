//! Building an index on a collection that has documents.

use std::sync::Arc;

use bson::RawDocumentBuf;
use millrace_engine::Optime;

use super::{WriteSet, retry_conflicts};
use crate::catalog::{Catalog, Collection, Ident, Index, Namespace};
use crate::{Error, ErrorCode, Operation, Result};

/// How many documents one commit enters.
const DOCUMENTS_PER_COMMIT: usize = 128;

/// Enters the documents that were there before the indexes into them, then marks them as ready. Reads
/// and writes go on meanwhile: writers maintain the indexes from the moment they were added, and what
/// they commit between reading a document here and entering it makes that commit conflict and be
/// repeated with the new version. When it fails, or the server stops, the indexes are removed.
///
/// # Errors
/// `DuplicateKey` for a unique index, those of key generation, interruption, and the engine's.
pub fn build_indexes(
    catalog: &Catalog,
    namespace: &Namespace,
    indexes: &[Arc<Index>],
    operation: &Operation,
) -> Result<Option<Optime>> {
    let unfinished: Vec<_> = indexes
        .iter()
        .filter(|index| !index.ready)
        .cloned()
        .collect();
    if unfinished.is_empty() {
        return Ok(None);
    }
    match enter_all(catalog, namespace, &unfinished, operation) {
        Ok(()) => catalog.finish_indexes(namespace, &unfinished).map(Some),
        Err(error) => {
            let removed = catalog.change_indexes(namespace, |present| {
                present.retain(|index| !unfinished.iter().any(|gone| gone.ident == index.ident));
                Ok(())
            });
            match removed {
                Err(other) if other.code() != ErrorCode::NamespaceNotFound => Err(other),
                _ => Err(error),
            }
        }
    }
}

fn enter_all(
    catalog: &Catalog,
    namespace: &Namespace,
    indexes: &[Arc<Index>],
    operation: &Operation,
) -> Result<()> {
    let aborted = || {
        Error::new(
            ErrorCode::IndexBuildAborted,
            format!("Index build on {namespace} aborted: the collection was dropped"),
        )
    };
    let ident = catalog.find(namespace).ok_or_else(aborted)?.ident;
    let mut cursor = catalog.engine().cursor(ident.range())?;
    let mut found = cursor.seek_first()?;
    while found {
        operation.check()?;
        let mut record_ids = Vec::with_capacity(DOCUMENTS_PER_COMMIT);
        while found && record_ids.len() < DOCUMENTS_PER_COMMIT {
            record_ids.push(cursor.key()[Ident::LEN..].to_vec());
            found = cursor.next()?;
        }
        retry_conflicts(operation, || {
            let guard = catalog.share(namespace).ok_or_else(aborted)?;
            let collection: &Collection = guard.collection();
            if collection.ident != ident {
                return Err(aborted());
            }
            let mut set = WriteSet::new(&**catalog.engine(), collection);
            for record_id in &record_ids {
                let Some(document) = set.read(record_id)? else {
                    continue;
                };
                let document = RawDocumentBuf::from_bytes(document)?;
                for index in indexes {
                    set.index_existing(index, record_id, &document)?;
                }
            }
            set.commit()
        })?;
    }
    Ok(())
}
