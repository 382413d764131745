//! The seam to the document layer: what the server needs of it, and nothing of how it does it.

use std::fmt::Debug;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bson::{Document, RawDocument};
use millrace_document::command::{self, Await, CommandRequest, Database};
use millrace_document::{Operation, Result};
use millrace_engine::Optime;

use crate::state::Surroundings;

/// A command for the document layer.
#[derive(Clone, Copy, Debug)]
pub struct DocumentCommand<'a> {
    /// `$db`.
    pub database: &'a str,
    /// The command's name.
    pub name: &'a str,
    /// The whole command.
    pub body: &'a RawDocument,
    /// The document sequences of the message.
    pub sequences: &'a [(&'a str, Vec<&'a RawDocument>)],
    /// The logical session.
    pub session: Option<&'a [u8]>,
}

/// How long a command may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// It touches few documents: it is served on the worker.
    Point,
    /// It may scan, sort or wait: it is served on an executor thread.
    Long,
}

/// How many documents a command touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DocumentCounts {
    /// Returned to the client.
    pub returned: u64,
    /// Inserted.
    pub inserted: u64,
    /// Updated.
    pub updated: u64,
    /// Deleted.
    pub deleted: u64,
}

/// What a tailable cursor waits for.
pub trait Awaited: Send + Debug {
    /// Whether there may be something to return now.
    fn is_over(&self) -> bool;
    /// The collection (`database.collection`) whose insertions end the wait.
    fn namespace(&self) -> &str;
}

/// What a command did beside answering.
#[derive(Debug, Default)]
pub struct DocumentEffects {
    /// The last commit it made.
    pub written: Option<Optime>,
    /// Set when it has nothing to return and wants to be run again.
    pub wait: Option<Box<dyn Awaited>>,
    /// What it touched.
    pub counts: DocumentCounts,
}

/// Cursors, for monitoring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CursorCounts {
    /// Open now.
    pub open: u64,
    /// Open now and never closed for idleness.
    pub open_no_timeout: u64,
    /// Ever opened.
    pub opened: u64,
    /// Closed for idleness.
    pub timed_out: u64,
}

/// The document layer as the server sees it.
pub trait DocumentService: Send + Sync + Debug + 'static {
    /// The names of its commands.
    fn command_names(&self) -> Vec<&'static str>;

    /// How long a command may take, by its shape.
    fn classify(&self, command: &DocumentCommand<'_>) -> Weight;

    /// Runs a command and appends its reply, one document.
    ///
    /// # Errors
    /// What the client is to be told; `reply` is as it was.
    fn run(
        &self,
        command: &DocumentCommand<'_>,
        operation: &Operation,
        reply: &mut Vec<u8>,
    ) -> Result<DocumentEffects>;

    /// Closes the cursors of a session.
    fn end_session(&self, session: &[u8]);

    /// The cursors.
    fn cursors(&self) -> CursorCounts;

    /// How many documents were deleted because they were past their time.
    fn expired_documents(&self) -> u64;

    /// Closes the cursors that nobody has used for long; `now` is monotonic.
    fn close_idle_cursors(&self, now: Duration);

    /// Deletes the documents that are past their time. May take long.
    ///
    /// # Errors
    /// Interruption, and those of the engine.
    fn delete_expired(&self, operation: &Operation) -> Result<Option<Optime>>;
}

/// The document layer behind the seam.
#[derive(Debug)]
pub struct Documents {
    database: Arc<Database>,
}

impl Documents {
    /// The seam to `database`.
    #[must_use]
    pub fn new(database: Database) -> Self {
        Self {
            database: Arc::new(database),
        }
    }
}

impl<'a> DocumentCommand<'a> {
    const fn request(&self) -> CommandRequest<'a> {
        CommandRequest {
            database: self.database,
            name: self.name,
            body: self.body,
            sequences: self.sequences,
            session: self.session,
        }
    }
}

impl DocumentService for Documents {
    fn command_names(&self) -> Vec<&'static str> {
        Database::command_names().collect()
    }

    fn classify(&self, command: &DocumentCommand<'_>) -> Weight {
        match Database::classify(&command.request()) {
            command::Weight::Point => Weight::Point,
            command::Weight::Long => Weight::Long,
        }
    }

    fn run(
        &self,
        command: &DocumentCommand<'_>,
        operation: &Operation,
        reply: &mut Vec<u8>,
    ) -> Result<DocumentEffects> {
        let effects = self.database.run(&command.request(), operation, reply)?;
        Ok(DocumentEffects {
            written: effects.written,
            wait: effects.wait.map(|wait| Box::new(wait) as Box<dyn Awaited>),
            counts: DocumentCounts {
                returned: effects.counts.returned,
                inserted: effects.counts.inserted,
                updated: effects.counts.updated,
                deleted: effects.counts.deleted,
            },
        })
    }

    fn end_session(&self, session: &[u8]) {
        self.database.cursors().kill_session(session);
    }

    fn cursors(&self) -> CursorCounts {
        let cursors = self.database.cursors().statistics();
        CursorCounts {
            open: cursors.open,
            open_no_timeout: cursors.open_no_timeout,
            opened: cursors.opened_total,
            timed_out: cursors.timed_out_total,
        }
    }

    fn expired_documents(&self) -> u64 {
        self.database.expired_documents()
    }

    fn close_idle_cursors(&self, now: Duration) {
        self.database.close_idle_cursors(now);
    }

    fn delete_expired(&self, operation: &Operation) -> Result<Option<Optime>> {
        self.database.delete_expired(operation)
    }
}

impl Awaited for Await {
    fn is_over(&self) -> bool {
        Self::is_over(self)
    }

    fn namespace(&self) -> &str {
        Self::namespace(self).as_str()
    }
}

impl command::Surroundings for Surroundings {
    fn current_operations(&self, spec: &Document) -> Result<Vec<Document>> {
        Self::current_operations(self, spec)
    }

    fn sessions(&self, _: &Document) -> Result<Vec<Document>> {
        Ok(self.list_sessions())
    }

    fn address(&self) -> String {
        self.address.clone()
    }

    fn cursors_may_hold(&self, bytes: usize) -> bool {
        // A panic while it is held leaves the charge whole.
        let mut charge = self.cursors.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes <= charge.bytes() {
            charge.set(bytes);
            return true;
        }
        charge.try_raise_to(bytes)
    }
}
