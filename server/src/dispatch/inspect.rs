//! Looking into requests and replies as far as dispatching needs it.

use bson::RawDocument;
use millrace_value::Elements;
use millrace_wire::OpMsg;

/// The application's name in a client's first hello.
pub(super) fn application_of(body: &RawDocument) -> Option<&str> {
    let client = body.get_document("client").ok()?;
    let application = client.get_document("application").ok()?;
    application.get_str("name").ok()
}

/// The name of a command: that of its first field.
pub(super) fn command_name(body: &RawDocument) -> &str {
    let first = Elements::new(body).next().and_then(Result::ok);
    first.map_or("", |first| {
        std::str::from_utf8(first.name).unwrap_or_default()
    })
}

/// `database.collection` of a command whose first field is a collection's name.
pub(super) fn namespace_of(body: &RawDocument, name: &str) -> String {
    let database = body.get_str("$db").unwrap_or_default();
    let field = if name == "getMore" {
        "collection"
    } else {
        name
    };
    match body.get_str(field) {
        Ok(collection) => format!("{database}.{collection}"),
        Err(_) => database.to_owned(),
    }
}

/// The document sequences of a message. A vector without elements costs nothing.
pub(super) fn sequences<'a>(message: &OpMsg<'a>) -> Vec<(&'a str, Vec<&'a RawDocument>)> {
    let mut sequences = Vec::new();
    for sequence in message.sequences() {
        sequences.push((sequence.name(), sequence.documents().collect()));
    }
    sequences
}

/// How many statements a batch has.
pub(super) fn statements(message: &OpMsg<'_>, name: &str) -> u64 {
    let count = match message.sequence(name) {
        Some(sequence) => sequence.len(),
        None => message
            .body
            .get_array(name)
            .map_or(0, |array| array.into_iter().count()),
    };
    u64::try_from(count).unwrap_or(0)
}

/// Whether a reply says that its cursor stays open.
pub(super) fn has_open_cursor(reply: &[u8]) -> bool {
    let cursor = RawDocument::from_bytes(reply).and_then(|reply| reply.get_document("cursor"));
    cursor.is_ok_and(|cursor| cursor.get_i64("id").is_ok_and(|id| id != 0))
}
