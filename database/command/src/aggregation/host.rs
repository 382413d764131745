//! The database as pipelines see it.

use std::fmt;
use std::sync::Arc;

use bson::{Bson, Document, RawDocument, RawDocumentBuf};
use millrace_collection::index::FieldKind;
use millrace_collection::{
    Collection, InsertOptions, Namespace, Replaced, TEMPORARY, build_indexes, fill_zero_timestamps,
    insert_documents, insert_one, internal, prepare_document, replace_record,
};
use millrace_engine::Scratch;
use millrace_pipeline::{DocumentStream, Documents, Host, MergeAction};
use millrace_query::executor::{Executor, choose_plan};
use millrace_value::operation::new_object_id;
use millrace_value::{Collation, Error, ErrorCode, Operation, ReadView, Result};

use super::open_queries::OpenQueries;
use super::request::AggregateRequest;
use super::stream::open_stream;
use crate::Database;
use crate::insert::check_writable;
use crate::query_arguments::plain_query;
use crate::statistics::{coll_stats_stage, index_stats_stage};
use crate::variables::Bindings;

/// How many documents `$out` inserts at a time.
const OUT_DOCUMENTS: usize = 512;

/// The database, for one pipeline.
pub(crate) struct PipelineHost {
    database: Arc<Database>,
    /// The view of the operation that opened the pipeline.
    view: ReadView,
    queries: Arc<OpenQueries>,
    /// Whether the pipelines of views that are joined with may spill to disk.
    allow_disk_use: bool,
    /// Whether what is written is checked by no validator.
    bypass_validation: bool,
}

impl PipelineHost {
    pub(crate) fn new(
        database: Arc<Database>,
        view: ReadView,
        queries: Arc<OpenQueries>,
        allow_disk_use: bool,
        bypass_validation: bool,
    ) -> Self {
        Self {
            database,
            view,
            queries,
            allow_disk_use,
            bypass_validation,
        }
    }
}

impl fmt::Debug for PipelineHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PipelineHost").finish_non_exhaustive()
    }
}

impl Host for PipelineHost {
    fn open(
        &self,
        operation: &Operation,
        database: &str,
        collection: &str,
        filter: Option<&Document>,
        collation: Collation,
    ) -> Result<Box<dyn DocumentStream>> {
        let namespace = Namespace::new(database, collection)?;
        let catalog = self.database.catalog.at(&self.view);
        let Some(collection) = catalog.find(&namespace)? else {
            return self.open_view(operation, &namespace, filter, collation);
        };
        let filter = match filter {
            Some(filter) => RawDocumentBuf::try_from(filter)?,
            None => RawDocumentBuf::new(),
        };
        let bindings = Bindings::system(operation, collation);
        let query = Arc::new(plain_query(&filter, &bindings, None, None)?);
        let planned = choose_plan(&self.view, &collection, &query, operation)?;
        let executor = Executor::new(
            self.view.clone(),
            collection,
            query,
            planned.winning,
            bindings.variables,
        )?;
        Ok(self.queries.stream(executor))
    }

    fn replace_collection(
        &self,
        operation: &Operation,
        database: &str,
        collection: &str,
        documents: &mut dyn DocumentStream,
    ) -> Result<()> {
        let target = Namespace::new(database, collection)?;
        check_writable(&target)?;
        self.database.catalog.refuse_view(&target)?;
        let environment = &**operation.environment();
        let temporary = Namespace::new(
            database,
            &format!("tmp.agg_out.{}", new_object_id(environment)),
        )?;
        let catalog = &self.database.catalog;
        let present = catalog.find(&target);
        if present
            .as_ref()
            .is_some_and(|present| present.capped().is_some())
        {
            return Err(Error::location(
                17152,
                format!("namespace '{target}' is capped so it can't be used for $out"),
            ));
        }
        let mut options = present
            .as_ref()
            .map(|c| c.options.clone())
            .unwrap_or_default();
        // Should the server stop before the new collection takes its place, it is removed.
        options.insert(TEMPORARY, true);
        catalog.create(&temporary, options, environment)?;
        let filled = (|| {
            let specs = present
                .iter()
                .flat_map(|collection| &collection.indexes)
                .filter(|index| index.spec.name != "_id_")
                .map(|index| index.spec.clone())
                .collect();
            let added = catalog.add_indexes(&temporary, |_| Ok(specs))?;
            build_indexes(catalog, &temporary, &added, &[], operation)?;
            self.fill(&temporary, operation, documents)?;
            catalog.rename(&temporary, &target, true).map(|_| ())
        })();
        if filled.is_err() {
            catalog.drop_collection(&temporary)?;
        }
        filled
    }

    fn merge(
        &self,
        operation: &Operation,
        database: &str,
        collection: &str,
        key: &Document,
        collation: Collation,
        decide: &mut dyn FnMut(Option<&Document>) -> Result<MergeAction>,
    ) -> Result<()> {
        let namespace = Namespace::new(database, collection)?;
        check_writable(&namespace)?;
        loop {
            operation.check()?;
            let result = match self.find_record(&namespace, key, operation, collation)? {
                Some((collection, record_id)) => {
                    self.merge_into(&collection, &record_id, operation, decide)
                }
                None => self.merge_new(&namespace, operation, decide),
            };
            match result {
                Ok(true) => return Ok(()),
                // The document came or went since it was looked for.
                Ok(false) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn has_unique_index(
        &self,
        _operation: &Operation,
        database: &str,
        collection: &str,
        fields: &[String],
    ) -> Result<bool> {
        if fields == ["_id"] {
            return Ok(true);
        }
        let namespace = Namespace::new(database, collection)?;
        let Some(collection) = self.database.catalog.find(&namespace) else {
            return Ok(false);
        };
        Ok(collection.indexes.iter().any(|index| {
            let spec = &index.spec;
            let names: Vec<String> = spec
                .fields
                .iter()
                .map(|field| field.path.to_string())
                .collect();
            let unique = spec.unique || spec.name == "_id_";
            let plain = spec
                .fields
                .iter()
                .all(|field| field.kind != FieldKind::Hashed);
            unique
                && plain
                && !spec.sparse
                && spec.partial_filter.is_none()
                && names.len() == fields.len()
                && names.iter().all(|name| fields.contains(name))
        }))
    }

    fn collection_stats(
        &self,
        operation: &Operation,
        database: &str,
        collection: &str,
        spec: &Document,
    ) -> Result<Vec<Document>> {
        let namespace = Namespace::new(database, collection)?;
        let document = coll_stats_stage(&self.database, &self.view, &namespace, spec, operation)?;
        Ok(vec![document])
    }

    fn index_stats(
        &self,
        operation: &Operation,
        database: &str,
        collection: &str,
    ) -> Result<Vec<Document>> {
        let namespace = Namespace::new(database, collection)?;
        index_stats_stage(&self.database, &self.view, &namespace, operation)
    }

    fn current_operations(&self, _operation: &Operation, spec: &Document) -> Result<Vec<Document>> {
        self.database.hooks.current_operations(spec)
    }

    fn sessions(&self, _operation: &Operation, spec: &Document) -> Result<Vec<Document>> {
        self.database.hooks.sessions(spec)
    }

    fn scratch(&self) -> Result<Box<dyn Scratch>> {
        self.view.scratch()
    }
}

impl PipelineHost {
    /// Every document of a view that matches `filter`; none if there is no such view.
    fn open_view(
        &self,
        operation: &Operation,
        namespace: &Namespace,
        filter: Option<&Document>,
        collation: Collation,
    ) -> Result<Box<dyn DocumentStream>> {
        let catalog = self.database.catalog.at(&self.view);
        let Some(view) = catalog.resolve_view(namespace)? else {
            return Ok(Box::new(Documents::empty()));
        };
        let stages = filter.map(|filter| bson::doc! {"$match": filter.clone()});
        let bindings = Bindings::system(operation, collation);
        let stages = stages.into_iter().collect();
        let mut request = AggregateRequest::on_view(view, namespace, stages, bindings, None)?;
        request.allow_disk_use = self.allow_disk_use;
        open_stream(
            &self.database,
            namespace.database(),
            &request,
            &self.queries,
            &self.view,
            operation,
        )
    }

    fn fill(
        &self,
        namespace: &Namespace,
        operation: &Operation,
        documents: &mut dyn DocumentStream,
    ) -> Result<()> {
        loop {
            let mut some = Vec::new();
            while some.len() < OUT_DOCUMENTS {
                match documents.next(operation)? {
                    Some(document) => some.push(RawDocumentBuf::try_from(&document)?),
                    None => break,
                }
            }
            let borrowed: Vec<_> = some.iter().map(|document| &**document).collect();
            let catalog = &self.database.catalog;
            let outcome = insert_documents(
                catalog,
                namespace,
                &borrowed,
                InsertOptions {
                    ordered: true,
                    bypass_validation: self.bypass_validation,
                    keep_zero_timestamps: false,
                },
                operation,
            )?;
            if let Some((_, error)) = outcome.errors.into_iter().next() {
                return Err(error);
            }
            if some.len() < OUT_DOCUMENTS {
                return Ok(());
            }
        }
    }

    /// The document whose fields equal those of `key`: its collection and its record id. What is written to
    /// is looked for in the present state.
    fn find_record(
        &self,
        namespace: &Namespace,
        key: &Document,
        operation: &Operation,
        collation: Collation,
    ) -> Result<Option<(Arc<Collection>, Vec<u8>)>> {
        let Some(collection) = self.database.catalog.find(namespace) else {
            return Ok(None);
        };
        let mut filter = Document::new();
        for (name, value) in key {
            filter.insert(name, bson::doc! {"$eq": value.clone()});
        }
        let raw = RawDocumentBuf::try_from(&filter)?;
        let bindings = Bindings::system(operation, collation);
        let query = Arc::new(plain_query(&raw, &bindings, None, None)?);
        let latest = self.database.catalog.latest();
        let planned = choose_plan(latest, &collection, &query, operation)?;
        let mut executor = Executor::new(
            latest.clone(),
            Arc::clone(&collection),
            query,
            planned.winning,
            bindings.variables,
        )?;
        let found = executor.next(operation)?;
        Ok(found.map(|record| (collection, record.record_id)))
    }

    /// Decides about a document that was found; false when it is gone.
    fn merge_into(
        &self,
        collection: &Collection,
        record_id: &[u8],
        operation: &Operation,
        decide: &mut dyn FnMut(Option<&Document>) -> Result<MergeAction>,
    ) -> Result<bool> {
        let catalog = &self.database.catalog;
        let mut compute = |collection: &Collection, before: &RawDocument| {
            let present = Document::try_from(before)?;
            match decide(Some(&present))? {
                MergeAction::Keep => Ok(Some(before.to_owned())),
                MergeAction::Write(document) => {
                    let mut document = document;
                    let id = present
                        .get("_id")
                        .ok_or_else(|| internal("a document has no _id"))?;
                    match document.get("_id") {
                        Some(new) if new == id => {}
                        Some(_) => {
                            return Err(Error::new(
                                ErrorCode::ImmutableField,
                                "$merge failed to update the matching document, did you attempt to modify the _id or the shard key? :: caused by :: Performing an update on the path '_id' would modify the immutable field '_id'",
                            ));
                        }
                        None => document = with_id(id.clone(), document),
                    }
                    let raw = RawDocumentBuf::try_from(&document)?;
                    let prepared = prepare_document(&raw, &**operation.environment())?;
                    let after = prepared.unwrap_or(raw);
                    if !self.bypass_validation {
                        if let Some(validator) = collection.validator()? {
                            validator.check_update(before, &after, operation)?;
                        }
                    }
                    Ok(Some(after))
                }
            }
        };
        let replaced = replace_record(catalog, collection, record_id, operation, &mut compute)?;
        Ok(!matches!(replaced, Replaced::NoMatch))
    }

    /// Decides about a document that is not there; false when one has come.
    fn merge_new(
        &self,
        namespace: &Namespace,
        operation: &Operation,
        decide: &mut dyn FnMut(Option<&Document>) -> Result<MergeAction>,
    ) -> Result<bool> {
        let MergeAction::Write(document) = decide(None)? else {
            return Ok(true);
        };
        let environment = &**operation.environment();
        let raw = RawDocumentBuf::try_from(&document)?;
        let raw = prepare_document(&raw, environment)?.unwrap_or(raw);
        let raw = fill_zero_timestamps(&raw, environment)?.unwrap_or(raw);
        insert_one(
            &self.database.catalog,
            namespace,
            &raw,
            self.bypass_validation,
            operation,
        )?;
        Ok(true)
    }
}

fn with_id(id: Bson, rest: Document) -> Document {
    let mut document = bson::doc! {"_id": id};
    document.extend(rest);
    document
}
