//! Replacement of one document by a new version of it.

use bson::{RawDocument, RawDocumentBuf};
use millrace_engine::CommitSeq;
use millrace_value::{Error, Operation, Result};

use super::{WriteSet, retry_conflicts};
use crate::Collection;
use crate::catalog::Catalog;

/// What became of a document that was to be replaced.
#[derive(Debug)]
pub enum Replaced {
    /// It is gone, or no longer what the caller looked for.
    NoMatch,
    /// The new version is the old one.
    Unchanged {
        /// The document.
        document: RawDocumentBuf,
    },
    /// It was replaced.
    Changed {
        /// The old version.
        before: RawDocumentBuf,
        /// The new version.
        after: RawDocumentBuf,
        /// The commit.
        commit_seq: Option<CommitSeq>,
    },
}

/// Replaces the document with this record id by what `compute` makes of its present version. `compute`
/// is given the collection's present description as well. It answers none when the document is no
/// longer one to be replaced, and is called again when another commit came in between. When the
/// collection is gone, or its name, so is the document.
///
/// # Errors
/// Those of `compute`; `DuplicateKey`; 17419 for a version that is too large; the engine's.
pub fn replace_record(
    catalog: &Catalog,
    collection: &Collection,
    record_id: &[u8],
    operation: &Operation,
    mut compute: impl FnMut(&Collection, &RawDocument) -> Result<Option<RawDocumentBuf>>,
) -> Result<Replaced> {
    retry_conflicts(operation, || {
        let Some(guard) = catalog.share_same(collection) else {
            return Ok(Replaced::NoMatch);
        };
        let collection = guard.collection();
        let mut set = WriteSet::new(
            catalog.committer(),
            catalog.read_view(operation),
            collection,
        );
        let Some(before) = set.read(record_id)? else {
            return Ok(Replaced::NoMatch);
        };
        let before = RawDocumentBuf::from_bytes(before)?;
        let Some(after) = compute(collection, &before)? else {
            return Ok(Replaced::NoMatch);
        };
        if after.as_bytes() == before.as_bytes() {
            return Ok(Replaced::Unchanged { document: before });
        }
        if after.as_bytes().len() > super::document_check::DOCUMENT_BYTES_MAX {
            return Err(Error::location(
                17419,
                format!(
                    "Resulting document after update is larger than {}",
                    super::document_check::DOCUMENT_BYTES_MAX
                ),
            ));
        }
        set.replace(record_id, &before, &after)?;
        let commit_seq = set.commit()?;
        Ok(Replaced::Changed {
            before,
            after,
            commit_seq,
        })
    })
}
