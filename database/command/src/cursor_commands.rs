//! The commands on open cursors: `getMore`, `killCursors`.

use std::sync::Arc;

use bson::raw::RawBsonRef;
use millrace_collection::Namespace;
use millrace_value::{DocumentWriter, Error, ErrorCode, Operation, Result};

use super::arguments::Arguments;
use super::cursors::{BatchEnd, OpenCursor, time_left};
use super::{Await, CommandRequest, Counts, Database, Effects, reply_ok};

/// The namespace of a cursor as getMore and killCursors name it.
fn cursor_namespace(database: &str, collection: &str) -> Result<Namespace> {
    match collection.strip_prefix("$cmd.") {
        Some(command) => Namespace::of_command(database, command),
        None => Namespace::new(database, collection),
    }
}

/// The arguments of `getMore`: the cursor, its namespace, and how many documents are wanted at most.
fn parse_get_more(request: &CommandRequest<'_>) -> Result<(i64, Namespace, u64)> {
    let arguments = Arguments::of_command(
        "getMore",
        request.body,
        &[
            "collection",
            "batchSize",
            "term",
            "lastKnownCommittedOpTime",
            "includeQueryStatsMetrics",
        ],
    )?;
    let id = match arguments.get("getMore") {
        Some(RawBsonRef::Int64(id)) => id,
        _ => {
            return Err(Error::new(
                ErrorCode::TypeMismatch,
                "BSON field 'getMore.getMore' is the wrong type, expected type 'long'",
            ));
        }
    };
    let name = arguments
        .string("collection")?
        .ok_or_else(|| arguments.missing("collection"))?;
    let namespace = cursor_namespace(request.database, name)?;
    let batch_size = arguments
        .count("batchSize")?
        .filter(|&size| size > 0)
        .unwrap_or(u64::MAX);
    Ok((id, namespace, batch_size))
}

/// `getMore`: the next batch of a cursor.
pub(super) fn get_more(
    database: &Arc<Database>,
    request: &CommandRequest<'_>,
    operation: &Operation,
    reply: &mut Vec<u8>,
) -> Result<Effects> {
    let (id, namespace, batch_size) = parse_get_more(request)?;
    let mut cursor = database
        .cursors
        .take(id, &namespace, request.session, operation)?;
    if !cursor.await_data {
        if let Some(limit) = cursor.time_limit {
            let deadline = operation.environment().monotonic() + limit;
            operation.interrupt().set_deadline(Some(deadline));
        }
    }
    let mut writer = DocumentWriter::new(reply);
    writer.open_document("cursor");
    writer.open_array("nextBatch");
    let filled = await_point(database, &cursor)
        .and_then(|awaited| Ok((awaited, cursor.fill(operation, &mut writer, batch_size)?)));
    let (awaited, (count, mut end)) = match filled {
        Ok(filled) => filled,
        Err(error) => {
            database.cursors.close(id);
            return Err(error);
        }
    };
    writer.close();
    if cursor.tailable {
        end = BatchEnd::Full;
    }
    cursor.time_limit = cursor.time_limit.and(time_left(operation));
    let open = end == BatchEnd::Full;
    if open {
        database
            .cursors
            .give_back(id, cursor, operation.environment().monotonic());
    } else {
        drop(cursor);
        database.cursors.close(id);
    }
    writer.int64("id", if open { id } else { 0 });
    writer.string("ns", namespace.as_str());
    writer.close();
    writer.double("ok", 1.0);
    writer.finish();
    let wait = if count == 0 { awaited } else { None };
    Ok(Effects {
        wait,
        counts: Counts {
            returned: count,
            ..Counts::default()
        },
        ..Effects::default()
    })
}

/// What a tailable cursor would wait for if it has nothing to return: taken before looking, so that no
/// insertion is missed. A collection without its name is none to wait for: the client would ask again
/// and again, and never be let wait.
fn await_point(database: &Arc<Database>, cursor: &OpenCursor) -> Result<Option<Await>> {
    if !cursor.await_data {
        return Ok(None);
    }
    let Some(collection) = database.catalog.find(&cursor.namespace) else {
        return Err(Error::new(
            ErrorCode::QueryPlanKilled,
            format!("collection dropped or renamed. ns: {}", cursor.namespace),
        ));
    };
    let inserts_seen = collection.inserts();
    Ok(Some(Await {
        collection,
        inserts_seen,
    }))
}

/// `killCursors`.
pub(super) fn kill_cursors(
    database: &Arc<Database>,
    request: &CommandRequest<'_>,
    _operation: &Operation,
    reply: &mut Vec<u8>,
) -> Result<Effects> {
    let arguments = Arguments::of_command("killCursors", request.body, &["cursors"])?;
    let namespace = cursor_namespace(request.database, arguments.collection()?)?;
    let ids = arguments
        .array("cursors")?
        .ok_or_else(|| arguments.missing("cursors"))?;
    let mut killed = Vec::new();
    let mut not_found = Vec::new();
    for (position, id) in ids.into_iter().enumerate() {
        let RawBsonRef::Int64(id) = id? else {
            return Err(Error::new(
                ErrorCode::TypeMismatch,
                format!(
                    "BSON field 'killCursors.cursors.{position}' is the wrong type, expected type 'long'"
                ),
            ));
        };
        if database.cursors.kill(id, &namespace) {
            killed.push(id)
        } else {
            not_found.push(id)
        }
    }
    reply_ok(reply, |writer| {
        for (name, ids) in [
            ("cursorsKilled", &killed),
            ("cursorsNotFound", &not_found),
            ("cursorsAlive", &vec![]),
            ("cursorsUnknown", &vec![]),
        ] {
            writer.open_array(name);
            for (position, id) in ids.iter().enumerate() {
                writer.int64(&position.to_string(), *id);
            }
            writer.close();
        }
        Ok(())
    })?;
    Ok(Effects::default())
}
