//! Views: their creation and change, and how a read of one becomes an aggregation of what lies below.

use std::sync::Arc;

use bson::{Document, doc};
use millrace_collection::Namespace;
use millrace_collection::catalog::{ResolvedView, View};
use millrace_engine::CommitSeq;
use millrace_expression::Scope;
use millrace_pipeline::{DocumentStream, Pipeline};
use millrace_query::planner::{Hint, Query};
use millrace_value::{Collation, Error, ErrorCode, Number, Operation, Result};

use super::Database;
use super::aggregation::{AggregateRequest, OpenQueries, open_stream};
use super::arguments::Arguments;
use super::variables::Bindings;

/// What `create` may say of a view; everything else it knows is for collections.
const CREATE_FIELDS: &[&str] = &["viewOn", "pipeline", "collation"];

/// What `collMod` may say of a collection alone.
const COLLECTION_CHANGES: &[&str] = &[
    "index",
    "validator",
    "validationLevel",
    "validationAction",
    "cappedSize",
    "cappedMax",
    "changeStreamPreAndPostImages",
];

/// What `collMod` may say of a view alone.
const VIEW_CHANGES: &[&str] = &["pipeline", "viewOn"];

fn invalid_options(message: String) -> Error {
    Error::new(ErrorCode::InvalidOptions, message)
}

/// Creates the view that a `create` with `viewOn` describes, of whose fields `known` are not generic.
pub(super) fn create_view(
    database: &Database,
    namespace: &Namespace,
    arguments: &Arguments<'_>,
    known: &[&str],
    operation: &Operation,
) -> Result<CommitSeq> {
    let mut for_collections = known.iter().filter(|name| !CREATE_FIELDS.contains(name));
    if let Some(name) = for_collections.find(|name| arguments.contains(name)) {
        return Err(invalid_options(format!(
            "option not supported on a view: {name}"
        )));
    }
    let Some(view_on) = parse_view_on(namespace, arguments)? else {
        return Err(invalid_options(
            "'pipeline' requires 'viewOn' to also be specified".to_owned(),
        ));
    };
    let view = View {
        namespace: namespace.clone(),
        view_on,
        pipeline: arguments.trees("pipeline")?.unwrap_or_default(),
    };
    check_pipeline(namespace, &view.pipeline)?;
    let catalog = &database.catalog;
    match catalog.create_view(view.clone(), &**operation.environment()) {
        Err(error) if error.code() == ErrorCode::NamespaceExists => {
            match catalog.view(namespace) {
                // Creating what is there already, just so, is no error.
                Some(present) if *present == view => Ok(database.engine().last_commit_seq()),
                Some(_) => Err(Error::new(
                    ErrorCode::NamespaceExists,
                    format!("namespace {namespace} already exists, but with different options"),
                )),
                None => Err(error),
            }
        }
        other => other,
    }
}

/// Changes a view as `collMod` asks.
pub(super) fn change_view(
    database: &Database,
    view: &View,
    arguments: &Arguments<'_>,
) -> Result<CommitSeq> {
    if let Some(name) = COLLECTION_CHANGES
        .iter()
        .find(|name| arguments.contains(name))
    {
        return Err(invalid_options(format!(
            "option not supported on a view: {name}"
        )));
    }
    let view_on = parse_view_on(&view.namespace, arguments)?;
    let pipeline = arguments.trees("pipeline")?;
    if let Some(pipeline) = &pipeline {
        check_pipeline(&view.namespace, pipeline)?;
    }
    database.catalog.change_view(&view.namespace, |view| {
        if let Some(view_on) = view_on {
            view.view_on = view_on;
        }
        if let Some(pipeline) = pipeline {
            view.pipeline = pipeline;
        }
        Ok(())
    })
}

/// Refuses the fields of a `collMod` of a collection that are for views.
pub(super) fn refuse_view_changes(arguments: &Arguments<'_>) -> Result<()> {
    match VIEW_CHANGES.iter().find(|name| arguments.contains(name)) {
        Some(name) => Err(invalid_options(format!(
            "option only supported on a view: {name}"
        ))),
        None => Ok(()),
    }
}

/// What a view is to read.
fn parse_view_on(namespace: &Namespace, arguments: &Arguments<'_>) -> Result<Option<Namespace>> {
    match arguments.string("viewOn")? {
        None => Ok(None),
        Some("") => Err(Error::new(ErrorCode::BadValue, "'viewOn' cannot be empty")),
        Some(name) => Namespace::new(namespace.database(), name).map(Some),
    }
}

/// Checks that a view may have this pipeline.
fn check_pipeline(namespace: &Namespace, stages: &[Document]) -> Result<()> {
    let refused = |code, why: String| {
        let context = format!("Invalid pipeline for view {namespace}");
        Err(Error::new(code, why).context(&context))
    };
    if stages
        .iter()
        .any(|stage| stage.contains_key("$changeStream"))
    {
        let why = "$changeStream cannot be used in a view definition";
        return refused(ErrorCode::OptionNotSupportedOnView, why.to_owned());
    }
    let pipeline = Pipeline::parse(stages, &Scope::new(Collation::SIMPLE))?;
    let name = |stage: Option<&Document>| {
        let name = stage.and_then(|stage| stage.keys().next());
        name.cloned().unwrap_or_default()
    };
    if pipeline.writes_to().is_some() {
        // Such a stage can only be the last.
        let why = format!(
            "The aggregation stage {} in location {} of the pipeline cannot be used in the view \
             definition of {namespace} because it writes to disk",
            name(stages.last()),
            stages.len() - 1
        );
        return refused(ErrorCode::OptionNotSupportedOnView, why);
    }
    if pipeline.is_collectionless() {
        let why = format!(
            "'{}' cannot be used in a view definition",
            name(stages.first())
        );
        return refused(ErrorCode::InvalidNamespace, why);
    }
    Ok(())
}

/// The view as `listCollections` shows it.
pub(super) fn describe(view: &View) -> Document {
    doc! {
        "name": view.namespace.collection(),
        "type": "view",
        "options": view.options(),
        "info": {"readOnly": true},
    }
}

/// The aggregation that answers `query` on a view.
pub(super) fn aggregation_of(
    view: ResolvedView,
    namespace: &Namespace,
    query: &Query,
    projection: Option<&Document>,
    bindings: &Bindings,
) -> Result<AggregateRequest> {
    let option = |is_set: bool, name: &str| {
        let why = format!("Option {name} not supported in aggregation.");
        if is_set { Some(why) } else { None }
    };
    let refused = option(query.min.is_some(), "min")
        .or_else(|| option(query.max.is_some(), "max"))
        .or_else(|| option(query.return_key, "returnKey"))
        .or_else(|| option(query.show_record_id, "showRecordId"))
        .or_else(|| {
            let why = "Tailable cursors are not supported in aggregation.".to_owned();
            query.tailable.then_some(why)
        });
    if let Some(why) = refused {
        return Err(Error::new(ErrorCode::InvalidPipelineOperator, why));
    }
    let mut stages = Vec::new();
    let filter = Document::try_from(&*query.filter_document)?;
    if !filter.is_empty() {
        stages.push(doc! {"$match": filter});
    }
    let mut hint = query.hint.clone();
    if let Some(sort) = query.sort.as_ref().filter(|sort| !sort.is_empty()) {
        match sort.get("$natural") {
            // The order in which the collection below is scanned.
            Some(direction) => {
                let backward =
                    Number::from_bson(direction).is_some_and(|number| number.as_f64() < 0.0);
                hint = Some(Hint::Natural(if backward { -1 } else { 1 }));
            }
            None => stages.push(doc! {"$sort": sort.clone()}),
        }
    }
    if query.skip > 0 {
        stages.push(doc! {"$skip": i64::try_from(query.skip).unwrap_or(i64::MAX)});
    }
    if let Some(limit) = query.limit {
        stages.push(doc! {"$limit": i64::try_from(limit).unwrap_or(i64::MAX)});
    }
    if let Some(projection) = projection.filter(|projection| !projection.is_empty()) {
        stages.push(doc! {"$project": projection.clone()});
    }
    let mut request = AggregateRequest::on_view(view, namespace, stages, bindings.clone(), hint)?;
    request.allow_disk_use = query.allow_disk_use;
    Ok(request)
}

/// The documents that answer a query on a view.
pub(super) struct ViewDocuments {
    pub(super) stream: Box<dyn DocumentStream>,
    /// The queries that the stream reads from.
    pub(super) queries: Arc<OpenQueries>,
}

/// The documents that answer `query` on a view; none when there is no such view.
pub(super) fn open(
    database: &Arc<Database>,
    namespace: &Namespace,
    query: &Query,
    projection: Option<&Document>,
    bindings: &Bindings,
    operation: &Operation,
) -> Result<Option<ViewDocuments>> {
    let Some(view) = database.catalog_of(operation).resolve_view(namespace)? else {
        return Ok(None);
    };
    let request = aggregation_of(view, namespace, query, projection, bindings)?;
    let queries = Arc::new(OpenQueries::default());
    let stream = open_stream(
        database,
        namespace.database(),
        &request,
        &queries,
        database.read_view(operation),
        operation,
    )?;
    Ok(Some(ViewDocuments { stream, queries }))
}
