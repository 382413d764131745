//! A database on an engine, and what is asked of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bson::{Document, RawDocumentBuf, doc};
use millrace_command::{CommandRequest, Database, DatabaseHooks, Principal};
use millrace_engine::{CommitSeq, Engine, KeyRange};
use millrace_random::Random;
use millrace_value::ident::Ident;
use millrace_value::operation::Limits;
use millrace_value::{Environment, Error, ErrorCode, Interrupt, Operation, Result};

use super::model::{Answer, Contents, Model};
use super::restless::Restless;
use super::workload::Step;

/// No time passes, and numbers are the same in every run.
#[derive(Debug, Default)]
struct Steady(AtomicU64);

impl Environment for Steady {
    fn wall_clock_ms(&self) -> i64 {
        1_700_000_000_000
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }

    fn random(&self) -> u64 {
        Random::new(self.0.fetch_add(1, Ordering::Relaxed)).number()
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
}

/// A database on an engine.
pub(crate) struct Fixture {
    pub(crate) engine: Arc<Restless>,
    database: Arc<Database>,
    environment: Arc<Steady>,
}

impl Fixture {
    pub(crate) fn on(engine: Arc<Restless>) -> Result<Self> {
        let database = Database::open(Arc::clone(&engine) as _, Arc::new(Nobody))?;
        Ok(Self {
            engine,
            database: Arc::new(database),
            environment: Arc::default(),
        })
    }

    pub(crate) fn run_on(
        &self,
        database: &str,
        command: &Document,
    ) -> Result<(Document, Option<CommitSeq>)> {
        let name = command.keys().next().expect("a command has a name");
        let body = RawDocumentBuf::try_from(command)?;
        let request = CommandRequest {
            database,
            name,
            body: &body,
            sequences: &[],
            session: None,
            principal: &Principal::EVERYBODY,
        };
        let environment: Arc<dyn Environment> = Arc::clone(&self.environment) as _;
        let operation = Operation::new(
            environment,
            Arc::new(Interrupt::default()),
            Limits::default(),
        );
        let mut reply = Vec::new();
        let effects = self.database.run(&request, &operation, &mut reply)?;
        let reply = Document::from_reader(reply.as_slice()).expect("the reply is BSON");
        Ok((reply, effects.written))
    }

    pub(crate) fn run(&self, command: &Document) -> Document {
        match self.run_on("test", command) {
            Ok((reply, _)) => reply,
            Err(error) => panic!("{command} failed with {:?}: {error}", error.code()),
        }
    }

    /// The documents of a command's cursor, all in one batch.
    pub(crate) fn all(&self, command: &Document) -> Vec<Document> {
        let reply = self.run(command);
        let cursor = reply.get_document("cursor").expect("it has a cursor");
        let batch = cursor.get_array("firstBatch").expect("it has a batch");
        let documents = batch.iter().map(|d| d.as_document().cloned());
        documents
            .collect::<Option<_>>()
            .expect("a batch holds documents")
    }

    /// Does one step; what was answered and the commit it made.
    ///
    /// # Errors
    /// When the engine failed.
    pub(crate) fn step(&self, step: &Step) -> Result<(Answer, Option<CommitSeq>)> {
        let Some((database, command)) = step.command() else {
            self.engine.compact(&KeyRange::all())?;
            return Ok((
                Answer::Done {
                    write_errors: false,
                },
                None,
            ));
        };
        match self.run_on(database, &command) {
            Ok((reply, written)) => {
                let write_errors = reply.contains_key("writeErrors");
                Ok((Answer::Done { write_errors }, written))
            }
            Err(error) if is_storage(&error) => Err(error),
            Err(error) => Ok((Answer::Failed(error.code().number()), None)),
        }
    }

    /// What the database holds.
    pub(crate) fn contents(&self) -> Model {
        let mut collections = BTreeMap::new();
        for description in self.all(&doc! {"listCollections": 1}) {
            let name = description.get_str("name").expect("it has a name");
            let options = description.get_document("options").expect("it has options");
            let capped = options.get_i32("max").ok();
            let indexes = self.all(&doc! {"listIndexes": name});
            let contents = Contents {
                capped: capped.map(|max| usize::try_from(max).expect("it is positive")),
                documents: self.all(&doc! {"find": name, "batchSize": 1_000_000}),
                indexes: indexes
                    .iter()
                    .map(|index| {
                        let name = index.get_str("name").expect("it has a name");
                        (name.to_owned(), index.get_bool("unique").unwrap_or(false))
                    })
                    .filter(|(name, _)| name != "_id_")
                    .collect(),
            };
            collections.insert(name.to_owned(), contents);
        }
        Model { collections }
    }

    /// Documents, indexes and counters agree, and nothing is there that nobody owns.
    pub(crate) fn check(&self, case: &str) {
        let mut owners = BTreeSet::from([Ident::CATALOG.prefix()]);
        for collection in self.database.catalog().collections("test") {
            let name = collection.namespace.collection();
            let reply = self.run(&doc! {"validate": name});
            assert_eq!(reply.get_bool("valid").ok(), Some(true), "{case}: {reply}");
            owners.insert(collection.ident.prefix());
            owners.extend(collection.indexes.iter().map(|index| index.ident.prefix()));
        }
        let mut cursor = self.engine.cursor(KeyRange::all()).expect("a cursor");
        let mut found = cursor.seek_first().expect("it moves");
        while found {
            let owner = cursor.key().first_chunk().expect("keys begin with idents");
            assert!(
                owners.contains(owner),
                "{case}: nobody owns {:?}",
                cursor.key()
            );
            found = cursor.next().expect("it moves");
        }
    }
}

/// Whether an error is the engine's and not the command's.
pub(crate) fn is_storage(error: &Error) -> bool {
    error.code() == ErrorCode::InternalError
}
