//! Insertion of documents.

use bson::{RawDocument, RawDocumentBuf};
use millrace_engine::CommitSeq;
use millrace_value::{Error, ErrorCode, Operation, ReadView, Result};

use super::write_set::{WriteSet, clustered_record_id};
use super::{BYTES_PER_COMMIT, fill_zero_timestamps, latest, prepare_document, retry_conflicts};
use crate::catalog::Catalog;
use crate::{Collection, Namespace, RecordKind};

/// How many documents go into one commit at most.
const DOCUMENTS_PER_COMMIT: usize = 512;

/// The result of an insertion, whose documents fail one by one.
#[derive(Debug, Default)]
pub struct InsertOutcome {
    /// The number of documents that were inserted.
    pub inserted: u64,
    /// The errors of the documents that were not inserted, each with the position of its document
    /// from 0, in ascending order.
    pub errors: Vec<(usize, Error)>,
    /// The commit sequence number of the last commit; `None` if nothing was committed.
    pub commit_seq: Option<CommitSeq>,
}

/// The ways in which documents are inserted.
#[derive(Clone, Copy, Debug)]
pub struct InsertOptions {
    /// Whether the first failure ends it; otherwise the rest are still tried.
    pub ordered: bool,
    /// Whether documents are stored that the collection's validator refuses.
    pub bypass_validation: bool,
    /// Whether zero timestamps are stored as they are; otherwise the present time takes their place.
    pub keep_zero_timestamps: bool,
}

/// Inserts documents.
///
/// # Errors
/// Failures that concern no single document: interruption, a broken engine. What was inserted before
/// stays.
pub fn insert_documents(
    catalog: &Catalog,
    namespace: &Namespace,
    documents: &[&RawDocument],
    options: InsertOptions,
    operation: &Operation,
) -> Result<InsertOutcome> {
    let mut outcome = InsertOutcome::default();
    let mut next = 0;
    while next < documents.len() {
        operation.check()?;
        let taken = retry_conflicts(operation, || {
            insert_some(catalog, namespace, documents, next, options, operation)
        })?;
        next += taken.inserted;
        outcome.inserted += taken.inserted as u64;
        outcome.commit_seq = latest(outcome.commit_seq, taken.commit_seq);
        if let Some(error) = taken.failed {
            outcome.errors.push((next, error));
            next += 1;
            if options.ordered {
                break;
            }
        }
    }
    Ok(outcome)
}

/// Whether a failure ends the whole command instead of one document's insertion.
pub fn is_fatal(error: &Error) -> bool {
    matches!(
        error.code(),
        ErrorCode::InternalError
            | ErrorCode::OutOfDiskSpace
            | ErrorCode::Interrupted
            | ErrorCode::InterruptedAtShutdown
            | ErrorCode::MaxTimeMSExpired
            | ErrorCode::NotImplemented
    )
}

/// One commit's worth of an insertion.
struct Taken {
    inserted: usize,
    /// Why the document after the inserted ones was not.
    failed: Option<Error>,
    commit_seq: Option<CommitSeq>,
}

fn insert_some(
    catalog: &Catalog,
    namespace: &Namespace,
    documents: &[&RawDocument],
    first: usize,
    options: InsertOptions,
    operation: &Operation,
) -> Result<Taken> {
    let guard = match catalog.find_or_create(namespace, &**operation.environment()) {
        // MongoDB reports this for each document, as it does what concerns the document.
        Err(error) if error.code() == ErrorCode::CommandNotSupportedOnView => {
            return Ok(Taken {
                inserted: 0,
                failed: Some(error),
                commit_seq: None,
            });
        }
        other => other?,
    };
    let collection = guard.collection();
    let view = catalog.read_view(operation);
    let validator = if options.bypass_validation {
        None
    } else {
        collection.validator()?
    };
    let mut sequence = match collection.kind {
        RecordKind::Clustered => None,
        RecordKind::Sequenced => Some(super::capped::CappedWriter::new(view, collection)?),
    };
    let mut set = WriteSet::new(catalog.committer(), view, collection);
    let mut inserted = 0;
    let mut failed = None;
    for document in documents[first..].iter().take(DOCUMENTS_PER_COMMIT) {
        if set.bytes() > BYTES_PER_COMMIT {
            break;
        }
        let result = (|| {
            let environment = &**operation.environment();
            let prepared = prepare_document(document, environment)?;
            let document: &RawDocument = prepared.as_deref().unwrap_or(document);
            let filled = if options.keep_zero_timestamps {
                None
            } else {
                fill_zero_timestamps(document, environment)?
            };
            let document: &RawDocument = filled.as_deref().unwrap_or(document);
            if let Some(validator) = &validator {
                validator.check(document, operation)?;
            }
            match &mut sequence {
                None => set.insert(&record_id_of(collection, document)?, document),
                Some(capped) => capped.insert(&mut set, document),
            }
        })();
        match result {
            Ok(()) => {}
            // The set may be half of something.
            Err(error) if is_fatal(&error) => return Err(error),
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
        inserted += 1;
    }
    let commit_seq = set.commit_and(|| {
        if let Some(capped) = &mut sequence {
            capped.committed();
        }
    })?;
    Ok(Taken {
        inserted,
        failed,
        commit_seq,
    })
}

/// The record id of a document of a clustered collection.
fn record_id_of(collection: &Collection, document: &RawDocument) -> Result<Vec<u8>> {
    let id = document
        .get("_id")?
        .ok_or_else(|| super::internal("a document has no _id"))?;
    clustered_record_id(id, collection.collation())
}

/// Inserts one document that is already prepared (an upsert's), and returns the commit.
///
/// # Errors
/// `DuplicateKey`, `DocumentValidationFailure`, and those of the engine.
pub fn insert_one(
    catalog: &Catalog,
    namespace: &Namespace,
    document: &RawDocumentBuf,
    bypass_validation: bool,
    operation: &Operation,
) -> Result<Option<CommitSeq>> {
    retry_conflicts(operation, || {
        let guard = catalog.find_or_create(namespace, &**operation.environment())?;
        let collection = guard.collection();
        if !bypass_validation {
            if let Some(validator) = collection.validator()? {
                validator.check(document, operation)?;
            }
        }
        let view = catalog.read_view(operation);
        insert_into(catalog, view, collection, document)
    })
}

fn insert_into(
    catalog: &Catalog,
    view: &ReadView,
    collection: &Collection,
    document: &RawDocumentBuf,
) -> Result<Option<CommitSeq>> {
    let mut set = WriteSet::new(catalog.committer(), view, collection);
    match collection.kind {
        RecordKind::Clustered => {
            set.insert(&record_id_of(collection, document)?, document)?;
            set.commit()
        }
        RecordKind::Sequenced => {
            let mut capped = super::capped::CappedWriter::new(view, collection)?;
            capped.insert(&mut set, document)?;
            set.commit_and(|| capped.committed())
        }
    }
}
