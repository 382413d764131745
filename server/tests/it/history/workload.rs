//! A recorded history of commands, from a seed.

use bson::{Document, doc};
use millrace_random::Random;

/// Draws of what BSON calls an `int`.
#[derive(Debug)]
struct Draws(Random);

impl Draws {
    /// A number below `end`.
    fn below(&mut self, end: i32) -> i32 {
        let end = u64::try_from(end).expect("bounds are positive");
        i32::try_from(self.0.number() % end).expect("it is below an i32")
    }
}

/// One step of the history. Documents look like `{_id, k, n, tags: [..]}`.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Insert {
        collection: String,
        documents: Vec<Document>,
        ordered: bool,
    },
    Set {
        collection: String,
        id: i32,
        key: i32,
        tags: Vec<i32>,
    },
    IncrementMany {
        collection: String,
        from: i32,
    },
    Push {
        collection: String,
        id: i32,
        value: i32,
    },
    Delete {
        collection: String,
        id: i32,
    },
    DeleteMany {
        collection: String,
        below: i32,
    },
    DeleteAll {
        collection: String,
    },
    CreateIndex {
        collection: String,
        field: String,
        unique: bool,
    },
    DropIndexes {
        collection: String,
    },
    CreateCapped {
        collection: String,
        max: usize,
    },
    Drop {
        collection: String,
    },
    Rename {
        source: String,
        target: String,
    },
    /// Not a command: everything is written into table files.
    Compact,
}

impl Step {
    /// The command and the database it is run on; none for what is not a command.
    pub(crate) fn command(&self) -> Option<(&'static str, Document)> {
        let delete = |collection: &str, filter: Document, limit: i32| {
            doc! {"delete": collection, "deletes": [{"q": filter, "limit": limit}]}
        };
        Some((
            "test",
            match self {
                Self::Insert {
                    collection,
                    documents,
                    ordered,
                } => {
                    doc! {"insert": collection, "documents": documents.clone(), "ordered": *ordered}
                }
                Self::Set {
                    collection,
                    id,
                    key,
                    tags,
                } => doc! {"update": collection, "updates": [
                    {"q": {"_id": *id}, "u": {"$set": {"k": *key, "tags": tags.clone()}}},
                ]},
                Self::IncrementMany { collection, from } => {
                    doc! {"update": collection, "updates": [
                        {"q": {"n": {"$gte": *from}}, "u": {"$inc": {"n": 1}}, "multi": true},
                    ]}
                }
                Self::Push {
                    collection,
                    id,
                    value,
                } => doc! {
                    "findAndModify": collection, "query": {"_id": *id},
                    "update": {"$push": {"tags": *value}}, "upsert": true, "new": true,
                },
                Self::Delete { collection, id } => delete(collection, doc! {"_id": *id}, 1),
                Self::DeleteMany { collection, below } => {
                    delete(collection, doc! {"k": {"$lt": *below}}, 0)
                }
                Self::DeleteAll { collection } => delete(collection, doc! {}, 0),
                Self::CreateIndex {
                    collection,
                    field,
                    unique,
                } => {
                    doc! {"createIndexes": collection, "indexes": [
                        {"key": {field: 1}, "name": field, "unique": *unique},
                    ]}
                }
                Self::DropIndexes { collection } => doc! {"dropIndexes": collection, "index": "*"},
                Self::CreateCapped { collection, max } => doc! {
                    "create": collection, "capped": true, "size": 1_000_000,
                    "max": i32::try_from(*max).expect("it is small"),
                },
                Self::Drop { collection } => doc! {"drop": collection},
                Self::Rename { source, target } => {
                    let (source, target) = (format!("test.{source}"), format!("test.{target}"));
                    let command =
                        doc! {"renameCollection": source, "to": target, "dropTarget": true};
                    return Some(("admin", command));
                }
                Self::Compact => return None,
            },
        ))
    }
}

fn document(random: &mut Draws, id: i32) -> Document {
    let tags: Vec<i32> = (0..random.below(4)).map(|_| random.below(20)).collect();
    let filling = "x".repeat(usize::try_from(random.below(400)).expect("it is positive"));
    doc! {"_id": id, "k": random.below(1000), "n": random.below(50), "tags": tags, "filling": filling}
}

/// A collection's name; `c` is the one most is done to.
fn name(random: &mut Draws) -> String {
    ["c", "c", "c", "c", "d", "log"][usize::try_from(random.below(6)).expect("it is positive")]
        .to_owned()
}

/// The history: a fixed beginning in which everything happens once, then whatever comes.
pub(crate) fn history(seed: u64, length: usize) -> Vec<Step> {
    let mut random = Draws(Random::new(seed));
    let c = || "c".to_owned();
    let mut steps = vec![
        Step::Insert {
            collection: c(),
            documents: (0..200).map(|id| document(&mut random, id)).collect(),
            ordered: true,
        },
        Step::CreateIndex {
            collection: c(),
            field: "tags".to_owned(),
            unique: false,
        },
        Step::CreateCapped {
            collection: "log".to_owned(),
            max: 8,
        },
        Step::CreateIndex {
            collection: "log".to_owned(),
            field: "n".to_owned(),
            unique: false,
        },
        Step::Compact,
        Step::IncrementMany {
            collection: c(),
            from: 40,
        },
        Step::Rename {
            source: c(),
            target: "d".to_owned(),
        },
    ];
    while steps.len() < length {
        steps.push(random_step(&mut random));
    }
    steps
}

fn random_step(random: &mut Draws) -> Step {
    let collection = name(random);
    let id = random.below(60);
    match random.below(40) {
        0..=9 => {
            let count = if random.below(8) == 0 {
                150
            } else {
                1 + random.below(6)
            };
            let documents = (0..count).map(|n| document(random, id + n)).collect();
            Step::Insert {
                collection,
                documents,
                ordered: random.below(2) == 0,
            }
        }
        10..=15 => {
            let tags = (0..random.below(5)).map(|_| random.below(30)).collect();
            Step::Set {
                collection,
                id,
                key: random.below(1000),
                tags,
            }
        }
        16..=19 => Step::IncrementMany {
            collection,
            from: random.below(60),
        },
        20..=24 => Step::Push {
            collection,
            id,
            value: random.below(40),
        },
        25..=28 => Step::Delete { collection, id },
        29..=30 => Step::DeleteMany {
            collection,
            below: random.below(300),
        },
        31 => Step::DeleteAll { collection },
        32..=33 => Step::CreateIndex {
            collection,
            field: "tags".to_owned(),
            unique: false,
        },
        34..=35 => Step::CreateIndex {
            collection,
            field: "k".to_owned(),
            unique: true,
        },
        36 => Step::DropIndexes { collection },
        37 => Step::Drop {
            collection: "d".to_owned(),
        },
        38 => Step::Rename {
            source: "c".to_owned(),
            target: "d".to_owned(),
        },
        _ => Step::Compact,
    }
}
