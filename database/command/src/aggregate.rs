//! `aggregate`.

use std::sync::Arc;

use millrace_value::{Error, ErrorCode, Operation, Result};

use super::aggregation::{AggregateRequest, OpenQueries, open_stream};
use super::cursors::{OpenCursor, Source};
use super::first_batch::{FIRST_BATCH_COUNT, first_batch};
use super::{CommandRequest, Database, Effects};

/// `aggregate`: runs a pipeline and returns its first batch.
pub(super) fn aggregate(
    database: &Arc<Database>,
    request: &CommandRequest<'_>,
    operation: &Operation,
    reply: &mut Vec<u8>,
) -> Result<Effects> {
    let parsed = AggregateRequest::parse(database, request, false, operation)?;
    if parsed.explain {
        let verbosity = millrace_query::executor::Verbosity::QueryPlanner;
        return super::explain::explain_aggregate(
            database, request, &parsed, verbosity, operation, reply,
        );
    }
    let writes = parsed.pipeline.writes_to().is_some();
    if writes && parsed.batch_size == Some(0) {
        return Err(Error::new(
            ErrorCode::FailedToParse,
            "a pipeline that ends with $out or $merge cannot have a batch size of zero",
        ));
    }
    let view = database.read_view(operation);
    if writes && view.is_fixed() {
        // What the stage writes to is looked for in the present state, and would be read in another one.
        return Err(Error::new(
            ErrorCode::OperationNotSupportedInTransaction,
            "a pipeline that ends with $out or $merge cannot read at a snapshot",
        ));
    }
    let queries = Arc::new(OpenQueries::default());
    let stream = open_stream(
        database,
        request.database,
        &parsed,
        &queries,
        view,
        operation,
    )?;
    let cursor = OpenCursor::new(
        parsed.namespace,
        Source::Stream(stream, queries),
        request.session,
    );
    let batch_size = parsed.batch_size.unwrap_or(FIRST_BATCH_COUNT);
    let mut effects = first_batch(database, cursor, batch_size, false, operation, reply)?;
    if writes {
        effects.written = Some(database.engine().last_commit_seq());
    }
    Ok(effects)
}
