//! Collections of BSON documents, and their indexes, on an ordered key-value engine.
//!
//! # Purpose
//! [`catalog`] knows which collections and indexes there are and keeps their descriptions in the engine;
//! [`index`] says which keys a document has in an index; the functions of this page write documents with
//! their index entries and counters; [`committer`] is the one place that commits.
//!
//! # Format
//! A key of the engine is the [`Ident`](millrace_value::ident::Ident) of a collection or an index and a
//! record id or an index key behind it; docs/decisions/key-encoding.md has the layout. Documents are
//! stored as BSON, unchanged.
//!
//! # Writes
//! Every write follows one pattern, optimistic: take a read set, read what the write depends on (the
//! document, the unique keys), put the changes into a batch, commit. The engine refuses the commit
//! when another commit wrote something that was read in between, and the write begins anew. Nothing
//! is locked while documents are computed, and no write waits for another.
//!
//! # Cost
//! An insert is one batch with the document, one entry for each index key and one counter.

#![forbid(unsafe_code)]

pub mod catalog;
pub mod committer;
pub mod index;
pub mod validation;

mod build;
mod capped;
mod collection;
mod delete;
mod document_check;
mod insert;
mod namespace;
mod replace;
mod write_set;

use millrace_engine::CommitSeq;
use millrace_value::{Error, ErrorCode, Operation, Result};

pub use build::build_indexes;
pub use collection::{
    Capped, Collection, Index, RecordKind, Sequence, TEMPORARY, as_i64, multikey_key,
};
pub use delete::{delete_all_records, delete_record};
pub use document_check::{check_document, check_id, fill_zero_timestamps, prepare_document};
pub use insert::{InsertOptions, InsertOutcome, insert_documents, insert_one, is_fatal};
pub use namespace::Namespace;
pub use replace::{Replaced, replace_record};
pub use write_set::{WriteSet, clustered_key, clustered_record_id};

/// Runs `attempt` until it succeeds or fails with something else than a write conflict. An operation at a
/// fixed view would read the same again: its conflict is the answer.
///
/// # Errors
/// What `attempt` answers, or the operation's interruption.
pub(crate) fn retry_conflicts<T>(
    operation: &Operation,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    loop {
        match attempt() {
            Err(error)
                if error.code() == ErrorCode::WriteConflict
                    && operation.view().is_none_or(|view| !view.is_fixed()) =>
            {
                operation.check()?;
            }
            other => return other,
        }
    }
}

/// At how many bytes a commit takes no further document.
const BYTES_PER_COMMIT: usize = 1024 * 1024;

/// The later of two commit sequence numbers, where either may be missing.
#[must_use]
pub fn latest(a: Option<CommitSeq>, b: Option<CommitSeq>) -> Option<CommitSeq> {
    a.max(b)
}

/// The error of a state that the crate itself must have ruled out.
#[must_use]
pub fn internal(message: &str) -> Error {
    Error::new(ErrorCode::InternalError, message)
}
