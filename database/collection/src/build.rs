//! Building an index on a collection that has documents.

use std::sync::Arc;

use bson::RawDocumentBuf;
use millrace_engine::CommitSeq;
use millrace_value::ident::Ident;
use millrace_value::{Error, ErrorCode, Operation, Result};

use super::{BYTES_PER_COMMIT, WriteSet, retry_conflicts};
use crate::catalog::Catalog;
use crate::{Collection, Index, Namespace};

/// How many documents one commit enters at most.
const DOCUMENTS_PER_COMMIT: usize = 128;

/// Enters the documents that were there before the indexes into them, then marks them as ready. Reads
/// and writes go on meanwhile: writers maintain the indexes from the moment they were added, and what
/// they commit between reading a document here and entering it makes that commit conflict and be
/// repeated with the new version.
///
/// `added` are indexes that the caller added: when the build fails, or the server stops, they are
/// removed. `joined` are indexes that another call is building: both calls enter all documents, which has
/// the effect of entering them once, and the call that ends first makes the indexes ready.
///
/// # Errors
/// `DuplicateKey` for a unique index, those of key generation, interruption, and the engine's;
/// `IndexBuildAborted` when the collection or one of the indexes was dropped.
pub fn build_indexes(
    catalog: &Catalog,
    namespace: &Namespace,
    added: &[Arc<Index>],
    joined: &[Arc<Index>],
    operation: &Operation,
) -> Result<Option<CommitSeq>> {
    let wanted = added.iter().chain(joined);
    let unfinished: Vec<_> = wanted.filter(|index| !index.ready).cloned().collect();
    if unfinished.is_empty() {
        return Ok(None);
    }
    let built = enter_all(catalog, namespace, &unfinished, operation)
        .and_then(|()| catalog.finish_indexes(namespace, &unfinished));
    match built {
        Ok(commit_seq) => Ok(Some(commit_seq)),
        Err(error) => {
            let removed = catalog.change_indexes(namespace, |present| {
                present.retain(|index| !added.iter().any(|gone| gone.ident == index.ident));
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
    let dropped = || {
        Error::new(
            ErrorCode::IndexBuildAborted,
            format!("Index build on {namespace} aborted: the collection was dropped"),
        )
    };
    let ident = catalog.find(namespace).ok_or_else(dropped)?.ident;
    let mut cursor = catalog.latest().cursor(ident.range())?;
    let mut found = cursor.seek_first()?;
    while found {
        operation.check()?;
        let mut record_ids = Vec::with_capacity(DOCUMENTS_PER_COMMIT);
        while found && record_ids.len() < DOCUMENTS_PER_COMMIT {
            record_ids.push(cursor.key()[Ident::LEN..].to_vec());
            found = cursor.next()?;
        }
        let mut entered = 0;
        while entered < record_ids.len() {
            entered += retry_conflicts(operation, || {
                let guard = catalog.share(namespace).ok_or_else(dropped)?;
                let collection: &Collection = guard.collection();
                if collection.ident != ident {
                    return Err(dropped());
                }
                let present = still_there(collection, indexes)?;
                enter_some(catalog, collection, &present, &record_ids[entered..])
            })?;
        }
    }
    Ok(())
}

/// The present descriptions of the indexes: entries of an index that has been dropped would stay for
/// ever.
fn still_there<'a>(
    collection: &'a Collection,
    indexes: &[Arc<Index>],
) -> Result<Vec<&'a Arc<Index>>> {
    let find = |index: &Arc<Index>| {
        let mut all = collection.indexes.iter();
        all.find(|other| other.ident == index.ident).ok_or_else(|| {
            Error::new(
                ErrorCode::IndexBuildAborted,
                format!("Index build aborted: {} was dropped", index.spec.name),
            )
        })
    };
    indexes.iter().map(find).collect()
}

/// Enters records in one commit until it is large enough, and returns how many.
fn enter_some(
    catalog: &Catalog,
    collection: &Collection,
    indexes: &[&Arc<Index>],
    record_ids: &[Vec<u8>],
) -> Result<usize> {
    let mut set = WriteSet::new(catalog.committer(), catalog.latest(), collection);
    let mut entered = 0;
    for record_id in record_ids {
        if set.bytes() > BYTES_PER_COMMIT {
            break;
        }
        entered += 1;
        let Some(document) = set.read(record_id)? else {
            continue;
        };
        let document = RawDocumentBuf::from_bytes(document)?;
        for index in indexes {
            set.index_existing(index, record_id, &document)?;
        }
    }
    set.commit()?;
    Ok(entered)
}
