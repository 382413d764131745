//! Writes to collections: documents, their index entries and the counters, in one atomic batch.
//!
//! Every write follows one pattern, optimistic: take a read set, read what the write depends on (the
//! document, the unique keys), put the changes into a batch, commit. The engine refuses the commit
//! when another commit wrote something that was read in between, and the write begins anew. Nothing
//! is locked while documents are computed, and no write waits for another.

mod build;
mod capped;
mod delete;
mod document_check;
mod insert;
mod replace;
mod write_set;

pub use build::build_indexes;
pub use delete::{delete_all_records, delete_record};
pub use document_check::{check_document, check_id, new_object_id, prepare_document};
pub use insert::{InsertOutcome, insert_documents};
pub(crate) use insert::{insert_one, is_fatal};
pub use replace::{Replaced, replace_record};
pub use write_set::{WriteSet, clustered_key, clustered_record_id};

use millrace_engine::CommitSeq;

use crate::{Error, ErrorCode, Operation, Result};

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

pub(crate) fn internal(message: &str) -> Error {
    Error::new(ErrorCode::InternalError, message)
}
