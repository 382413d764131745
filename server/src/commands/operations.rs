//! `currentOp` and `killOp`.

use std::fmt::Debug;
use std::sync::Arc;

use bson::{Bson, Document, RawDocumentBuf, doc};
use millrace_command::{CommandRequest, Database};
use millrace_value::{Error, ErrorCode, Result};

use super::{Answer, CommandContext};
use crate::arguments::{integer, truthy};

/// How many operations one reply may list.
const OPERATIONS_MAX: i32 = 1_000_000;

/// The running operations of all connections, as commands stop them.
pub trait OperationControl: Debug {
    /// Kills the operation of this number, also while it waits for data; returns whether there was one.
    fn kill(&self, opid: u32) -> bool;
}

/// The pipeline `$currentOp` with the command's other fields as a filter.
pub(super) fn current_op(
    context: &CommandContext<'_>,
    documents: &Arc<Database>,
) -> Result<Answer> {
    let mut filter = context.arguments()?;
    filter.remove(context.name);
    let all = truthy(filter.remove("$all").as_ref());
    let own = truthy(filter.remove("$ownOps").as_ref());
    filter.remove("$truncateOps");
    let stage = doc! { "$currentOp": { "allUsers": !own, "idleConnections": all } };
    let body = doc! {
        "aggregate": 1,
        "pipeline": [stage, { "$match": filter }],
        "cursor": { "batchSize": OPERATIONS_MAX },
        "$db": "admin",
    };
    let body = RawDocumentBuf::try_from(body)?;
    let principal = context.session.principal().clone();
    let command = CommandRequest {
        database: "admin",
        name: "aggregate",
        body: &body,
        sequences: &[],
        session: None,
        principal: &principal,
    };
    let mut reply = Vec::new();
    documents.run(&command, context.operation, &mut reply)?;
    let mut reply = Document::from_reader(reply.as_slice())?;
    let operations = match reply.get_document_mut("cursor") {
        Ok(cursor) => cursor.remove("firstBatch"),
        Err(_) => None,
    };
    Ok(Answer::Reply(
        doc! { "inprog": operations.unwrap_or(Bson::Array(Vec::new())) },
    ))
}

pub(super) fn kill_op(
    context: &CommandContext<'_>,
    operations: &dyn OperationControl,
) -> Result<Answer> {
    let arguments = context.arguments()?;
    let op = arguments
        .get("op")
        .ok_or_else(|| Error::new(ErrorCode::NoSuchKey, "Did not provide \"op\" field"))?;
    let number = integer(op).ok_or_else(|| {
        Error::new(ErrorCode::TypeMismatch, format!("Expected field \"op\" to have a value exactly representable as a 64-bit integer, but found op: {op}"))
    })?;
    if let Ok(opid) = u32::try_from(number) {
        if operations.kill(opid) {
            tracing::info!(target: "COMMAND", id = 20_482_u32, opid, "Killed an operation");
        }
    }
    // As with MongoDB, one that is not there is not an error: it may have ended just now.
    Ok(Answer::Reply(doc! { "info": "attempting to kill op" }))
}
