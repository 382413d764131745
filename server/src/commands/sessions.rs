//! Logical sessions: ids that outlive connections. Cursors belong to them.

use std::fmt::Debug;
use std::time::Duration;

use bson::spec::BinarySubtype;
use bson::{Bson, Document, doc};
use millrace_value::{Error, ErrorCode, Result};

use super::{Answer, CommandContext};
use crate::arguments::wrong_type;
use crate::logical_sessions::SessionId;

/// How many sessions one command may name.
const SESSIONS_MAX: usize = 10_000;

/// The registry of logical sessions, with the end of all that belongs to a session.
pub trait SessionControl: Debug {
    /// Begins a session or keeps it alive; `now` is monotonic.
    ///
    /// # Errors
    /// `TooManyLogicalSessions`
    fn touch(&self, id: SessionId, now: Duration) -> Result<()>;

    /// Ends a session: kills its cursors and wakes its requests that wait. An unknown one is no error.
    fn end(&self, id: SessionId);

    /// The ids of all sessions, in no particular order.
    fn all(&self) -> Vec<SessionId>;
}

pub(super) fn start(context: &CommandContext<'_>, sessions: &dyn SessionControl) -> Result<Answer> {
    let environment = context.operation.environment();
    let id = SessionId::random(&**environment);
    sessions.touch(id, environment.monotonic())?;
    let binary = bson::Binary {
        subtype: BinarySubtype::Uuid,
        bytes: id.bytes().to_vec(),
    };
    Ok(Answer::Reply(doc! {
        "id": { "id": binary },
        "timeoutMinutes": super::handshake::SESSION_TIMEOUT_MINUTES,
    }))
}

pub(super) fn refresh(
    context: &CommandContext<'_>,
    sessions: &dyn SessionControl,
) -> Result<Answer> {
    let now = context.operation.environment().monotonic();
    for id in named(context)? {
        sessions.touch(id, now)?;
    }
    Ok(Answer::Reply(Document::new()))
}

/// `endSessions` and `killSessions`: the same, as long as a session holds nothing but cursors.
pub(super) fn end(context: &CommandContext<'_>, sessions: &dyn SessionControl) -> Result<Answer> {
    for id in named(context)? {
        sessions.end(id);
    }
    Ok(Answer::Reply(Document::new()))
}

/// `killAllSessions` and `killAllSessionsByPattern`: without users, every pattern fits every session.
pub(super) fn end_all(
    context: &CommandContext<'_>,
    sessions: &dyn SessionControl,
) -> Result<Answer> {
    let arguments = context.arguments()?;
    let value = arguments.get(context.name).cloned().unwrap_or(Bson::Null);
    if !matches!(value, Bson::Array(_)) {
        return Err(wrong_type(
            &format!("{0}.{0}", context.name),
            &value,
            "array",
        ));
    }
    for id in sessions.all() {
        sessions.end(id);
    }
    Ok(Answer::Reply(Document::new()))
}

pub(super) fn no_transaction(context: &CommandContext<'_>) -> Result<Answer> {
    Err(Error::new(
        ErrorCode::CommandFailed,
        format!("{} must be run within a transaction", context.name),
    ))
}

/// The sessions that the command's first field lists.
fn named(context: &CommandContext<'_>) -> Result<Vec<SessionId>> {
    let arguments = context.arguments()?;
    let path = format!("{0}.{0}", context.name);
    let ids = match arguments.get(context.name) {
        Some(Bson::Array(ids)) => ids,
        Some(other) => return Err(wrong_type(&path, other, "array")),
        None => return Ok(Vec::new()),
    };
    if ids.len() > SESSIONS_MAX {
        return Err(Error::new(
            ErrorCode::BadValue,
            format!(
                "{} sessions are too many: at most {SESSIONS_MAX} may be named",
                ids.len()
            ),
        ));
    }
    ids.iter()
        .map(|id| {
            let Bson::Document(document) = id else {
                return Err(wrong_type(&path, id, "object"));
            };
            match document.get("id") {
                Some(Bson::Binary(binary)) if binary.subtype == BinarySubtype::Uuid => {
                    SessionId::from_bytes(&binary.bytes)
                }
                _ => None,
            }
            .ok_or_else(|| {
                Error::new(
                    ErrorCode::InvalidUUID,
                    "uuid must be a 16-byte binary field with UUID (4) subtype",
                )
            })
        })
        .collect()
}
