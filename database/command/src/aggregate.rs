//! `aggregate`.

use std::sync::Arc;

use bson::raw::RawBsonRef;
use bson::{Bson, Document, RawDocumentBuf};
use millrace_collection::Namespace;
use millrace_collection::catalog::ResolvedView;
use millrace_expression::sort::SortPattern;
use millrace_pipeline::{Context, DocumentStream, Documents, Pipeline};
use millrace_query::executor::{Executor, choose_plan};
use millrace_query::planner::{Hint, Query};
use millrace_value::{Error, ErrorCode, Operation, ReadView, Result};

use super::arguments::Arguments;
use super::cursors::{OpenCursor, Source};
use super::find::{FIRST_BATCH_COUNT, first_batch, parse_hint, plain_query};
use super::host::{OpenQueries, PipelineHost};
use super::namespaces::cursor_batch_size;
use super::variables::Bindings;
use super::{CommandRequest, Database, Effects};

/// The fields of the command.
const FIELDS: &[&str] = &[
    "pipeline",
    "cursor",
    "explain",
    "allowDiskUse",
    "bypassDocumentValidation",
    "collation",
    "hint",
    "let",
    "fromMongos",
    "fromRouter",
    "needsMerge",
    "exchange",
    "runtimeConstants",
    "collectionUUID",
    "encryptionInformation",
    "includeQueryStatsMetrics",
];

/// A parsed `aggregate`.
pub(super) struct AggregateRequest {
    /// What the client named: its cursor is known by it.
    pub(super) namespace: Namespace,
    /// The collection that is read: below the views, if a view was named. None for `{aggregate: 1}`.
    pub(super) collection: Option<Namespace>,
    pub(super) pipeline: Pipeline,
    pub(super) bindings: Bindings,
    pub(super) hint: Option<Hint>,
    pub(super) allow_disk_use: bool,
    batch_size: Option<u64>,
    /// Whether the client wants the plan (an option older than the `explain` command).
    pub(super) explain: bool,
}

impl AggregateRequest {
    pub(super) fn parse(
        database: &Database,
        request: &CommandRequest<'_>,
        explained: bool,
        operation: &Operation,
    ) -> Result<Self> {
        let arguments = Arguments::of_command("aggregate", request.body, FIELDS)?;
        let collation = arguments.collation()?;
        let (namespace, has_collection) = match arguments.get("aggregate") {
            Some(RawBsonRef::String(name)) => (Namespace::new(request.database, name)?, true),
            Some(value) if is_one(value) => {
                (Namespace::of_command(request.database, "aggregate")?, false)
            }
            _ => {
                return Err(Error::new(
                    ErrorCode::FailedToParse,
                    "Invalid command format: the 'aggregate' field must specify a collection name or 1",
                ));
            }
        };
        let stages = match arguments.get("pipeline") {
            None => return Err(arguments.missing("pipeline")),
            Some(RawBsonRef::Array(_)) => stages(&arguments)?,
            Some(_) => {
                return Err(Error::new(
                    ErrorCode::TypeMismatch,
                    "'pipeline' option must be specified as an array",
                ));
            }
        };
        let explain = arguments.flag("explain")?;
        if arguments.document("cursor")?.is_none() && !explain && !explained {
            return Err(Error::new(
                ErrorCode::FailedToParse,
                "The 'cursor' option is required, except for aggregate with the explain argument",
            ));
        }
        let bindings = Bindings::with_let(arguments.tree("let")?.as_ref(), operation, collation)?;
        let pipeline = Pipeline::parse(&stages, &bindings.scope)?;
        pipeline.check_namespace(has_collection)?;
        let hint = parse_hint(&arguments)?;
        let catalog = database.catalog_of(operation);
        let mut parsed = match catalog.resolve_view(&namespace)? {
            Some(_) if pipeline.makes_documents() => {
                // Such a stage describes a collection (`$collStats`, `$indexStats`).
                catalog.refuse_view(&namespace)?;
                Self::new(namespace, None, pipeline, bindings, hint)
            }
            Some(view) => Self::on_view(view, &namespace, stages, bindings, hint)?,
            None => {
                let collection = has_collection.then(|| namespace.clone());
                Self::new(namespace, collection, pipeline, bindings, hint)
            }
        };
        parsed.allow_disk_use = arguments.boolean("allowDiskUse")?.unwrap_or(true);
        parsed.batch_size = cursor_batch_size(&arguments)?;
        parsed.explain = explain;
        Ok(parsed)
    }

    fn new(
        namespace: Namespace,
        collection: Option<Namespace>,
        pipeline: Pipeline,
        bindings: Bindings,
        hint: Option<Hint>,
    ) -> Self {
        Self {
            namespace,
            collection,
            pipeline,
            bindings,
            hint,
            allow_disk_use: true,
            batch_size: None,
            explain: false,
        }
    }

    /// The aggregation of a view: of what lies below it, with the views' stages first.
    pub(super) fn on_view(
        view: ResolvedView,
        namespace: &Namespace,
        stages: Vec<Document>,
        bindings: Bindings,
        hint: Option<Hint>,
    ) -> Result<Self> {
        let mut all = view.pipeline;
        all.extend(stages);
        let pipeline = Pipeline::parse(&all, &bindings.scope)?;
        let collection = Some(view.collection);
        Ok(Self::new(
            namespace.clone(),
            collection,
            pipeline,
            bindings,
            hint,
        ))
    }

    /// What the beginning of the pipeline asks of the collection, and how many stages say it.
    pub(super) fn query(&self) -> Result<(Query, usize)> {
        let prefix = self.pipeline.prefix();
        let filter = match prefix.filter {
            Some(filter) => RawDocumentBuf::try_from(filter)?,
            None => RawDocumentBuf::new(),
        };
        let sort = prefix.sort.map(sort_document);
        let mut query = plain_query(&filter, &self.bindings, sort, self.hint.clone())?;
        query.skip = prefix
            .skip
            .and_then(|skip| u64::try_from(skip).ok())
            .unwrap_or(0);
        query.limit = prefix.limit.and_then(|limit| u64::try_from(limit).ok());
        query.allow_disk_use = self.allow_disk_use;
        Ok((query, prefix.stages))
    }
}

/// A sort pattern as a `find` has it.
fn sort_document(pattern: &SortPattern) -> Document {
    pattern
        .fields()
        .iter()
        .map(|field| {
            (
                field.path.to_string(),
                Bson::Int32(if field.descending { -1 } else { 1 }),
            )
        })
        .collect()
}

fn stages(arguments: &Arguments<'_>) -> Result<Vec<Document>> {
    let mut stages = Vec::new();
    for value in arguments.array("pipeline")?.into_iter().flatten() {
        match value? {
            RawBsonRef::Document(stage) => stages.push(stage.try_into()?),
            _ => {
                return Err(Error::new(
                    ErrorCode::TypeMismatch,
                    "Each element of the 'pipeline' array must be an object",
                ));
            }
        }
    }
    Ok(stages)
}

fn is_one(value: RawBsonRef<'_>) -> bool {
    millrace_value::Number::from_raw(value).is_some_and(|number| number.as_i64_exact() == Some(1))
}

/// `aggregate`: runs a pipeline and returns its first batch.
pub(super) fn aggregate(
    database: &Arc<Database>,
    request: &CommandRequest<'_>,
    operation: &Operation,
    reply: &mut Vec<u8>,
) -> Result<Effects> {
    let parsed = AggregateRequest::parse(database, request, false, operation)?;
    if parsed.explain {
        let verbosity = millrace_query::executor::Verbosity::QueryPlanner;
        return super::explain::explain_aggregate(
            database, request, &parsed, verbosity, operation, reply,
        );
    }
    let writes = parsed.pipeline.writes_to().is_some();
    if writes && parsed.batch_size == Some(0) {
        return Err(Error::new(
            ErrorCode::FailedToParse,
            "a pipeline that ends with $out or $merge cannot have a batch size of zero",
        ));
    }
    let view = database.read_view(operation);
    if writes && view.is_fixed() {
        // What the stage writes to is looked for in the present state, and would be read in another one.
        return Err(Error::new(
            ErrorCode::OperationNotSupportedInTransaction,
            "a pipeline that ends with $out or $merge cannot read at a snapshot",
        ));
    }
    let queries = Arc::new(OpenQueries::default());
    let stream = open_stream(
        database,
        request.database,
        &parsed,
        &queries,
        view,
        operation,
    )?;
    let cursor = OpenCursor::new(
        parsed.namespace,
        Source::Stream(stream, queries),
        request.session,
    );
    let batch_size = parsed.batch_size.unwrap_or(FIRST_BATCH_COUNT);
    let mut effects = first_batch(database, cursor, batch_size, false, operation, reply)?;
    if writes {
        effects.written = Some(database.engine().last_commit_seq());
    }
    Ok(effects)
}

/// The documents of a pipeline: what its beginning asks for is planned as a query, the rest runs as
/// stages. All of them read at `view`, in later batches too.
pub(super) fn open_stream(
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
