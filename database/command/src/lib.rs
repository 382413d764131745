//! The database without a network: MongoDB's commands over an ordered key-value engine.
//!
//! # Purpose
//! [`Database::run`] takes one command, as a BSON document in MongoDB's command language, and appends its
//! reply to a buffer, with MongoDB's error codes. One file here holds one family of commands; `table`
//! declares them all, each with its [`CommandSpec`].
//! Below the commands are the modules that several of them use: `arguments`, `query_arguments` and `batch`
//! read fields, `aggregation` opens pipelines, `cursors` and `first_batch` return documents in batches.
//!
//! # How a command runs
//! ```text
//!   command document
//!        | this crate             parse, find the namespace
//!        v
//!   millrace-collection --------> collections, indexes, their keys in the engine
//!        | millrace-query         matcher tree -> bounds -> plan -> raw documents
//!        v
//!   millrace-pipeline, millrace-update: what is made of the documents
//!        |                        (all evaluate millrace-matcher and millrace-expression)
//!        v
//!   reply document, cursor kept for getMore
//! ```
//!
//! # Threads, clock, randomness
//! The crate spawns no thread and reads no clock and no random source: an
//! [`Operation`] brings them. Everything is `Send + Sync`; long work calls [`Operation::check`] so that
//! it can be interrupted.

#![forbid(unsafe_code)]

mod admin;
mod aggregate;
mod aggregation;
mod arguments;
mod batch;
mod bulk_write;
mod count;
mod cursor_commands;
mod cursors;
mod delete;
mod distinct;
mod document_list;
mod explain;
mod find;
mod find_and_modify;
mod first_batch;
mod indexes;
mod insert;
mod namespaces;
mod privilege;
mod query_arguments;
mod required;
mod spec;
mod statistics;
mod table;
mod ttl;
mod update;
mod validate;
mod variables;
mod views;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bson::{Document, RawDocument, RawDocumentBuf};
use millrace_collection::catalog::{Catalog, CatalogState};
use millrace_collection::committer::{CommitObserver, Committer};
use millrace_collection::{Collection, Namespace};
use millrace_engine::{CommitSeq, Engine};
use millrace_value::{DocumentWriter, Operation, ReadView, Result};

pub use arguments::is_generic;
pub use cursors::{CursorStatistics, Cursors};
pub use privilege::{
    Action, DerivePrivileges, Grants, Need, Principal, Privilege, Requirement, Resource,
    ResourceKind,
};
pub use spec::{
    Access, CommandSpec, Cost, CostRule, EndedWaits, OnSecondary, OperationKind, ReadConcernLevel,
    ReadConcernSupport, StableApi, WriteConcernSupport,
};
pub use table::Command;

/// One command from a client, borrowed from its message.
#[derive(Clone, Copy, Debug)]
pub struct CommandRequest<'a> {
    /// The name of the database it is for (`$db`).
    pub database: &'a str,
    /// The name of the command, as the client wrote it.
    pub name: &'a str,
    /// The command document; its first field names the command.
    pub body: &'a RawDocument,
    /// Document sequences of the message (`documents`, `updates`, ...).
    pub sequences: &'a [(&'a str, Vec<&'a RawDocument>)],
    /// The id of the logical session, as its bytes; cursors belong to it.
    pub session: Option<&'a [u8]>,
    /// The identity that the client acts as.
    pub principal: &'a Principal,
}

/// What a command did beside answering.
#[derive(Debug, Default)]
pub struct Effects {
    /// The last commit the command made: its acknowledgement waits until it is durable.
    pub written: Option<CommitSeq>,
    /// Set when a tailable cursor had nothing to return and wants to wait for data.
    pub wait: Option<Await>,
    /// Documents returned, inserted, updated and deleted, for the server's counters.
    pub counts: Counts,
}

impl Effects {
    fn written(commit_seq: Option<CommitSeq>) -> Self {
        Self {
            written: commit_seq,
            ..Self::default()
        }
    }
}

/// How many documents a command touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The documents returned to the client.
    pub returned: u64,
    /// The documents that were inserted, upserts included.
    pub inserted: u64,
    /// The documents that an update changed or replaced.
    pub updated: u64,
    /// The documents that were deleted by the command.
    pub deleted: u64,
}

/// The event that a tailable cursor waits for: run the same command again once
/// [`is_over`](Await::is_over) returns true, or the request's time is over.
#[derive(Clone, Debug)]
pub struct Await {
    collection: Arc<Collection>,
    inserts_seen: u64,
}

impl Await {
    /// Whether there may be something to return now.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.collection.inserts() != self.inserts_seen || self.collection.is_dropped()
    }

    /// The collection whose insertions end the wait.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.collection.namespace
    }
}

/// Collections, their cursors, and the commands on them.
pub struct Database {
    catalog: Catalog,
    cursors: Cursors,
    hooks: Arc<dyn DatabaseHooks>,
    /// How many documents were deleted because they were past their time.
    expired_documents: AtomicU64,
}

/// What the database needs of the server around it.
pub trait DatabaseHooks: Send + Sync + fmt::Debug {
    /// The operations that are running (`$currentOp`), one document each.
    fn current_operations(&self, spec: &Document) -> Result<Vec<Document>>;

    /// The sessions that are known (`$listLocalSessions`), one document each.
    fn sessions(&self, spec: &Document) -> Result<Vec<Document>>;

    /// The host and port clients reach the server by.
    fn address(&self) -> String;

    /// Told how many bytes all cursors hold between their batches whenever that changes; `false` if it is
    /// too much, and the longest unused ones are to be closed.
    fn cursors_may_hold(&self, bytes: usize) -> bool {
        let _ = bytes;
        true
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("catalog", &self.catalog)
            .field("cursors", &self.cursors)
            .finish_non_exhaustive()
    }
}

impl Database {
    /// The database kept in `engine`, without observers of its commits.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn open(engine: Arc<dyn Engine>, hooks: Arc<dyn DatabaseHooks>) -> Result<Self> {
        Self::open_observed(engine, hooks, Vec::new())
    }

    /// The database kept in `engine`. Its commits are announced to `observers`, those among them that remove
    /// what an unclean stop left behind.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn open_observed(
        engine: Arc<dyn Engine>,
        hooks: Arc<dyn DatabaseHooks>,
        observers: Vec<Arc<dyn CommitObserver>>,
    ) -> Result<Self> {
        Ok(Self {
            catalog: Catalog::open(Committer::new(engine, observers))?,
            cursors: Cursors::new(Arc::clone(&hooks)),
            hooks,
            expired_documents: AtomicU64::new(0),
        })
    }

    /// The commands of the document layer, ordered by name.
    #[must_use]
    pub fn commands() -> &'static [Command] {
        table::COMMANDS
    }

    /// The command of this name or alias.
    #[must_use]
    pub fn command(name: &str) -> Option<&'static Command> {
        table::command(name)
    }

    /// Runs one command and appends its reply, one BSON document, to `reply`. After an error, `reply`
    /// is as it was.
    ///
    /// # Errors
    /// The error that is the client's reply; `CommandNotFound` when there is no such command.
    pub fn run(
        self: &Arc<Self>,
        request: &CommandRequest<'_>,
        operation: &Operation,
        reply: &mut Vec<u8>,
    ) -> Result<Effects> {
        let command = table::command(request.name).ok_or_else(|| {
            millrace_value::Error::new(
                millrace_value::ErrorCode::CommandNotFound,
                format!("no such command: '{}'", request.name),
            )
        })?;
        command.run(self, request, operation, reply)
    }

    /// Closes the cursors that were not used for ten minutes; `now` is monotonic. To be called about
    /// once a minute.
    pub fn close_idle_cursors(&self, now: Duration) {
        self.cursors.close_idle(now);
    }

    /// Deletes the documents that are past their time (TTL indexes). To be called about once a minute from
    /// a thread that may take long.
    ///
    /// # Errors
    /// Interruption, and those of the engine.
    pub fn delete_expired(self: &Arc<Self>, operation: &Operation) -> Result<Option<CommitSeq>> {
        ttl::delete_expired(self, operation)
    }

    /// The open cursors of all clients.
    #[must_use]
    pub const fn cursors(&self) -> &Cursors {
        &self.cursors
    }

    /// The catalog of collections, indexes and views.
    #[must_use]
    pub const fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// How many documents were deleted because they were past their time.
    #[must_use]
    pub fn expired_documents(&self) -> u64 {
        self.expired_documents.load(Ordering::Relaxed)
    }

    /// The view at which `operation` reads.
    fn read_view<'a>(&'a self, operation: &'a Operation) -> &'a ReadView {
        self.catalog.read_view(operation)
    }

    /// The collections and views that there are for `operation`.
    fn catalog_of<'a>(&'a self, operation: &'a Operation) -> CatalogState<'a> {
        self.catalog.at(self.read_view(operation))
    }

    fn engine(&self) -> &Arc<dyn Engine> {
        self.catalog.engine()
    }
}

/// Writes `{..., ok: 1}` around what `fill` writes.
fn reply_ok(
    reply: &mut Vec<u8>,
    fill: impl FnOnce(&mut DocumentWriter<'_>) -> Result<()>,
) -> Result<()> {
    let mut writer = DocumentWriter::new(reply);
    fill(&mut writer)?;
    writer.double("ok", 1.0);
    writer.finish();
    Ok(())
}

/// The document that is not there: no fields.
fn empty_document() -> RawDocumentBuf {
    RawDocumentBuf::new()
}

/// Whether a document has no fields.
fn is_empty(document: &RawDocument) -> bool {
    document.as_bytes().len() <= 5
}
