//! A collection in memory, its documents and index entries put there directly.

use std::sync::Arc;

use bson::{Bson, Document, RawDocumentBuf, doc};
use millrace_collection::index::{IndexEntry, IndexKeys, IndexSpec};
use millrace_collection::{Collection, Index, Namespace, RecordKind};
use millrace_engine::{Batch, Durability, Engine, MemoryEngine, ReadSet};
use millrace_expression::sort::SortPattern;
use millrace_expression::{EvaluationContext, Scope, Variables};
use millrace_matcher::Matcher;
use millrace_update::projection::{Mode, Projection};
use millrace_value::ident::Ident;
use millrace_value::key::TypeBits;
use millrace_value::operation::Limits;
use millrace_value::testing::StillEnvironment;
use millrace_value::{Collation, Operation, ReadView, Result};

use crate::executor::{Executor, choose_plan};
use crate::planner::{PlannedQuery, Query};

/// An operation with the default limits.
pub(super) fn operation() -> Operation {
    operation_with_memory(Limits::default().stage_memory_bytes)
}

/// An operation whose stages may hold this much.
pub(super) fn operation_with_memory(stage_memory_bytes: usize) -> Operation {
    let limits = Limits { stage_memory_bytes };
    StillEnvironment::new(1_700_000_000_000).operation(limits)
}

/// A collection and its engine.
pub(super) struct Fixture {
    pub(super) engine: Arc<dyn Engine>,
    pub(super) collection: Arc<Collection>,
    next_sequence: u64,
}

impl Fixture {
    /// An empty collection with an index on `_id` and those given as `createIndexes` takes them.
    pub(super) fn new(kind: RecordKind, indexes: &[Document]) -> Self {
        let id_index = doc! { "v": 2, "key": { "_id": 1 }, "name": "_id_", "unique": true };
        let indexes = std::iter::once(&id_index)
            .chain(indexes)
            .zip(11..)
            .map(|(document, number)| {
                let spec = if number == 11 {
                    IndexSpec::id()
                } else {
                    IndexSpec::parse(document).expect("a valid index")
                };
                Arc::new(Index::new(Ident::new(number), spec, true, 0))
            })
            .collect();
        let namespace = Namespace::new("test", "c").expect("a valid name");
        let collection = Collection::detached(namespace, Ident::new(10), kind, indexes);
        Self {
            engine: Arc::new(MemoryEngine::new()),
            collection: Arc::new(collection),
            next_sequence: 1,
        }
    }

    /// Adds a document; an error if it cannot be indexed.
    pub(super) fn insert(&mut self, document: &Document) -> Result<()> {
        let raw = RawDocumentBuf::try_from(document)?;
        let record_id = self.record_id(document)?;
        let mut batch = Batch::new();
        batch.put(&self.collection.record_key(&record_id), raw.as_bytes());
        let mut masks = Vec::new();
        for index in self.collection.stored_indexes() {
            let keys = IndexKeys::of(&index.spec, &raw)?;
            masks.push((Arc::clone(index), keys.multikey));
            for key in &keys.keys {
                let unique = index.spec.unique;
                let entry = IndexEntry::key(index.ident, unique, &key.fields, &record_id);
                batch.put(
                    &entry,
                    &IndexEntry::value(unique, &record_id, &key.type_bits),
                );
            }
        }
        for (index, mask) in masks {
            index.add_multikey(mask);
        }
        self.engine
            .commit(&batch, &ReadSet::none(), Durability::Buffered)?;
        self.next_sequence += 1;
        Ok(())
    }

    fn record_id(&self, document: &Document) -> Result<Vec<u8>> {
        match self.collection.kind {
            RecordKind::Sequenced => Ok(self.next_sequence.to_be_bytes().to_vec()),
            RecordKind::Clustered => {
                let mut record_id = Vec::new();
                let id = document.get("_id").expect("test documents have an _id");
                Collation::SIMPLE.encode_key_bson(
                    &mut record_id,
                    &mut TypeBits::default(),
                    id,
                    false,
                )?;
                Ok(record_id)
            }
        }
    }

    /// Removes the record of a sequence number, but not its index entries.
    pub(super) fn remove_record(&self, sequence: u64) {
        let mut batch = Batch::new();
        batch.delete(&self.collection.record_key(&sequence.to_be_bytes()));
        self.engine
            .commit(&batch, &ReadSet::none(), Durability::Buffered)
            .expect("the engine in memory commits");
    }

    fn view(&self) -> ReadView {
        ReadView::latest(Arc::clone(&self.engine))
    }

    pub(super) fn plan(&self, query: &Query) -> Result<PlannedQuery> {
        choose_plan(&self.view(), &self.collection, query, &operation())
    }

    pub(super) fn executor(&self, query: &Query) -> Result<Executor> {
        let plan = self.plan(query)?.winning;
        let variables = Variables::new(&operation());
        Executor::new(
            self.view(),
            Arc::clone(&self.collection),
            Arc::new(query.clone()),
            plan,
            variables,
        )
    }

    /// What a query finds.
    pub(super) fn run(&self, query: &Query) -> Result<Vec<Document>> {
        let mut executor = self.executor(query)?;
        let operation = operation();
        let mut documents = Vec::new();
        while let Some(record) = executor.next(&operation)? {
            documents.push(Document::try_from(&*record.document)?);
        }
        Ok(documents)
    }
}

/// A query for a filter.
pub(super) fn query(filter: &Document) -> Query {
    let raw = RawDocumentBuf::try_from(filter).expect("a valid filter");
    let matcher = Matcher::parse(&raw, &Scope::new(Collation::SIMPLE)).expect("a valid filter");
    Query::new(matcher, raw)
}

/// A projection of find.
pub(super) fn projection(spec: &Document) -> Projection {
    Projection::parse(spec, Mode::Find, &Scope::new(Collation::SIMPLE)).expect("a valid projection")
}

/// What a query finds according to its definition: every document is matched, then all are sorted. The
/// second value holds their sort keys.
pub(super) fn naive(documents: &[Document], query: &Query) -> Result<Vec<(Vec<u8>, Document)>> {
    let operation = operation();
    let variables = Variables::new(&operation);
    let context = EvaluationContext::new(&operation, &variables, Collation::SIMPLE);
    let pattern = SortPattern::parse(&query.sort.clone().unwrap_or_default(), Collation::SIMPLE)?;
    let mut found = Vec::new();
    for document in documents {
        let raw = RawDocumentBuf::try_from(document)?;
        if query.filter.matches(&raw, &context)? {
            found.push((pattern.key(document)?, document.clone()));
        }
    }
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    let skip = usize::try_from(query.skip).expect("tests skip little");
    let limit = query
        .limit
        .map_or(usize::MAX, |limit| usize::try_from(limit).expect("little"));
    Ok(found.into_iter().skip(skip).take(limit).collect())
}

/// The `_id`s of documents.
pub(super) fn ids(documents: &[Document]) -> Vec<Bson> {
    documents
        .iter()
        .map(|document| document.get("_id").cloned().unwrap_or(Bson::Null))
        .collect()
}
