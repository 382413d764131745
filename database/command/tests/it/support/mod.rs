//! A database in memory, driven by commands.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use bson::{Bson, Document, RawDocumentBuf};
use millrace_collection::committer::CommitObserver;
use millrace_command::{CommandRequest, Database, DatabaseHooks, Effects, Principal};
use millrace_engine::{Engine, MemoryEngine};
use millrace_value::operation::Limits;
use millrace_value::{Environment, Error, Interrupt, Operation, ReadView, Result};

/// A clock that moves only when the test sets it, and numbers that are the same in every run.
#[derive(Debug)]
pub(crate) struct Steady {
    pub(crate) wall_ms: AtomicI64,
    next: AtomicU64,
}

impl Environment for Steady {
    fn wall_clock_ms(&self) -> i64 {
        self.wall_ms.load(Ordering::Relaxed)
    }

    fn monotonic(&self) -> Duration {
        let ms = self.wall_ms.load(Ordering::Relaxed);
        Duration::from_millis(u64::try_from(ms).expect("the clock starts after 1970"))
    }

    fn random(&self) -> u64 {
        // SplitMix64 (Steele, Lea, Flood 2014).
        let mut z = self
            .next
            .fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

#[derive(Debug)]
struct Nobody;

impl DatabaseHooks for Nobody {
    fn current_operations(&self, _: &Document) -> Result<Vec<Document>> {
        Ok(Vec::new())
    }

    fn sessions(&self, _: &Document) -> Result<Vec<Document>> {
        Ok(Vec::new())
    }

    fn address(&self) -> String {
        "localhost:27017".to_owned()
    }

    fn cursors_may_hold(&self, bytes: usize) -> bool {
        bytes <= 1 << 20
    }
}

/// A database in memory, and what its commands run with.
#[derive(Debug, Clone)]
pub(crate) struct Fixture {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) database: Arc<Database>,
    pub(crate) environment: Arc<Steady>,
    pub(crate) limits: Limits,
    /// The view at which commands read; none for the latest one.
    pub(crate) view: Option<ReadView>,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::on(Arc::new(MemoryEngine::new()))
    }

    pub(crate) fn on(engine: Arc<dyn Engine>) -> Self {
        Self::observed(engine, Vec::new())
    }

    /// A database on `engine` whose commits are announced to `observers`.
    pub(crate) fn observed(
        engine: Arc<dyn Engine>,
        observers: Vec<Arc<dyn CommitObserver>>,
    ) -> Self {
        let environment = Arc::new(Steady {
            wall_ms: AtomicI64::new(1_700_000_000_000),
            next: AtomicU64::new(1),
        });
        let database = Database::open_observed(Arc::clone(&engine), Arc::new(Nobody), observers);
        let database = database.expect("the engine is readable");
        Self {
            engine,
            database: Arc::new(database),
            environment,
            limits: Limits::default(),
            view: None,
        }
    }

    pub(crate) fn operation(&self) -> Operation {
        let environment: Arc<dyn Environment> = Arc::clone(&self.environment) as _;
        let operation = Operation::new(environment, Arc::new(Interrupt::default()), self.limits);
        match &self.view {
            Some(view) => operation.reading_at(view.clone()),
            None => operation,
        }
    }

    /// Runs a command on the database `test` (or `admin` if it belongs there).
    #[expect(
        clippy::needless_pass_by_value,
        reason = "commands are written in place"
    )]
    pub(crate) fn try_run(&self, command: Document) -> Result<(Document, Effects), Error> {
        let name = command.keys().next().expect("a command has a name").clone();
        let database = match name.as_str() {
            "listDatabases" | "renameCollection" | "bulkWrite" => "admin",
            _ => "test",
        };
        let body = RawDocumentBuf::try_from(&command)?;
        let request = CommandRequest {
            database,
            name: &name,
            body: &body,
            sequences: &[],
            session: None,
            principal: &Principal::EVERYBODY,
        };
        let mut reply = Vec::new();
        let effects = self.database.run(&request, &self.operation(), &mut reply)?;
        let reply = Document::from_reader(reply.as_slice()).expect("the reply is BSON");
        assert_eq!(reply.get("ok"), Some(&Bson::Double(1.0)), "{reply}");
        Ok((reply, effects))
    }

    /// Runs a command that succeeds.
    pub(crate) fn run(&self, command: Document) -> Document {
        let text = command.to_string();
        match self.try_run(command) {
            Ok((reply, _)) => reply,
            Err(error) => panic!("{text} failed with {:?}: {error}", error.code()),
        }
    }

    /// The number of the error that a command fails with.
    pub(crate) fn code(&self, command: Document) -> i32 {
        let text = command.to_string();
        match self.try_run(command) {
            Ok((reply, _)) => panic!("{text} succeeded: {reply}"),
            Err(error) => error.code().number(),
        }
    }

    /// All documents that a command with a cursor returns, batch by batch.
    pub(crate) fn all(&self, command: Document) -> Vec<Document> {
        let mut reply = self.run(command);
        let mut documents = Vec::new();
        loop {
            let cursor = reply
                .get_document("cursor")
                .expect("the command has a cursor");
            let batch = cursor
                .get_array("firstBatch")
                .or_else(|_| cursor.get_array("nextBatch"));
            for document in batch.expect("the cursor has a batch") {
                documents.push(document.as_document().expect("a document").clone());
            }
            let id = cursor.get_i64("id").expect("the cursor has an id");
            if id == 0 {
                return documents;
            }
            let namespace = cursor.get_str("ns").expect("the cursor has a namespace");
            let (_, collection) = namespace.split_once('.').expect("a namespace has a dot");
            reply = self.run(bson::doc! {"getMore": id, "collection": collection, "batchSize": 7});
        }
    }

    pub(crate) fn insert(&self, collection: &str, documents: Vec<Document>) {
        let count = i32::try_from(documents.len()).expect("few documents");
        let reply = self.run(bson::doc! {"insert": collection, "documents": documents});
        assert_eq!(reply.get_i32("n").ok(), Some(count), "{reply}");
    }

    /// That documents, indexes and counters agree.
    pub(crate) fn assert_valid(&self, collection: &str) {
        let reply = self.run(bson::doc! {"validate": collection});
        assert_eq!(reply.get_bool("valid").ok(), Some(true), "{reply}");
    }
}
