//! `hello` and its old names: what a client learns first.

use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use millrace_value::{Error, ErrorCode, Result};
use millrace_wire::{Compressor, MESSAGE_LEN_MAX, MsgFlags};

use super::{Answer, CommandContext};
use crate::arguments::{integer, truthy, wrong_type};

/// The wire versions of MongoDB 2.4 to 8.0.
const WIRE_VERSION_MIN: i32 = 0;
const WIRE_VERSION_MAX: i32 = 25;

/// The longest document a user may store, in bytes.
pub(super) const USER_DOCUMENT_LEN_MAX: i32 = 16 * 1024 * 1024;

/// How many statements a batch of writes may have.
const WRITE_BATCH_LEN_MAX: i32 = 100_000;

/// How long a logical session lives without being used, in minutes.
pub(crate) const SESSION_TIMEOUT_MINUTES: i32 = 30;

/// How long the description of a client may be, in bytes, and its application's name.
const CLIENT_LEN_MAX: usize = 512;
const APPLICATION_NAME_LEN_MAX: usize = 128;

/// `process_id` identifies this run of the server in `topologyVersion`.
pub(super) fn hello(context: &mut CommandContext<'_>, process_id: ObjectId) -> Result<Answer> {
    let arguments = context.arguments()?;
    if context.resumed.is_none() && context.round == 0 {
        note_client(context, &arguments)?;
        negotiate_compression(context, &arguments);
    }
    let streams = context.flags.contains(MsgFlags::EXHAUST_ALLOWED);
    let patience = patience(&arguments, streams)?;
    if let (Some(patience), None) = (&patience, context.resumed) {
        // The topology never changes: a client that knows it waits for the whole `maxAwaitTimeMS`.
        if context.round > 0 || patience.known_process == process_id {
            let now = context.operation.environment().monotonic();
            return Ok(Answer::Wait(now + patience.time));
        }
    }
    let reply = reply(context, process_id, &arguments);
    Ok(if streams && patience.is_some() {
        Answer::ReplyAndMore(reply)
    } else {
        Answer::Reply(reply)
    })
}

fn reply(context: &CommandContext<'_>, process_id: ObjectId, arguments: &Document) -> Document {
    let mut reply = Document::new();
    if truthy(arguments.get("helloOk")) {
        reply.insert("helloOk", true);
    }
    let role = if context.name == "hello" {
        "isWritablePrimary"
    } else {
        "ismaster"
    };
    reply.insert(role, true);
    reply.extend(doc! {
        "topologyVersion": { "processId": process_id, "counter": 0_i64 },
        "maxBsonObjectSize": USER_DOCUMENT_LEN_MAX,
        "maxMessageSizeBytes": i32::try_from(MESSAGE_LEN_MAX).unwrap_or(i32::MAX),
        "maxWriteBatchSize": WRITE_BATCH_LEN_MAX,
        "localTime": DateTime::from_millis(context.operation.started_wall_ms()),
        "logicalSessionTimeoutMinutes": SESSION_TIMEOUT_MINUTES,
        "connectionId": i32::try_from(context.session.id().0).unwrap_or(i32::MAX),
        "minWireVersion": WIRE_VERSION_MIN,
        "maxWireVersion": WIRE_VERSION_MAX,
        "readOnly": false,
    });
    let compressors = context.session.compressors();
    if !compressors.is_empty() {
        let names: Vec<Bson> = compressors.iter().map(|c| Bson::from(c.name())).collect();
        reply.insert("compression", names);
    }
    reply
}

/// How long the client waits for a change, and the process whose topology it knows.
struct Patience {
    known_process: ObjectId,
    time: Duration,
}

fn patience(arguments: &Document, streams: bool) -> Result<Option<Patience>> {
    let time = match arguments.get("maxAwaitTimeMS") {
        None => None,
        Some(value) => Some(
            integer(value)
                .ok_or_else(|| wrong_type("hello.maxAwaitTimeMS", value, "long"))
                .map(u64::try_from)?
                .map_err(|_| {
                    Error::location(31373, "maxAwaitTimeMS must be a non-negative integer")
                })?,
        ),
    };
    match (arguments.get("topologyVersion"), time) {
        (Some(Bson::Document(version)), Some(time)) => {
            let Ok(known_process) = version.get_object_id("processId") else {
                return Err(Error::new(
                    ErrorCode::IDLFailedToParse,
                    "BSON field 'hello.topologyVersion.processId' is missing but a required field",
                ));
            };
            let time = Duration::from_millis(time.min(u64::from(u32::MAX)));
            Ok(Some(Patience {
                known_process,
                time,
            }))
        }
        (Some(Bson::Document(_)), None) => Err(Error::location(
            31368,
            "A request with a 'topologyVersion' must include 'maxAwaitTimeMS'",
        )),
        (Some(other), _) => Err(wrong_type("hello.topologyVersion", other, "object")),
        (None, Some(_)) => Err(Error::location(
            31371,
            "A request with 'maxAwaitTimeMS' must include a 'topologyVersion'",
        )),
        (None, None) if streams => Err(Error::location(
            51756,
            "An exhaust request must include a 'topologyVersion' and 'maxAwaitTimeMS'",
        )),
        (None, None) => Ok(None),
    }
}

/// Keeps the client's description of itself, which it may give once.
fn note_client(context: &mut CommandContext<'_>, arguments: &Document) -> Result<()> {
    let Some(client) = arguments.get("client") else {
        return Ok(());
    };
    let Bson::Document(client) = client else {
        return Err(Error::new(
            ErrorCode::TypeMismatch,
            "The client metadata document must be a document",
        ));
    };
    if context.session.slot().client().is_some() {
        return Err(Error::location(
            186,
            "The client metadata document may only be sent in the first hello",
        ));
    }
    check_client(client)?;
    let application = client
        .get_document("application")
        .and_then(|application| application.get_str("name"))
        .ok();
    context.session.set_application(application);
    context.session.slot().set_client(client.clone());
    tracing::info!(
        target: "NETWORK",
        id = 51_800_u32,
        remote = context.session.slot().peer(),
        client = %context.session.id(),
        doc = %client,
        "client metadata"
    );
    Ok(())
}

fn check_client(client: &Document) -> Result<()> {
    let length = client.to_vec().map_or(0, |bytes| bytes.len());
    if length > CLIENT_LEN_MAX {
        return Err(Error::location(
            185,
            format!(
                "The client metadata document must be less then or equal to {CLIENT_LEN_MAX} bytes"
            ),
        ));
    }
    let missing = |field: &str| {
        Error::location(
            183,
            format!("Missing required field '{field}' in the client metadata document"),
        )
    };
    if let Some(application) = client.get("application") {
        let Bson::Document(application) = application else {
            return Err(wrong_type("client.application", application, "object"));
        };
        match application.get("name") {
            Some(Bson::String(name)) if name.len() > APPLICATION_NAME_LEN_MAX => {
                return Err(Error::location(
                    184,
                    format!(
                        "The 'client.application.name' field must be less then or equal to \
                         {APPLICATION_NAME_LEN_MAX} bytes in length"
                    ),
                ));
            }
            Some(Bson::String(_)) | None => {}
            Some(other) => return Err(wrong_type("client.application.name", other, "string")),
        }
    }
    let driver = client
        .get_document("driver")
        .map_err(|_| missing("driver"))?;
    driver.get_str("name").map_err(|_| missing("driver.name"))?;
    driver
        .get_str("version")
        .map_err(|_| missing("driver.version"))?;
    let os = client.get_document("os").map_err(|_| missing("os"))?;
    os.get_str("type").map_err(|_| missing("os.type"))?;
    Ok(())
}

fn negotiate_compression(context: &mut CommandContext<'_>, arguments: &Document) {
    let Ok(names) = arguments.get_array("compression") else {
        return;
    };
    let mut common: Vec<Compressor> = Vec::new();
    for compressor in names
        .iter()
        .filter_map(Bson::as_str)
        .filter_map(Compressor::from_name)
    {
        if !common.contains(&compressor) {
            common.push(compressor);
        }
    }
    context.session.set_compressors(common);
}
