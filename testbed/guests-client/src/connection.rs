//! A connection to a server: one command at a time.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use bson::{RawArray, RawDocument, RawDocumentBuf, rawdoc};

use crate::error::{Error, Result, connection};

/// How long a server that starts may take to listen. Guests are slow.
const LISTEN_LIMIT: Duration = Duration::from_secs(120);
/// How long there is between two attempts.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(50);
/// How long a command may take.
const REPLY_LIMIT: Duration = Duration::from_secs(120);
/// Before the document: four words of the header, the flags, the kind of the only section.
const HEADER_BYTES: usize = 21;
/// `OP_MSG` of the wire protocol.
const OPCODE: u32 = 2013;
/// The longest reply that is taken.
const REPLY_BYTES_MAX: usize = 48_000_000;
/// The documents of the first batch of a cursor, and of every other.
const BATCH: i32 = 500;
/// The database of everything here.
const DATABASE: &str = "judge";

/// A connection over loopback.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    requests: u32,
}

impl Connection {
    /// Connects, waiting for a server that is about to listen.
    pub(crate) fn open(port: u16) -> Result<Self> {
        let start = Instant::now();
        let stream = loop {
            match TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
                Ok(stream) => break stream,
                Err(error) if start.elapsed() > LISTEN_LIMIT => {
                    return Err(connection("connecting")(error));
                }
                Err(_) => thread::sleep(ATTEMPT_PAUSE),
            }
        };
        stream
            .set_read_timeout(Some(REPLY_LIMIT))
            .and_then(|()| stream.set_nodelay(true))
            .map_err(connection("setting the connection up"))?;
        Ok(Self {
            stream,
            requests: 0,
        })
    }

    /// Runs a command. A reply that tells of an error is one here.
    pub(crate) fn run(&mut self, mut command: RawDocumentBuf) -> Result<RawDocumentBuf> {
        let name = command.iter().next().transpose()?;
        let name = name.map_or_else(String::new, |(name, _)| name.to_string());
        command.append(bson::cstr!("$db"), DATABASE);
        self.send(&command)?;
        let reply = self.receive()?;
        let is_ok = reply.get("ok")?.is_some_and(|ok| match ok {
            bson::RawBsonRef::Double(value) => value > 0.5,
            bson::RawBsonRef::Int32(value) => value == 1,
            _ => false,
        });
        let has_failed = |key| Ok::<_, Error>(reply.get(key)?.is_some());
        if !is_ok || has_failed("writeErrors")? || has_failed("writeConcernError")? {
            return Err(Error::Refused {
                command: name,
                reply: format!("{reply:?}"),
            });
        }
        Ok(reply)
    }

    /// Runs `find` to its end and hands every document to `take`.
    pub(crate) fn find(
        &mut self,
        mut command: RawDocumentBuf,
        mut take: impl FnMut(&RawDocument) -> Result<()>,
    ) -> Result<()> {
        let collection = command.get_str("find")?.to_owned();
        command.append(bson::cstr!("batchSize"), BATCH);
        let mut reply = self.run(command)?;
        let mut batch = "firstBatch";
        loop {
            let cursor = reply.get_document("cursor")?;
            each(cursor.get_array(batch)?, &mut take)?;
            let id = cursor.get_i64("id")?;
            if id == 0 {
                return Ok(());
            }
            batch = "nextBatch";
            let more =
                rawdoc! { "getMore": id, "collection": collection.as_str(), "batchSize": BATCH };
            reply = self.run(more)?;
        }
    }

    fn send(&mut self, command: &RawDocument) -> Result<()> {
        let length = HEADER_BYTES + command.as_bytes().len();
        let length =
            u32::try_from(length).map_err(|_| Error::Usage("a command is too long".to_owned()))?;
        self.requests += 1;
        let mut message = Vec::with_capacity(HEADER_BYTES + command.as_bytes().len());
        for word in [length, self.requests, 0, OPCODE, 0] {
            message.extend_from_slice(&word.to_le_bytes());
        }
        message.push(0);
        message.extend_from_slice(command.as_bytes());
        self.stream
            .write_all(&message)
            .map_err(connection("sending a command"))
    }

    fn receive(&mut self) -> Result<RawDocumentBuf> {
        let mut header = [0; HEADER_BYTES];
        self.stream
            .read_exact(&mut header)
            .map_err(connection("reading a reply"))?;
        let word = |at: usize| {
            let bytes = header
                .get(at..at + 4)
                .and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u32::from_le_bytes)
        };
        let length = word(0) as usize;
        if word(8) != self.requests || word(12) != OPCODE || header[HEADER_BYTES - 1] != 0 {
            return Err(Error::Reply("another message was due".to_owned()));
        }
        if !(HEADER_BYTES..=REPLY_BYTES_MAX).contains(&length) {
            return Err(Error::Reply(format!("{length} bytes long")));
        }
        let mut body = vec![0; length - HEADER_BYTES];
        self.stream
            .read_exact(&mut body)
            .map_err(connection("reading a reply"))?;
        Ok(RawDocumentBuf::from_bytes(body)?)
    }
}

fn each(batch: &RawArray, take: &mut impl FnMut(&RawDocument) -> Result<()>) -> Result<()> {
    for value in batch {
        let value = value?;
        let document = value.as_document();
        take(document.ok_or_else(|| Error::Reply("a batch of something else".to_owned()))?)?;
    }
    Ok(())
}
