//! Documents that are past their time: indexes with `expireAfterSeconds`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bson::{DateTime, Document, RawDocumentBuf, doc};
use millrace_collection::index::IndexSpec;
use millrace_collection::latest;
use millrace_engine::CommitSeq;
use millrace_matcher::Matcher;
use millrace_query::planner::Hint;
use millrace_value::{ErrorCode, Operation, Result};

use super::Database;
use super::delete::{DeleteStatement, run_delete};
use super::variables::Bindings;

/// Deletes every document that is past its time. One collection that cannot be swept does not keep the
/// others from it.
///
/// # Errors
/// Interruption, and those of the engine.
pub(super) fn delete_expired(
    database: &Arc<Database>,
    operation: &Operation,
) -> Result<Option<CommitSeq>> {
    let mut commit_seq = None;
    for name in database.catalog.databases() {
        for collection in database.catalog.collections(&name) {
            for index in collection.indexes.iter().filter(|index| index.ready) {
                operation.check()?;
                let Some(filter) = expired_filter(&index.spec, operation) else {
                    continue;
                };
                match delete_by(
                    database,
                    &collection.namespace,
                    &filter,
                    &index.spec,
                    operation,
                ) {
                    Ok(deleted) => commit_seq = latest(commit_seq, deleted),
                    Err(error) if error.code() == ErrorCode::InternalError => return Err(error),
                    Err(error) => tracing::warn!(
                        namespace = %collection.namespace,
                        index = index.spec.name,
                        %error,
                        "documents past their time could not be deleted"
                    ),
                }
            }
        }
    }
    Ok(commit_seq)
}

/// What the documents past their time look like; none if the index lets nothing expire.
fn expired_filter(spec: &IndexSpec, operation: &Operation) -> Option<Document> {
    let seconds = spec.expire_after_seconds?;
    // Only indexes on one field expire documents.
    let [field] = spec.fields.as_slice() else {
        return None;
    };
    let milliseconds = i64::try_from(seconds)
        .unwrap_or(i64::MAX)
        .saturating_mul(1000);
    let before = operation
        .environment()
        .wall_clock_ms()
        .saturating_sub(milliseconds);
    let expired = doc! {field.path.to_string(): {"$lte": DateTime::from_millis(before)}};
    Some(match &spec.partial_filter {
        Some(filter) => doc! {"$and": [expired, filter.clone()]},
        None => expired,
    })
}

fn delete_by(
    database: &Arc<Database>,
    namespace: &millrace_collection::Namespace,
    filter: &Document,
    spec: &IndexSpec,
    operation: &Operation,
) -> Result<Option<CommitSeq>> {
    let raw = RawDocumentBuf::try_from(filter)?;
    let bindings = Bindings::system(operation, spec.collation);
    let statement = DeleteStatement {
        filter: &raw,
        matcher: Matcher::parse(&raw, &bindings.scope)?,
        bindings,
        one: false,
        sort: None,
        hint: Some(Hint::Internal(spec.name.clone())),
    };
    let result = run_delete(database, namespace, &statement, operation)?;
    database
        .expired_documents
        .fetch_add(result.deleted, Ordering::Relaxed);
    Ok(result.commit_seq)
}
