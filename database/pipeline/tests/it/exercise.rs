//! What a pipeline of unknown origin goes through: shared by the fuzz target and by the deterministic
//! test beside it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bson::{Bson, Document, doc};
use millrace_engine::{Engine, MemoryEngine, Scratch};
use millrace_expression::{Scope, Variables};
use millrace_pipeline::{Context, DocumentStream, Documents, Host, MergeAction, Pipeline};
use millrace_value::operation::Limits;
use millrace_value::{Collation, Environment, Error, ErrorCode, Interrupt, Operation, Result};

/// Little enough that most blocking stages spill.
const STAGE_MEMORY_BYTES: usize = 4096;

/// How often the clock is read before time is over: stages that multiply documents come to an end.
const CLOCK_READINGS_MAX: u64 = 200;

/// A clock that goes on by one with every reading.
#[derive(Debug, Default)]
struct Ticking(AtomicU64);

impl Environment for Ticking {
    fn wall_clock_ms(&self) -> i64 {
        1_700_000_000_000
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(self.0.fetch_add(1, Ordering::Relaxed))
    }

    fn random(&self) -> u64 {
        4
    }
}

/// A database in which every collection has the same documents.
#[derive(Debug)]
struct Everywhere(Vec<Document>);

impl Host for Everywhere {
    fn open(
        &self,
        operation: &Operation,
        _database: &str,
        _collection: &str,
        _filter: Option<&Document>,
        _collation: Collation,
    ) -> Result<Box<dyn DocumentStream>> {
        operation.check()?;
        Ok(Box::new(Documents::new(self.0.clone())))
    }

    fn replace_collection(
        &self,
        operation: &Operation,
        _database: &str,
        _collection: &str,
        documents: &mut dyn DocumentStream,
    ) -> Result<()> {
        while documents.next(operation)?.is_some() {}
        Ok(())
    }

    fn merge(
        &self,
        _operation: &Operation,
        _database: &str,
        _collection: &str,
        _key: &Document,
        _collation: Collation,
        decide: &mut dyn FnMut(Option<&Document>) -> Result<MergeAction>,
    ) -> Result<()> {
        decide(None)?;
        decide(self.0.first())?;
        Ok(())
    }

    fn has_unique_index(
        &self,
        _operation: &Operation,
        _database: &str,
        _collection: &str,
        _fields: &[String],
    ) -> Result<bool> {
        Ok(true)
    }

    fn collection_stats(
        &self,
        _operation: &Operation,
        _database: &str,
        _collection: &str,
        spec: &Document,
    ) -> Result<Vec<Document>> {
        Ok(vec![spec.clone()])
    }

    fn index_stats(
        &self,
        _operation: &Operation,
        _database: &str,
        _collection: &str,
    ) -> Result<Vec<Document>> {
        Ok(vec![doc! {"name": "_id_"}])
    }

    fn current_operations(&self, _operation: &Operation, spec: &Document) -> Result<Vec<Document>> {
        Ok(vec![spec.clone()])
    }

    fn sessions(&self, _operation: &Operation, _spec: &Document) -> Result<Vec<Document>> {
        Err(Error::new(
            ErrorCode::NamespaceNotFound,
            "there are no sessions",
        ))
    }

    fn scratch(&self) -> Result<Box<dyn Scratch>> {
        Ok(MemoryEngine::new().scratch()?)
    }
}

/// Takes a BSON document `{pipeline: [stages], documents: [input]}`, if `bytes` are one, and runs the
/// pipeline. Whatever comes, this returns.
pub(crate) fn run(bytes: &[u8]) {
    if let Ok(mut document) = Document::from_reader(bytes) {
        let stages = documents(document.remove("pipeline"));
        let input = documents(document.remove("documents"));
        // Errors are what most pipelines deserve; there is nothing to check but that they return.
        let _ = run_stages(&stages, input);
    }
}

/// Runs the pipeline and counts the documents that come out.
pub(crate) fn run_stages(stages: &[Document], input: Vec<Document>) -> Result<usize> {
    let pipeline = Pipeline::parse(stages, &Scope::new(Collation::SIMPLE))?;
    // What explain and the planner ask must not fail either.
    let _ = (
        pipeline.to_bson(),
        pipeline.prefix(),
        pipeline.required_fields(),
    );
    let interrupt = Interrupt::default();
    interrupt.set_deadline(Some(Duration::from_secs(CLOCK_READINGS_MAX)));
    let limits = Limits {
        stage_memory_bytes: STAGE_MEMORY_BYTES,
    };
    let operation = Operation::new(Arc::new(Ticking::default()), Arc::new(interrupt), limits);
    let context = Context {
        host: Arc::new(Everywhere(input.clone())),
        database: Arc::from("db"),
        collection: Arc::from("c"),
        variables: Variables::new(&operation),
        collation: Collation::SIMPLE,
        allow_disk_use: true,
    };
    let mut stream = pipeline.run(Box::new(Documents::new(input)), &context)?;
    let mut count = 0;
    while stream.next(&operation)?.is_some() {
        stream.memory_bytes();
        count += 1;
    }
    Ok(count)
}

fn documents(value: Option<Bson>) -> Vec<Document> {
    let Some(Bson::Array(values)) = value else {
        return Vec::new();
    };
    values
        .iter()
        .filter_map(Bson::as_document)
        .cloned()
        .collect()
}
