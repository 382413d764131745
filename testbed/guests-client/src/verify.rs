//! Reads everything and compares it with what was stored.

use std::collections::BTreeSet;

use bson::rawdoc;

use crate::Settings;
use crate::connection::Connection;
use crate::documents::STRIDE;
use crate::error::{Error, Result};

/// Reads the documents of every writer: they must be its first ones, without a gap, and byte for byte what was
/// sent; and the index must lead to the same ones. Prints how many there are.
pub(crate) fn verify(settings: Settings) -> Result<()> {
    let mut connection = Connection::open(settings.port)?;
    let mut ids = BTreeSet::new();
    for writer in 0..settings.writers {
        let held = read(settings, &mut connection, writer)?;
        println!("client: writer {writer} holds {held}");
        let first = i64::from(writer) * STRIDE;
        ids.extend(first..first + i64::from(held));
    }
    let mut others = BTreeSet::new();
    if !ids.is_empty() {
        let by_index = rawdoc! {
            "find": "documents",
            "filter": { "size": { "$gte": 0 } },
            "hint": "size_1",
            "projection": { "_id": 1 },
        };
        connection.find(by_index, |document| {
            let id = document.get_i64("_id")?;
            if !others.insert(id) {
                return Err(Error::Incomplete(format!("the index has {id} twice")));
            }
            Ok(())
        })?;
    }
    if let Some(id) = ids.symmetric_difference(&others).next() {
        let (all, indexed) = (ids.len(), others.len());
        let what =
            format!("{all} documents, {indexed} in the index; the first that differs is {id}");
        return Err(Error::Incomplete(what));
    }
    println!("client: {} documents are complete", ids.len());
    Ok(())
}

/// Reads one writer's documents; returns how many there are.
fn read(settings: Settings, connection: &mut Connection, writer: u32) -> Result<u32> {
    let first = i64::from(writer) * STRIDE;
    let command = rawdoc! {
        "find": "documents",
        "filter": { "_id": { "$gte": first, "$lt": first + STRIDE } },
        "sort": { "_id": 1 },
    };
    let mut held = 0;
    connection.find(command, |document| {
        let expected = settings.contents.document(writer, held);
        if document.as_bytes() != expected.as_bytes() {
            let (due, found) = (expected.get_i64("_id")?, document.get_i64("_id")?);
            let what = match due == found {
                true => format!("document {due} is not what was stored: {document:?}"),
                false => format!("document {due} was due, there is {found}"),
            };
            return Err(Error::Incomplete(what));
        }
        held += 1;
        Ok(())
    })?;
    Ok(held)
}
