//! What the clients of a simulation send, and what they make of replies.

use std::time::Duration;

use bson::{Bson, Document, doc};
use millrace_random::Random;

use super::model::{Contents, Model, Moment};

/// `_id`s from 0 to below this one, so that clients meet.
const KEYS: u64 = 10;

/// How long documents of the collection `expiring` live, in seconds.
pub(crate) const EXPIRE_AFTER_SECONDS: i64 = 60;

/// The write concern of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Concern {
    /// `w: 1`
    One,
    /// `w: 1, j: true`
    Journaled,
    /// `w: "majority"`, with a `wtimeout` in milliseconds.
    Majority(Option<u64>),
}

impl Concern {
    fn draw(random: &mut Random) -> Self {
        match random.below(5) {
            0 => Self::One,
            1 => Self::Journaled,
            2 => Self::Majority(None),
            _ => Self::Majority(Some(1 + random.below(5))),
        }
    }

    fn document(self) -> Document {
        match self {
            Self::One => doc! { "w": 1 },
            Self::Journaled => doc! { "w": 1, "j": true },
            Self::Majority(None) => doc! { "w": "majority" },
            Self::Majority(Some(ms)) => doc! { "w": "majority", "wtimeout": number(ms) },
        }
    }

    /// Whether an acknowledgement says that the write survives a loss of power.
    pub(crate) fn is_durable(self, syncs_every_write: bool) -> bool {
        syncs_every_write || self != Self::One
    }
}

fn number(value: u64) -> i64 {
    i64::try_from(value).expect("a small number")
}

/// A request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Command {
    /// Inserts documents with these `_id`s and this value, up to the first that is there.
    Insert(Vec<i32>, i64),
    /// Sets the value of one document, which may be made for it.
    Set { id: i32, value: i64, upsert: bool },
    /// Adds to the values of all documents from this `_id` on.
    AddFrom(i32, i64),
    /// Deletes one document.
    Delete(i32),
    /// Deletes all documents from this `_id` on.
    DeleteFrom(i32),
    /// Inserts a document that expires.
    InsertExpiring,
    /// Appends to the capped collection.
    Append,
    /// Reads all documents.
    Find,
    /// Opens a cursor at the end of the capped collection, or waits so many milliseconds for more.
    Tail(u64),
}

impl Command {
    pub(crate) fn draw(random: &mut Random) -> Self {
        let mut id = || i32::try_from(random.below(KEYS)).expect("a small number");
        let (id, other) = (id(), id());
        let value = number(random.below(1_000));
        match random.below(14) {
            0..=2 => Self::Insert(vec![id], value),
            3 => Self::Insert(vec![id, other, (id + 1) % 10], value),
            4..=6 => Self::Set {
                id,
                value,
                upsert: random.chance(1, 2),
            },
            7 => Self::AddFrom(id, value),
            8 => Self::Delete(id),
            9 => Self::DeleteFrom(id),
            10 => Self::InsertExpiring,
            11 => Self::Append,
            12 => Self::Tail(1 + random.below(20)),
            _ => Self::Find,
        }
    }
}

impl Command {
    /// The contents after each document that the command changes, and how many documents it touches.
    pub(crate) fn effects(&self, before: &Contents) -> (Vec<Contents>, i32) {
        let mut contents = before.clone();
        let (mut steps, mut touched) = (Vec::new(), 0);
        let from = |id: i32| before.range(id..).map(|(id, _)| *id).collect::<Vec<_>>();
        let mut step = |change: &mut dyn FnMut(&mut Contents)| {
            let last = contents.clone();
            change(&mut contents);
            touched += 1;
            // An update that changes nothing is not written.
            if contents != last {
                steps.push(contents.clone());
            }
        };
        match self {
            Self::Insert(ids, value) => {
                let mut there = before.clone();
                for id in ids {
                    if there.insert(*id, *value).is_some() {
                        break;
                    }
                    step(&mut |contents| {
                        contents.insert(*id, *value);
                    });
                }
            }
            Self::Set { id, value, upsert } if *upsert || before.contains_key(id) => {
                step(&mut |contents| {
                    contents.insert(*id, *value);
                });
            }
            Self::AddFrom(first, value) => {
                for id in from(*first) {
                    step(&mut |contents| *contents.entry(id).or_default() += value);
                }
            }
            Self::Delete(id) if before.contains_key(id) => {
                step(&mut |contents| {
                    contents.remove(id);
                });
            }
            Self::DeleteFrom(first) => {
                for id in from(*first) {
                    step(&mut |contents| {
                        contents.remove(&id);
                    });
                }
            }
            _ => {}
        }
        (steps, touched)
    }
}

/// What a request has changed, to be acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Changed {
    Contents(Moment),
    Expiring(i32),
    Log(i32),
}

impl Changed {
    pub(crate) fn acknowledge(self, model: &mut Model) {
        match self {
            Self::Contents(moment) => model.acknowledge(moment),
            Self::Expiring(id) => model.acknowledge_expiring(id),
            Self::Log(len) => model.acknowledge_log(len),
        }
    }
}

/// A request whose reply has not come.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) command: Command,
    pub(crate) concern: Concern,
    /// Monotonic time at which it was sent.
    pub(crate) sent: Duration,
    /// What it has changed, if it was applied at all.
    pub(crate) changed: Option<Changed>,
    /// What a read must return, and how many documents a write must have touched.
    pub(crate) expected: Option<Expected>,
}

/// What the reply must say.
#[derive(Clone, Debug)]
pub(crate) enum Expected {
    Contents(Contents),
    Touched(i32),
}

/// A client: it has one request at a time.
#[derive(Debug, Default)]
pub(crate) struct Client {
    /// Monotonic time of its next request; of no meaning while one is pending.
    pub(crate) next: Duration,
    pub(crate) pending: Option<Pending>,
    /// Its cursor on the capped collection and the `_id` that it returns next.
    pub(crate) tail: Option<(i64, i32)>,
}

impl Client {
    /// The command document, without `$db`. `expiring` is the `_id` of a document that expires, `appended` that of one
    /// of the capped collection.
    pub(crate) fn body(
        &self,
        command: &Command,
        concern: Concern,
        now_ms: i64,
        (expiring, appended): (i32, i32),
    ) -> Document {
        let insert = |collection: &str, documents: Vec<Document>| doc! { "insert": collection, "documents": documents };
        let from = |id: i32| doc! { "_id": { "$gte": id } };
        let mut body = match command {
            Command::Insert(ids, value) => {
                let documents = ids.iter().map(|id| doc! { "_id": *id, "v": *value });
                insert("c", documents.collect())
            }
            Command::Set { id, value, upsert } => {
                let update = doc! { "q": { "_id": *id }, "u": { "$set": { "v": *value } }, "upsert": *upsert };
                doc! { "update": "c", "updates": [update] }
            }
            Command::AddFrom(id, value) => {
                let update =
                    doc! { "q": from(*id), "u": { "$inc": { "v": *value } }, "multi": true };
                doc! { "update": "c", "updates": [update] }
            }
            Command::Delete(id) => {
                doc! { "delete": "c", "deletes": [{ "q": { "_id": *id }, "limit": 1 }] }
            }
            Command::DeleteFrom(id) => {
                doc! { "delete": "c", "deletes": [{ "q": from(*id), "limit": 0 }] }
            }
            Command::InsertExpiring => {
                let at = bson::DateTime::from_millis(now_ms);
                insert("expiring", vec![doc! { "_id": expiring, "at": at }])
            }
            Command::Append => insert("log", vec![doc! { "_id": appended }]),
            Command::Find => return doc! { "find": "c", "sort": { "_id": 1 } },
            Command::Tail(ms) => {
                return match self.tail {
                    Some((cursor, _)) => {
                        doc! { "getMore": cursor, "collection": "log", "maxTimeMS": number(*ms) }
                    }
                    None => {
                        doc! { "find": "log", "tailable": true, "awaitData": true, "batchSize": 1_000 }
                    }
                };
            }
        };
        body.insert("writeConcern", concern.document());
        body
    }
}

pub(crate) fn draw_concern(random: &mut Random) -> Concern {
    Concern::draw(random)
}

/// The `_id`s of the documents of a cursor's batch.
pub(crate) fn ids(reply: &Document, batch: &str) -> Vec<i32> {
    documents(reply, batch)
        .iter()
        .filter_map(|document| document.get_i32("_id").ok())
        .collect()
}

/// The documents of a cursor's batch; none if there is no cursor.
pub(crate) fn documents<'a>(reply: &'a Document, batch: &str) -> Vec<&'a Document> {
    let cursor = reply.get_document("cursor");
    let batch = cursor.and_then(|cursor| cursor.get_array(batch));
    let batch = batch.map(Vec::as_slice).unwrap_or_default();
    batch.iter().filter_map(Bson::as_document).collect()
}

/// The documents of the collection `c` in a reply to [`Command::Find`].
pub(crate) fn contents(reply: &Document) -> Contents {
    documents(reply, "firstBatch")
        .into_iter()
        .filter_map(|document| Some((document.get_i32("_id").ok()?, document.get_i64("v").ok()?)))
        .collect()
}
