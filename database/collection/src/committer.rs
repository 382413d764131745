//! The one place that commits, and what the rest of the server learns of a commit.
//!
//! # How a commit runs
//! ```text
//!   WriteSet, Catalog        changes of documents, indexes, counters, catalog entries
//!        | Changes           one batch for the engine; beside it the logical changes that are wanted
//!        v
//!   Committer -----------> Engine::commit        refused: nothing is published, nothing is announced
//!        | publish           state in memory that follows the commit: multikey masks, sequences, slots
//!        v
//!   CommitObserver           every observer, with the position and the logical changes
//! ```
//!
//! # Invariants
//! 1. Each position that the engine gives is announced once to every observer, after the commit is visible and
//!    its state in memory is published. A commit that fails is not announced.
//! 2. The changes of one announcement are those of one batch, in the order in which they were made: visible and
//!    durable as a whole.
//! 3. Announcements of one thread come in the order of their positions. So do those of changes of the catalog
//!    among themselves, and those of insertions into one capped collection. Between other commits of several
//!    threads there is no order: a later position can be announced first. Positions are dense, so an observer
//!    that needs their order holds an announcement back until the one before it has come.

use std::fmt;
use std::sync::Arc;

use bson::{Document, RawDocument, RawDocumentBuf, Uuid};
use millrace_engine::{Batch, CommitSeq, Durability, Engine, Operation, ReadSet};
use millrace_value::Result;

use crate::collection::Collection;
use crate::namespace::Namespace;

/// The durability of every commit: visible at once; an acknowledgement that must wait for the disk waits by
/// commit sequence number, once for the whole command.
const DURABILITY: Durability = Durability::Buffered;

/// How much of a change of a document an observer wants. The later one has all of the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// Inserted documents, new versions, and the keys of deleted documents.
    Documents,
    /// Also the versions before an update or a deletion, which are copied for it.
    Images,
}

/// One change of a commit, as the database's users know it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LogicalChange<'a> {
    /// A document was inserted.
    Insert {
        /// The name of its collection.
        namespace: &'a Namespace,
        /// The identity of its collection.
        uuid: Uuid,
        /// The document.
        document: &'a RawDocument,
    },
    /// A document was replaced by a new version, which has the same `_id`.
    Update {
        /// The name of its collection.
        namespace: &'a Namespace,
        /// The identity of its collection.
        uuid: Uuid,
        /// The old version; none if no observer wants [`Detail::Images`]. The difference between it and
        /// `after` is what an update entry of a log holds.
        before: Option<&'a RawDocument>,
        /// The new version.
        after: &'a RawDocument,
    },
    /// A document was deleted.
    Delete {
        /// The name of its collection.
        namespace: &'a Namespace,
        /// The identity of its collection.
        uuid: Uuid,
        /// What identifies the document: `{_id: ...}`.
        key: &'a RawDocument,
        /// The document; none if no observer wants [`Detail::Images`].
        before: Option<&'a RawDocument>,
    },
    /// Collections or indexes were changed: `create`, `drop`, `renameCollection`, `collMod`, `createIndexes`,
    /// `startIndexBuild`, `commitIndexBuild`, `abortIndexBuild` or `dropIndexes`.
    Command {
        /// The database.
        database: &'a str,
        /// The identity of the collection.
        uuid: Uuid,
        /// The command, whose first field names it and the collection.
        document: &'a Document,
    },
}

/// Something that follows commits. It is called on the thread that has committed, which can hold locks of the
/// catalog: an observer must not call the database, and must not wait for another commit.
pub trait CommitObserver: Send + Sync + fmt::Debug {
    /// How much the observer wants of changes of the documents of `collection`; none if it wants nothing of
    /// them. Asked when a commit is begun. Commands come in any case.
    fn detail(&self, collection: &Collection) -> Option<Detail>;

    /// A commit took place at `position`. `changes` holds at least what the observer wants of it, and perhaps
    /// what another observer does; it is empty if no observer wants anything of it.
    fn committed(&self, position: CommitSeq, changes: &[LogicalChange<'_>]);
}

/// What commits: the engine's handle for writing, and the observers.
#[derive(Debug)]
pub struct Committer {
    engine: Arc<dyn Engine>,
    observers: Vec<Arc<dyn CommitObserver>>,
}

impl Committer {
    /// A committer to `engine`. Every commit is announced to all `observers`, in their order.
    #[must_use]
    pub fn new(engine: Arc<dyn Engine>, observers: Vec<Arc<dyn CommitObserver>>) -> Self {
        Self { engine, observers }
    }

    pub(crate) const fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// The most that an observer wants of changes of the documents of `collection`.
    pub(crate) fn detail(&self, collection: &Collection) -> Option<Detail> {
        let details = self.observers.iter();
        details.map(|observer| observer.detail(collection)).max()?
    }

    /// Commits `changes` if what `read_set` name has not been committed since, and returns the position.
    /// `publish` runs once the commit is visible and before it is announced. Without changes nothing is
    /// committed: the last position is returned if the read set holds.
    ///
    /// # Errors
    /// `WriteConflict`, and those of the engine; then nothing is published or announced.
    pub(crate) fn commit(
        &self,
        changes: &Changes<'_>,
        read_set: &ReadSet,
        publish: impl FnOnce(),
    ) -> Result<CommitSeq> {
        let position = self.engine.commit(&changes.batch, read_set, DURABILITY)?;
        publish();
        if !self.observers.is_empty() && !changes.batch.is_empty() {
            let logical = changes.logical();
            for observer in &self.observers {
                observer.committed(position, &logical);
            }
        }
        Ok(position)
    }
}

/// The changes of one commit: the batch, and beside it what observers want to know of it.
#[derive(Debug, Default)]
pub(crate) struct Changes<'a> {
    /// Changes that observers do not receive: index entries, counters, catalog entries.
    pub(crate) batch: Batch,
    recorded: Vec<Recorded<'a>>,
}

/// A collection whose documents change, and how much is wanted of that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) collection: &'a Collection,
    pub(crate) detail: Option<Detail>,
}

/// A logical change, without what the batch holds anyway.
#[derive(Debug)]
enum Recorded<'a> {
    Insert {
        collection: &'a Collection,
        /// The operation of the batch, by its number, that puts the document.
        operation: usize,
    },
    Update {
        collection: &'a Collection,
        /// As that of an insertion.
        operation: usize,
        before: Option<RawDocumentBuf>,
    },
    Delete {
        collection: &'a Collection,
        key: RawDocumentBuf,
        before: Option<RawDocumentBuf>,
    },
    Command {
        database: String,
        uuid: Uuid,
        document: Document,
    },
}

impl<'a> Changes<'a> {
    /// Puts a new document under its engine key.
    pub(crate) fn insert(&mut self, target: Target<'a>, key: &[u8], document: &RawDocument) {
        if target.detail.is_some() {
            self.recorded.push(Recorded::Insert {
                collection: target.collection,
                operation: self.batch.operation_count(),
            });
        }
        self.batch.put(key, document.as_bytes());
    }

    /// Puts the new version of a document under its engine key.
    pub(crate) fn update(
        &mut self,
        target: Target<'a>,
        key: &[u8],
        before: &RawDocument,
        after: &RawDocument,
    ) {
        if let Some(detail) = target.detail {
            self.recorded.push(Recorded::Update {
                collection: target.collection,
                operation: self.batch.operation_count(),
                before: (detail == Detail::Images).then(|| before.to_owned()),
            });
        }
        self.batch.put(key, after.as_bytes());
    }

    /// Deletes a document under its engine key.
    ///
    /// # Errors
    /// When the document's `_id` is wanted and cannot be read.
    pub(crate) fn delete(
        &mut self,
        target: Target<'a>,
        key: &[u8],
        document: &RawDocument,
    ) -> Result<()> {
        if let Some(detail) = target.detail {
            let mut id = RawDocumentBuf::new();
            if let Some(value) = document.get("_id")? {
                id.append(bson::cstr!("_id"), value);
            }
            self.recorded.push(Recorded::Delete {
                collection: target.collection,
                key: id,
                before: (detail == Detail::Images).then(|| document.to_owned()),
            });
        }
        self.batch.delete(key);
        Ok(())
    }

    /// Says what the changes in the batch come to for the collection `uuid` of `database`.
    pub(crate) fn command(&mut self, database: &str, uuid: Uuid, document: Document) {
        self.recorded.push(Recorded::Command {
            database: database.to_owned(),
            uuid,
            document,
        });
    }

    /// The logical changes, with the documents where the batch has them.
    fn logical(&self) -> Vec<LogicalChange<'_>> {
        let mut operations = self.batch.operations().enumerate();
        // The recorded changes have ascending numbers.
        let mut put = |number| match operations.find(|(other, _)| *other == number) {
            Some((_, Operation::Put { value, .. })) => {
                RawDocument::from_bytes(value).expect("invariant: the operation puts a document")
            }
            _ => unreachable!("invariant: a recorded operation puts a document"),
        };
        let logical = |recorded| match recorded {
            &Recorded::Insert {
                collection,
                operation,
            } => LogicalChange::Insert {
                namespace: &collection.namespace,
                uuid: collection.uuid,
                document: put(operation),
            },
            Recorded::Update {
                collection,
                operation,
                before,
            } => LogicalChange::Update {
                namespace: &collection.namespace,
                uuid: collection.uuid,
                before: before.as_deref(),
                after: put(*operation),
            },
            Recorded::Delete {
                collection,
                key,
                before,
            } => LogicalChange::Delete {
                namespace: &collection.namespace,
                uuid: collection.uuid,
                key,
                before: before.as_deref(),
            },
            Recorded::Command {
                database,
                uuid,
                document,
            } => LogicalChange::Command {
                database,
                uuid: *uuid,
                document,
            },
        };
        self.recorded.iter().map(logical).collect()
    }
}
