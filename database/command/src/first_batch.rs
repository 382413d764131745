//! The reply of a command that opens a cursor: its first batch.

use std::sync::Arc;

use millrace_value::{DocumentWriter, Operation, Result};

use super::cursors::{BatchEnd, OpenCursor};
use super::{Counts, Database, Effects};

/// How many documents the first batch holds unless the client says otherwise.
pub(crate) const FIRST_BATCH_COUNT: u64 = 101;

/// Writes a first batch of at most `batch_size` documents and registers the cursor if there may be
/// more.
pub(crate) fn first_batch(
    database: &Arc<Database>,
    mut cursor: OpenCursor,
    batch_size: u64,
    single_batch: bool,
    operation: &Operation,
    reply: &mut Vec<u8>,
) -> Result<Effects> {
    let start = reply.len();
    let mut writer = DocumentWriter::new(reply);
    writer.open_document("cursor");
    writer.open_array("firstBatch");
    let (count, mut end) = cursor.fill(operation, &mut writer, batch_size)?;
    writer.close();
    if cursor.tailable {
        end = BatchEnd::Full;
    }
    let namespace = cursor.namespace.clone();
    let id = if single_batch || end == BatchEnd::Exhausted {
        0
    } else {
        database
            .cursors
            .register(cursor, &**operation.environment())
    };
    writer.int64("id", id);
    writer.string("ns", namespace.as_str());
    writer.close();
    writer.double("ok", 1.0);
    writer.finish();
    debug_assert!(reply.len() > start, "a reply was written");
    Ok(Effects {
        counts: Counts {
            returned: count,
            ..Counts::default()
        },
        ..Effects::default()
    })
}
