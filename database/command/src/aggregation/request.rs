//! The request of an aggregation.

use bson::raw::RawBsonRef;
use bson::{Bson, Document, RawDocumentBuf};
use millrace_collection::Namespace;
use millrace_collection::catalog::ResolvedView;
use millrace_expression::sort::SortPattern;
use millrace_pipeline::Pipeline;
use millrace_query::planner::{Hint, Query};
use millrace_value::{Error, ErrorCode, Operation, Result};

use crate::arguments::Arguments;
use crate::query_arguments::{parse_hint, plain_query};
use crate::variables::Bindings;
use crate::{CommandRequest, Database};

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
pub(crate) struct AggregateRequest {
    /// What the client named: its cursor is known by it.
    pub(crate) namespace: Namespace,
    /// The collection that is read: below the views, if a view was named. None for `{aggregate: 1}`.
    pub(crate) collection: Option<Namespace>,
    pub(crate) pipeline: Pipeline,
    pub(crate) bindings: Bindings,
    pub(crate) hint: Option<Hint>,
    pub(crate) allow_disk_use: bool,
    /// Whether `$out` and `$merge` write what the validator of the target refuses.
    pub(crate) bypass_validation: bool,
    /// How many documents the first batch holds at most; none if the client leaves it to the server.
    pub(crate) batch_size: Option<u64>,
    /// Whether the client wants the plan (an option older than the `explain` command).
    pub(crate) explain: bool,
}

impl AggregateRequest {
    pub(crate) fn parse(
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
        parsed.bypass_validation = arguments.flag("bypassDocumentValidation")?;
        parsed.batch_size = arguments.cursor_batch_size()?;
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
            bypass_validation: false,
            batch_size: None,
            explain: false,
        }
    }

    /// The aggregation of a view: of what lies below it, with the views' stages first.
    pub(crate) fn on_view(
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
    pub(crate) fn query(&self) -> Result<(Query, usize)> {
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
