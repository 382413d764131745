//! What the workload is to have made, kept in maps: the oracle.

use std::collections::BTreeMap;

use bson::{Bson, Document, doc};

use super::workload::Step;

/// `DuplicateKey` and `NamespaceNotFound`.
const DUPLICATE_KEY: i32 = 11000;
const NAMESPACE_NOT_FOUND: i32 = 26;

/// What a command answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It succeeds; whether it tells of statements that failed.
    Done { write_errors: bool },
    /// It fails with this code.
    Failed(i32),
}

const DONE: Answer = Answer::Done {
    write_errors: false,
};

/// One collection.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Contents {
    /// How many documents it holds at most, if it is capped.
    pub(crate) capped: Option<usize>,
    /// In insertion order if it is capped, else in the order of their ids.
    pub(crate) documents: Vec<Document>,
    /// The names of the indexes and whether they are unique, beside the one on `_id`.
    pub(crate) indexes: BTreeMap<String, bool>,
}

/// All collections of the database `test`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Model {
    pub(crate) collections: BTreeMap<String, Contents>,
}

pub(crate) fn id_of(document: &Document) -> i32 {
    document
        .get_i32("_id")
        .expect("the workload's ids are numbers")
}

fn number(document: &Document, field: &str) -> i32 {
    document.get_i32(field).unwrap_or(i32::MIN)
}

impl Contents {
    fn position(&self, id: i32) -> Option<usize> {
        self.documents
            .iter()
            .position(|document| id_of(document) == id)
    }

    /// Whether `document` would be the second of its id or of a unique key.
    fn is_duplicate(&self, document: &Document, except: Option<usize>) -> bool {
        let unique = |field: &str| self.indexes.get(field).is_some_and(|&unique| unique);
        self.documents.iter().enumerate().any(|(position, other)| {
            Some(position) != except
                && (id_of(other) == id_of(document)
                    || unique("k") && other.get("k") == document.get("k"))
        })
    }

    fn insert(&mut self, document: &Document) -> bool {
        if self.is_duplicate(document, None) {
            return false;
        }
        self.documents.push(document.clone());
        match self.capped {
            Some(max) if self.documents.len() > max => {
                self.documents.remove(0);
            }
            Some(_) => {}
            None => self.documents.sort_by_key(id_of),
        }
        true
    }

    /// Changes one document unless that makes a duplicate; whether it did not.
    fn change(&mut self, position: usize, change: impl FnOnce(&mut Document)) -> bool {
        let mut changed = self.documents[position].clone();
        change(&mut changed);
        if self.is_duplicate(&changed, Some(position)) {
            return false;
        }
        self.documents[position] = changed;
        true
    }
}

impl Model {
    fn collection(&mut self, name: &str) -> &mut Contents {
        self.collections.entry(name.to_owned()).or_default()
    }

    /// Does what the step does, and says what is answered.
    pub(crate) fn apply(&mut self, step: &Step) -> Answer {
        match step {
            Step::Insert {
                collection,
                documents,
                ordered,
            } => self.insert(collection, documents, *ordered),
            Step::Drop { collection } => {
                self.collections.remove(collection);
                DONE
            }
            Step::Rename { source, target } => match self.collections.remove(source) {
                None => Answer::Failed(NAMESPACE_NOT_FOUND),
                Some(contents) => {
                    self.collections.insert(target.clone(), contents);
                    DONE
                }
            },
            Step::CreateCapped { collection, max } => {
                let contents = Contents {
                    capped: Some(*max),
                    ..Contents::default()
                };
                self.collections.insert(collection.clone(), contents);
                DONE
            }
            Step::CreateIndex {
                collection,
                field,
                unique,
            } => self.create_index(collection, field, *unique),
            Step::DropIndexes { collection } => match self.collections.get_mut(collection) {
                None => Answer::Failed(NAMESPACE_NOT_FOUND),
                Some(contents) => {
                    contents.indexes.clear();
                    DONE
                }
            },
            Step::Push {
                collection,
                id,
                value,
            } => self.push(collection, *id, *value),
            Step::Compact => DONE,
            other => self.write_existing(other),
        }
    }

    fn insert(&mut self, name: &str, documents: &[Document], ordered: bool) -> Answer {
        let contents = self.collection(name);
        let mut write_errors = false;
        for document in documents {
            if !contents.insert(document) {
                write_errors = true;
                if ordered {
                    break;
                }
            }
        }
        Answer::Done { write_errors }
    }

    fn create_index(&mut self, name: &str, field: &str, unique: bool) -> Answer {
        let contents = self.collection(name);
        if contents.indexes.contains_key(field) {
            return DONE;
        }
        let keys: Vec<Option<&Bson>> = contents.documents.iter().map(|d| d.get(field)).collect();
        let duplicate = (1..keys.len()).any(|end| keys[..end].contains(&keys[end]));
        if unique && duplicate {
            return Answer::Failed(DUPLICATE_KEY);
        }
        contents.indexes.insert(field.to_owned(), unique);
        DONE
    }

    /// `findAndModify` with `$push` and upsert.
    fn push(&mut self, name: &str, id: i32, value: i32) -> Answer {
        let contents = self.collection(name);
        let pushed = match contents.position(id) {
            Some(position) => contents.change(position, |document| {
                let mut tags = document.get_array("tags").cloned().unwrap_or_default();
                tags.push(Bson::Int32(value));
                document.insert("tags", tags);
            }),
            None => contents.insert(&doc! {"_id": id, "tags": [value]}),
        };
        if pushed {
            DONE
        } else {
            Answer::Failed(DUPLICATE_KEY)
        }
    }

    /// What does nothing when the collection is not there.
    fn write_existing(&mut self, step: &Step) -> Answer {
        let (Step::Set { collection, .. }
        | Step::IncrementMany { collection, .. }
        | Step::Delete { collection, .. }
        | Step::DeleteMany { collection, .. }
        | Step::DeleteAll { collection }) = step
        else {
            unreachable!("other steps are handled by apply");
        };
        let Some(contents) = self.collections.get_mut(collection) else {
            return DONE;
        };
        let mut write_errors = false;
        match step {
            Step::Set { id, key, tags, .. } => {
                if let Some(position) = contents.position(*id) {
                    write_errors = !contents.change(position, |document| {
                        document.insert("k", *key);
                        document.insert("tags", tags.clone());
                    });
                }
            }
            Step::IncrementMany { from, .. } => {
                for document in &mut contents.documents {
                    let n = number(document, "n");
                    if n >= *from {
                        document.insert("n", n + 1);
                    }
                }
            }
            Step::Delete { id, .. } => contents.documents.retain(|d| id_of(d) != *id),
            Step::DeleteMany { below, .. } => {
                contents
                    .documents
                    .retain(|d| !d.contains_key("k") || number(d, "k") >= *below);
            }
            _ => contents.documents.clear(),
        }
        Answer::Done { write_errors }
    }

    /// Whether `self` lies between two models: every document, index and collection is as it was before
    /// or as it was to be. A command that commits more than once may be cut off there.
    pub(crate) fn is_between(&self, before: &Self, after: &Self) -> bool {
        let names = self.collections.keys().chain(before.collections.keys());
        names.chain(after.collections.keys()).all(|name| {
            let [now, old, new] = [self, before, after].map(|model| model.collections.get(name));
            let Some(now) = now else {
                return old.is_none() || new.is_none();
            };
            let empty = Contents {
                capped: now.capped,
                ..Contents::default()
            };
            (old.is_some() || new.is_some())
                && now.is_between(old.unwrap_or(&empty), new.unwrap_or(&empty))
        })
    }
}

impl Contents {
    fn is_between(&self, before: &Self, after: &Self) -> bool {
        let find = |contents: &Self, id| {
            contents
                .position(id)
                .map(|at| contents.documents[at].clone())
        };
        let all = self
            .documents
            .iter()
            .chain(&before.documents)
            .chain(&after.documents);
        let mut ids = all.map(id_of);
        let mut names = self
            .indexes
            .keys()
            .chain(before.indexes.keys())
            .chain(after.indexes.keys());
        self.capped == before.capped
            && ids.all(|id| {
                [before, after]
                    .iter()
                    .any(|c| find(c, id) == find(self, id))
            })
            && names.all(|name| {
                [before, after]
                    .iter()
                    .any(|c| c.indexes.get(name) == self.indexes.get(name))
            })
    }
}
