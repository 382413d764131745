//! Stores documents and says which of them are acknowledged.

use std::thread;

use bson::{RawArrayBuf, RawDocumentBuf, rawdoc};

use crate::Settings;
use crate::connection::Connection;
use crate::error::{Error, Result};

/// Stores all documents, each writer its own in their order, and prints a line for every acknowledgement.
pub(crate) fn load(settings: Settings) -> Result<()> {
    let index = rawdoc! { "key": { "size": 1 }, "name": "size_1" };
    let indexes = rawdoc! { "createIndexes": "documents", "indexes": [index] };
    Connection::open(settings.port)?.run(indexes)?;
    println!("client: the index is there");
    thread::scope(|scope| {
        let writers: Vec<_> = (0..settings.writers)
            .map(|writer| scope.spawn(move || write(settings, writer)))
            .collect();
        let results = writers.into_iter().map(|writer| {
            let ended = writer.join();
            ended.unwrap_or_else(|_| Err(Error::Incomplete("a writer panicked".to_owned())))
        });
        results.collect::<Result<Vec<()>>>()
    })?;
    println!("client: loaded {} documents", settings.documents);
    Ok(())
}

/// What one writer does.
fn write(settings: Settings, writer: u32) -> Result<()> {
    let mut connection = Connection::open(settings.port)?;
    let total = settings.share(writer);
    let mut number = 0;
    while number < total {
        let end = total.min(number + settings.contents.batch(writer, number));
        let reply = connection.run(insertion(settings, writer, number..end))?;
        let stored = reply.get_i32("n")?;
        if u32::try_from(stored) != Ok(end - number) {
            let expected = end - number;
            let what = format!("{stored} of {expected} documents were stored");
            return Err(Error::Incomplete(what));
        }
        number = end;
        println!("client: writer {writer} acknowledged {number}");
    }
    Ok(())
}

fn insertion(settings: Settings, writer: u32, numbers: std::ops::Range<u32>) -> RawDocumentBuf {
    let mut documents = RawArrayBuf::new();
    for number in numbers {
        documents.push(settings.contents.document(writer, number));
    }
    rawdoc! {
        "insert": "documents",
        "documents": documents,
        "ordered": true,
        "writeConcern": { "w": 1, "j": true },
    }
}
