//! `explain`: how a command would be run, and what running it does.

use std::sync::Arc;
use std::time::Duration;

use bson::raw::RawBsonRef;
use bson::{Bson, Document, RawDocument, doc};
use millrace_collection::Namespace;
use millrace_query::executor::{Executor, Verbosity, choose_plan};
use millrace_query::planner::Query;
use millrace_query::{executor, planner};
use millrace_value::{Collation, Error, ErrorCode, Operation, Result};

use super::aggregation::{AggregateRequest, OpenQueries, open_stream};
use super::arguments::Arguments;
use super::find::{FindRequest, projection_tree};
use super::query_arguments::{no_filter, parse_hint, plain_query};
use super::variables::Bindings;
use super::{CommandRequest, Database, Effects, reply_ok, views};

/// What is to be explained, as a query.
struct Explained {
    namespace: Namespace,
    query: Query,
    /// The projection as the client wrote it.
    projection: Option<Document>,
    bindings: Bindings,
    /// The stage above the plan (`COUNT`, `UPDATE`, ...), if the command is no find.
    above: Option<&'static str>,
}

pub(super) fn explain(
    database: &Arc<Database>,
    request: &CommandRequest<'_>,
    operation: &Operation,
    reply: &mut Vec<u8>,
) -> Result<Effects> {
    let arguments = Arguments::of_command("explain", request.body, &["verbosity"])?;
    let verbosity = parse_verbosity(&arguments)?;
    let body = match arguments.get("explain") {
        Some(RawBsonRef::Document(body)) => body,
        _ => {
            return Err(Error::new(
                ErrorCode::TypeMismatch,
                "BSON field 'explain.explain' is the wrong type, expected type 'object'",
            ));
        }
    };
    let name = match body.iter().next().transpose()? {
        Some((name, _)) => name.as_str(),
        None => return Err(Error::new(ErrorCode::FailedToParse, "nothing to explain")),
    };
    let inner = CommandRequest {
        name,
        body,
        ..*request
    };
    if name == "aggregate" {
        let parsed = AggregateRequest::parse(database, &inner, true, operation)?;
        return explain_aggregate(database, &inner, &parsed, verbosity, operation, reply);
    }
    let explained = match name {
        "find" => {
            let parsed = FindRequest::parse(request.database, body, operation)?;
            let projection = projection_tree(parsed.projection.as_deref())?;
            Explained {
                namespace: parsed.namespace,
                query: parsed.query,
                projection,
                bindings: parsed.bindings,
                above: None,
            }
        }
        "count" => of_filter(
            &inner,
            "query",
            super::count::FIELDS,
            Some("COUNT"),
            operation,
        )?,
        "distinct" => of_filter(&inner, "query", super::distinct::FIELDS, None, operation)?,
        "findAndModify" | "findandmodify" => of_find_and_modify(&inner, operation)?,
        "update" => of_batch(&inner, "updates", "UPDATE", operation)?,
        "delete" => of_batch(&inner, "deletes", "DELETE", operation)?,
        other => {
            return Err(Error::new(
                ErrorCode::CommandNotFound,
                format!("Explain failed due to unknown command: {other}"),
            ));
        }
    };
    if matches!(name, "find" | "count" | "distinct") {
        let catalog = database.catalog_of(operation);
        if let Some(view) = catalog.resolve_view(&explained.namespace)? {
            let parsed = views::aggregation_of(
                view,
                &explained.namespace,
                &explained.query,
                explained.projection.as_ref(),
                &explained.bindings,
            )?;
            return explain_aggregate(database, &inner, &parsed, verbosity, operation, reply);
        }
    }
    let catalog = database.catalog_of(operation);
    catalog.refuse_view(&explained.namespace)?;
    let mut document = explain_query(database, explained, verbosity, operation)?;
    document.extend(surroundings(database, request.database, body)?);
    write(reply, &document)
}

fn parse_verbosity(arguments: &Arguments<'_>) -> Result<Verbosity> {
    Ok(
        match arguments
            .string("verbosity")?
            .unwrap_or("allPlansExecution")
        {
            "queryPlanner" => Verbosity::QueryPlanner,
            "executionStats" => Verbosity::ExecutionStats,
            "allPlansExecution" => Verbosity::AllPlansExecution,
            other => {
                return Err(Error::new(
                    ErrorCode::BadValue,
                    format!(
                        "Enumeration value '{other}' for field 'explain.verbosity' is not a valid value."
                    ),
                ));
            }
        },
    )
}

fn write(reply: &mut Vec<u8>, document: &Document) -> Result<Effects> {
    reply_ok(reply, |writer| {
        for (name, value) in document {
            writer.value(name, value)?;
        }
        Ok(())
    })?;
    Ok(Effects::default())
}

/// The fields that say where the answer comes from.
fn surroundings(database: &Database, name: &str, body: &RawDocument) -> Result<Document> {
    let mut command = Document::try_from(body)?;
    command.insert("$db", name);
    let address = database.hooks.address();
    let (host, port) = address.rsplit_once(':').unwrap_or((&address, "0"));
    Ok(doc! {
        "command": command,
        "serverInfo": {
            "host": host,
            "port": port.parse::<i32>().unwrap_or(0),
            "version": env!("CARGO_PKG_VERSION"),
            "gitVersion": "",
        },
    })
}

fn of_filter(
    request: &CommandRequest<'_>,
    filter: &str,
    fields: &[&str],
    above: Option<&'static str>,
    operation: &Operation,
) -> Result<Explained> {
    let arguments = Arguments::of_command(request.name, request.body, fields)?;
    let none = no_filter();
    let filter = arguments.document(filter)?.unwrap_or(&none);
    let bindings = Bindings::system(operation, Collation::SIMPLE);
    let mut query = plain_query(filter, &bindings, None, parse_hint(&arguments)?)?;
    if request.name == "count" {
        query.skip = arguments.count("skip")?.unwrap_or(0);
        query.limit = arguments
            .integer("limit")?
            .map(i64::unsigned_abs)
            .filter(|&limit| limit > 0);
    }
    let namespace = Namespace::new(request.database, arguments.collection()?)?;
    Ok(Explained {
        namespace,
        query,
        projection: None,
        bindings,
        above,
    })
}

fn of_find_and_modify(request: &CommandRequest<'_>, operation: &Operation) -> Result<Explained> {
    let arguments =
        Arguments::of_command(request.name, request.body, super::find_and_modify::FIELDS)?;
    let none = no_filter();
    let filter = arguments.document("query")?.unwrap_or(&none);
    let bindings = Bindings::with_let(
        arguments.tree("let")?.as_ref(),
        operation,
        Collation::SIMPLE,
    )?;
    let mut query = plain_query(
        filter,
        &bindings,
        arguments.tree("sort")?,
        parse_hint(&arguments)?,
    )?;
    query.limit = Some(1);
    let namespace = Namespace::new(request.database, arguments.collection()?)?;
    let above = if arguments.flag("remove")? {
        "DELETE"
    } else {
        "UPDATE"
    };
    Ok(Explained {
        namespace,
        query,
        projection: None,
        bindings,
        above: Some(above),
    })
}

/// The one statement of an update or a deletion.
fn of_batch(
    request: &CommandRequest<'_>,
    name: &str,
    above: &'static str,
    operation: &Operation,
) -> Result<Explained> {
    let arguments = Arguments::of_command(
        request.name,
        request.body,
        &[
            name,
            "ordered",
            "bypassDocumentValidation",
            "bypassEmptyTsReplacement",
            "let",
        ],
    )?;
    let statements = super::batch::statements(request, &arguments, name)?;
    let [statement] = statements.as_slice() else {
        return Err(Error::new(
            ErrorCode::InvalidLength,
            format!(
                "explained write batches must be of size 1, got {}",
                statements.len()
            ),
        ));
    };
    let filter = match statement.get("q")? {
        Some(RawBsonRef::Document(filter)) => filter,
        _ => return Err(arguments.missing("q")),
    };
    let hint = match statement.get("hint")? {
        Some(RawBsonRef::String(name)) => Some(planner::Hint::Name(name.to_owned())),
        Some(RawBsonRef::Document(keys)) => Some(planner::Hint::Keys(keys.try_into()?)),
        _ => None,
    };
    let bindings = Bindings::of_batch(arguments.tree("let")?.as_ref(), operation)?;
    let query = plain_query(filter, &bindings, None, hint)?;
    let namespace = Namespace::new(request.database, arguments.collection()?)?;
    Ok(Explained {
        namespace,
        query,
        projection: None,
        bindings,
        above: Some(above),
    })
}

/// `queryPlanner` and, if asked for, `executionStats` of a query.
fn explain_query(
    database: &Arc<Database>,
    explained: Explained,
    verbosity: Verbosity,
    operation: &Operation,
) -> Result<Document> {
    let Explained {
        namespace,
        query,
        bindings,
        above,
        ..
    } = explained;
    let view = database.read_view(operation);
    let Some(collection) = database.catalog.at(view).find(&namespace)? else {
        return Ok(no_collection(&namespace, verbosity));
    };
    let query = Arc::new(query);
    let planned = choose_plan(view, &collection, &query, operation)?;
    let environment = operation.environment();
    let started = environment.monotonic();
    let executor = if verbosity == Verbosity::QueryPlanner {
        None
    } else {
        let mut executor = Executor::new(
            view.clone(),
            Arc::clone(&collection),
            Arc::clone(&query),
            planned.winning.clone(),
            bindings.variables,
        )?;
        while executor.next(operation)?.is_some() {}
        Some(executor)
    };
    let elapsed = environment.monotonic().saturating_sub(started);
    let mut document = executor::explain(
        &planned,
        executor.as_ref(),
        &query,
        &collection,
        verbosity,
        elapsed,
    )?;
    document.insert("explainVersion", "1");
    if let Some(stage) = above {
        wrap(&mut document, "queryPlanner", "winningPlan", stage);
        wrap(&mut document, "executionStats", "executionStages", stage);
    }
    Ok(document)
}

/// Puts a stage above a plan.
fn wrap(document: &mut Document, section: &str, plan: &str, stage: &str) {
    if let Ok(section) = document.get_document_mut(section) {
        if let Some(inner) = section.remove(plan) {
            section.insert(plan, doc! {"stage": stage, "inputStage": inner});
        }
    }
}

/// The plan for a collection that does not exist.
fn no_collection(namespace: &Namespace, verbosity: Verbosity) -> Document {
    let mut document = doc! {
        "explainVersion": "1",
        "queryPlanner": {
            "namespace": namespace.as_str(),
            "parsedQuery": {},
            "indexFilterSet": false,
            "winningPlan": {"stage": "EOF"},
            "rejectedPlans": [],
        },
    };
    if verbosity >= Verbosity::ExecutionStats {
        document.insert(
            "executionStats",
            doc! {
                "executionSuccess": true,
                "nReturned": 0,
                "executionTimeMillis": 0,
                "totalKeysExamined": 0,
                "totalDocsExamined": 0,
                "executionStages": {"stage": "EOF", "nReturned": 0},
            },
        );
    }
    document
}

/// The plan of a pipeline: of its beginning as a query, and its stages.
pub(super) fn explain_aggregate(
    database: &Arc<Database>,
    request: &CommandRequest<'_>,
    parsed: &AggregateRequest,
    verbosity: Verbosity,
    operation: &Operation,
    reply: &mut Vec<u8>,
) -> Result<Effects> {
    let mut document = match &parsed.collection {
        Some(namespace) if !parsed.pipeline.makes_documents() => {
            let (query, stages) = parsed.query()?;
            let explained = Explained {
                namespace: namespace.clone(),
                query,
                projection: None,
                bindings: parsed.bindings.clone(),
                above: None,
            };
            let rest = parsed.pipeline.without_prefix(stages).to_bson();
            let planned = explain_query(database, explained, verbosity, operation)?;
            if rest.is_empty() {
                planned
            } else {
                let elapsed = run_through(database, request, parsed, verbosity, operation)?;
                let mut list = vec![Bson::Document(doc! {"$cursor": planned})];
                list.extend(rest.into_iter().map(Bson::Document));
                let mut document = doc! {"explainVersion": "1", "stages": list};
                if let Some((count, elapsed)) = elapsed {
                    document.insert("nReturned", i64::try_from(count).unwrap_or(i64::MAX));
                    let millis = i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX);
                    document.insert("executionTimeMillisEstimate", millis);
                }
                document
            }
        }
        _ => {
            let stages: Vec<Bson> = parsed
                .pipeline
                .to_bson()
                .into_iter()
                .map(Bson::Document)
                .collect();
            doc! {"explainVersion": "1", "stages": stages}
        }
    };
    document.extend(surroundings(database, request.database, request.body)?);
    write(reply, &document)
}

/// Runs a pipeline that writes nothing and says how many documents came out in what time.
fn run_through(
    database: &Arc<Database>,
    request: &CommandRequest<'_>,
    parsed: &AggregateRequest,
    verbosity: Verbosity,
    operation: &Operation,
) -> Result<Option<(u64, Duration)>> {
    if verbosity == Verbosity::QueryPlanner || parsed.pipeline.writes_to().is_some() {
        return Ok(None);
    }
    let started = operation.environment().monotonic();
    let queries = Arc::new(OpenQueries::default());
    let mut stream = open_stream(
        database,
        request.database,
        parsed,
        &queries,
        database.read_view(operation),
        operation,
    )?;
    let mut count = 0;
    while stream.next(operation)?.is_some() {
        count += 1;
    }
    Ok(Some((
        count,
        operation.environment().monotonic().saturating_sub(started),
    )))
}
