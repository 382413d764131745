//! Commands that change how the server as a whole runs.

use bson::{Document, doc};
use millrace_value::{Error, ErrorCode, Result};

use super::{Answer, CommandContext, truthy};
use crate::state::Stop;

/// Syncs the engine's log. Locking out writes is for backups by copying files, for which there is the
/// engine's checkpoint.
pub(super) fn fsync(context: &mut CommandContext<'_>) -> Result<Answer> {
    if truthy(context.arguments()?.get("lock")) {
        return Err(Error::new(
            ErrorCode::CommandNotSupported,
            "fsync with lock is not supported by this storage engine",
        ));
    }
    context.state.engine.sync()?;
    Ok(Answer::Reply(doc! { "numFiles": 1 }))
}

pub(super) fn fsync_unlock(_: &mut CommandContext<'_>) -> Result<Answer> {
    Err(Error::new(
        ErrorCode::IllegalOperation,
        "fsyncUnlock called when not locked",
    ))
}

pub(super) fn shutdown(context: &mut CommandContext<'_>) -> Result<Answer> {
    tracing::info!(target: "COMMAND", id = 4_695_400_u32, "A client asked for the shutdown");
    context.state.request_stop(Stop::Command);
    Ok(Answer::Reply(Document::new()))
}
