//! Commands that change how the server as a whole runs.

use std::fmt::Debug;

use bson::{Document, doc};
use millrace_value::{Error, ErrorCode, Result};

use super::{Answer, CommandContext};
use crate::arguments::truthy;

/// The process, as commands control it.
pub trait ProcessControl: Debug {
    /// Syncs the engine's log.
    ///
    /// # Errors
    /// When the engine has failed.
    fn sync_log(&self) -> Result<()>;

    /// Asks for the server to stop. Returns at once.
    fn shut_down(&self);
}

/// Syncs the engine's log. Locking out writes is for backups by copying files, for which there is the
/// engine's checkpoint.
pub(super) fn fsync(context: &CommandContext<'_>, process: &dyn ProcessControl) -> Result<Answer> {
    if truthy(context.arguments()?.get("lock")) {
        return Err(Error::new(
            ErrorCode::CommandNotSupported,
            "fsync with lock is not supported by this storage engine",
        ));
    }
    process.sync_log()?;
    Ok(Answer::Reply(doc! { "numFiles": 1 }))
}

pub(super) fn fsync_unlock() -> Result<Answer> {
    Err(Error::new(
        ErrorCode::IllegalOperation,
        "fsyncUnlock called when not locked",
    ))
}

pub(super) fn shutdown(process: &dyn ProcessControl) -> Result<Answer> {
    tracing::info!(target: "COMMAND", id = 4_695_400_u32, "A client asked for the shutdown");
    process.shut_down();
    Ok(Answer::Reply(Document::new()))
}
