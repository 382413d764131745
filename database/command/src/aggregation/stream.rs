//! The documents of an aggregation.

use std::sync::Arc;

use millrace_collection::Namespace;
use millrace_pipeline::{Context, DocumentStream, Documents};
use millrace_query::executor::{Executor, choose_plan};
use millrace_value::{Operation, ReadView, Result};

use super::host::PipelineHost;
use super::open_queries::OpenQueries;
use super::request::AggregateRequest;
use crate::Database;

/// The documents of a pipeline: what its beginning asks for is planned as a query, the rest runs as
/// stages. All of them read at `view`, in later batches too.
pub(crate) fn open_stream(
    database: &Arc<Database>,
    database_name: &str,
    parsed: &AggregateRequest,
    queries: &Arc<OpenQueries>,
    view: &ReadView,
    operation: &Operation,
) -> Result<Box<dyn DocumentStream>> {
    let host = PipelineHost::new(
        Arc::clone(database),
        view.clone(),
        Arc::clone(queries),
        parsed.allow_disk_use,
        parsed.bypass_validation,
    );
    let name = parsed.collection.as_ref().map_or("", Namespace::collection);
    let context = Context {
        host: Arc::new(host),
        database: database_name.into(),
        collection: name.into(),
        variables: parsed.bindings.variables.clone(),
        collation: parsed.bindings.collation(),
        allow_disk_use: parsed.allow_disk_use,
    };
    let collection = match &parsed.collection {
        Some(namespace) if !parsed.pipeline.makes_documents() => {
            database.catalog.at(view).find(namespace)?
        }
        _ => return parsed.pipeline.run(Box::new(Documents::empty()), &context),
    };
    let (query, stages) = parsed.query()?;
    let source: Box<dyn DocumentStream> = match collection {
        None => Box::new(Documents::empty()),
        Some(collection) => {
            let query = Arc::new(query);
            let plan = choose_plan(view, &collection, &query, operation)?.winning;
            let variables = parsed.bindings.variables.clone();
            let executor = Executor::new(view.clone(), collection, query, plan, variables)?;
            queries.stream(executor)
        }
    };
    parsed.pipeline.without_prefix(stages).run(source, &context)
}
