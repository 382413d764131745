//! A database that is a few lists of documents.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use bson::{Document, RawDocumentBuf, doc};
use millrace_engine::Scratch;
use millrace_expression::{EvaluationContext, Scope, Variables};
use millrace_matcher::Matcher;
use millrace_pipeline::{Context, DocumentStream, Documents, Host, MergeAction, Pipeline};
use millrace_value::{Collation, Error, ErrorCode, Operation, Result};

use crate::environment::{operation, scratch};

/// Collections by name, and the filters they were asked with.
#[derive(Debug, Default)]
pub(crate) struct Database {
    collections: Mutex<BTreeMap<String, Vec<Document>>>,
    filters: Mutex<Vec<Option<Document>>>,
    /// The unique indexes beside that of `_id`.
    unique: Vec<Vec<String>>,
}

impl Database {
    /// A database with these collections.
    pub(crate) fn new(collections: &[(&str, Vec<Document>)]) -> Self {
        let collections = collections
            .iter()
            .map(|(name, content)| ((*name).to_owned(), content.clone()))
            .collect();
        Self {
            collections: Mutex::new(collections),
            ..Self::default()
        }
    }

    /// The same with a unique index.
    pub(crate) fn with_unique_index(mut self, fields: &[&str]) -> Self {
        self.unique
            .push(fields.iter().map(|field| (*field).to_owned()).collect());
        self
    }

    /// The documents of a collection.
    pub(crate) fn content(&self, collection: &str) -> Vec<Document> {
        self.lock().get(collection).cloned().unwrap_or_default()
    }

    /// The filters that collections were opened with, in order.
    pub(crate) fn filters(&self) -> Vec<Option<Document>> {
        self.filters
            .lock()
            .expect("no test panics while it holds the lock")
            .clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Vec<Document>>> {
        self.collections
            .lock()
            .expect("no test panics while it holds the lock")
    }
}

fn matches(
    filter: &Document,
    document: &Document,
    operation: &Operation,
    collation: Collation,
) -> Result<bool> {
    let matcher = Matcher::parse(&RawDocumentBuf::try_from(filter)?, &Scope::new(collation))?;
    let variables = Variables::new(operation);
    let eval = EvaluationContext::new(operation, &variables, collation);
    matcher.matches(&RawDocumentBuf::try_from(document)?, &eval)
}

impl Host for Database {
    fn open(
        &self,
        operation: &Operation,
        _database: &str,
        collection: &str,
        filter: Option<&Document>,
        collation: Collation,
    ) -> Result<Box<dyn DocumentStream>> {
        self.filters
            .lock()
            .expect("no test panics while it holds the lock")
            .push(filter.cloned());
        let mut found = Vec::new();
        for document in self.content(collection) {
            let wanted = match filter {
                Some(filter) => matches(filter, &document, operation, collation)?,
                None => true,
            };
            if wanted {
                found.push(document);
            }
        }
        Ok(Box::new(Documents::new(found)))
    }

    fn replace_collection(
        &self,
        operation: &Operation,
        _database: &str,
        collection: &str,
        documents: &mut dyn DocumentStream,
    ) -> Result<()> {
        let mut content = Vec::new();
        while let Some(document) = documents.next(operation)? {
            content.push(document);
        }
        self.lock().insert(collection.to_owned(), content);
        Ok(())
    }

    fn merge(
        &self,
        operation: &Operation,
        _database: &str,
        collection: &str,
        key: &Document,
        collation: Collation,
        decide: &mut dyn FnMut(Option<&Document>) -> Result<MergeAction>,
    ) -> Result<()> {
        let mut collections = self.lock();
        let content = collections.entry(collection.to_owned()).or_default();
        let mut position = None;
        for (index, document) in content.iter().enumerate() {
            if matches(key, document, operation, collation)? {
                position = Some(index);
                break;
            }
        }
        match (decide(position.map(|index| &content[index]))?, position) {
            (MergeAction::Keep, _) => {}
            (MergeAction::Write(document), Some(index)) => content[index] = document,
            (MergeAction::Write(document), None) => content.push(document),
        }
        Ok(())
    }

    fn has_unique_index(
        &self,
        _operation: &Operation,
        _database: &str,
        _collection: &str,
        fields: &[String],
    ) -> Result<bool> {
        Ok(fields == ["_id"] || self.unique.iter().any(|index| index == fields))
    }

    fn collection_stats(
        &self,
        _operation: &Operation,
        database: &str,
        collection: &str,
        spec: &Document,
    ) -> Result<Vec<Document>> {
        Ok(vec![
            doc! {"ns": format!("{database}.{collection}"), "asked": spec.clone()},
        ])
    }

    fn index_stats(
        &self,
        _operation: &Operation,
        _database: &str,
        collection: &str,
    ) -> Result<Vec<Document>> {
        Ok(vec![doc! {"name": "_id_", "of": collection}])
    }

    fn current_operations(&self, _operation: &Operation, spec: &Document) -> Result<Vec<Document>> {
        Ok(vec![doc! {"opid": 1, "asked": spec.clone()}])
    }

    fn sessions(&self, _operation: &Operation, _spec: &Document) -> Result<Vec<Document>> {
        Err(Error::new(
            ErrorCode::NamespaceNotFound,
            "there are no sessions",
        ))
    }

    fn scratch(&self) -> Result<Box<dyn Scratch>> {
        scratch()
    }
}

/// How a pipeline is run.
pub(crate) struct Run {
    pub(crate) database: Arc<Database>,
    pub(crate) memory: usize,
    pub(crate) allow_disk_use: bool,
}

impl Default for Run {
    fn default() -> Self {
        Self {
            database: Arc::default(),
            memory: 100 * 1024 * 1024,
            allow_disk_use: true,
        }
    }
}

impl Run {
    /// In a database with these collections.
    pub(crate) fn with(collections: &[(&str, Vec<Document>)]) -> Self {
        Self {
            database: Arc::new(Database::new(collections)),
            ..Self::default()
        }
    }

    /// What `stages` make of `input`.
    pub(crate) fn run(&self, stages: &[Document], input: Vec<Document>) -> Result<Vec<Document>> {
        let pipeline = Pipeline::parse(stages, &Scope::new(Collation::SIMPLE))?;
        let operation = operation(self.memory);
        let host: Arc<dyn Host> = Arc::<Database>::clone(&self.database);
        let context = Context {
            host,
            database: Arc::from("db"),
            collection: Arc::from("source"),
            variables: Variables::new(&operation),
            collation: Collation::SIMPLE,
            allow_disk_use: self.allow_disk_use,
        };
        let mut stream = pipeline.run(Box::new(Documents::new(input)), &context)?;
        let mut output = Vec::new();
        while let Some(document) = stream.next(&operation)? {
            output.push(document);
        }
        Ok(output)
    }
}

/// What `stages` make of `input` in an empty database.
pub(crate) fn run(stages: &[Document], input: Vec<Document>) -> Vec<Document> {
    Run::default()
        .run(stages, input)
        .expect("the pipeline runs")
}

/// The code and the message that a pipeline fails with, when parsed or when run over `input`.
pub(crate) fn failure(stages: &[Document], input: Vec<Document>) -> (i32, String) {
    let error = Run::default()
        .run(stages, input)
        .expect_err("the pipeline fails");
    (error.code().number(), error.message().to_owned())
}
