//! Writing replies that the document layer has not written.

use bson::{Document, RawDocumentBuf, doc};
use millrace_value::{Error, Result};

use crate::error_names;
use crate::fail_points::FailAction;
use crate::network::{Outcome, ReplyBuffer};

/// The error that a fail point puts in place of the command.
pub(super) fn injected_error(action: &FailAction) -> Option<Error> {
    let code = action.error_code?;
    let error = Error::location(code, "Failing command via 'failCommand' failpoint");
    Some(match &action.error_details {
        Some(details) => error.with_details(details.clone()),
        None => error,
    })
}

/// Writes `{ok: 0, errmsg, code, codeName, ...}`.
pub(super) fn write_error(reply: &mut ReplyBuffer<'_>, error: &Error, labels: &[String]) {
    let mut document = doc! {
        "ok": 0.0,
        "errmsg": error.message(),
        "code": error.code().number(),
        "codeName": error_names::name(error.code()),
    };
    if let Some(details) = error.details() {
        document.extend(details.clone());
    }
    if !labels.is_empty() {
        document.insert("errorLabels", labels.to_vec());
    }
    append(reply, &document);
}

pub(super) fn append(reply: &mut ReplyBuffer<'_>, document: &Document) {
    // What cannot be encoded is a name or pattern with a zero byte, which cannot come from BSON.
    let raw = RawDocumentBuf::try_from(document)
        .unwrap_or_else(|_| bson::rawdoc! { "ok": 0.0, "code": 1, "codeName": "InternalError" });
    reply.document().extend_from_slice(raw.as_bytes());
}

/// Adds a `writeConcernError` to a reply that is written already, unless it has one.
pub(super) fn add_write_concern_error(reply: &mut ReplyBuffer<'_>, error: Document) -> Result<()> {
    let mut document = Document::from_reader(reply.written())?;
    document.entry("writeConcernError").or_insert(error.into());
    append(reply, &document);
    Ok(())
}

/// Answers a message that is not well-formed.
pub(super) fn refuse(reply: &mut ReplyBuffer<'_>, error: &millrace_wire::Error) -> Outcome {
    if !error.can_be_answered() {
        return Outcome::Close;
    }
    if error.closes_connection() {
        reply.close_after();
    }
    write_error(reply, &Error::location(error.code(), error.message()), &[]);
    Outcome::Done
}
