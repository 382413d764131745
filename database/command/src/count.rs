//! `count`.

use std::sync::Arc;

use millrace_collection::Namespace;
use millrace_query::executor::{Executor, choose_plan};
use millrace_query::planner::Query;
use millrace_value::{Error, ErrorCode, Operation, Result};

use super::arguments::Arguments;
use super::query_arguments::{no_filter, parse_hint, plain_query};
use super::variables::Bindings;
use super::{CommandRequest, Database, Effects, is_empty, reply_ok};

/// The fields of the command.
pub(super) const FIELDS: &[&str] = &[
    "query",
    "limit",
    "skip",
    "hint",
    "collation",
    "fields",
    "encryptionInformation",
];

pub(super) fn count(
    database: &Arc<Database>,
    request: &CommandRequest<'_>,
    operation: &Operation,
    reply: &mut Vec<u8>,
) -> Result<Effects> {
    let arguments = Arguments::of_command("count", request.body, FIELDS)?;
    let collation = arguments.collation()?;
    let namespace = Namespace::new(request.database, arguments.collection()?)?;
    // A negative limit means the same as its absolute value.
    let limit = arguments.integer("limit")?.map_or(0, i64::unsigned_abs);
    let skip = arguments.count("skip")?.unwrap_or(0);
    let none = no_filter();
    let filter = arguments.document("query")?.unwrap_or(&none);
    let hint = parse_hint(&arguments)?;
    let bindings = Bindings::system(operation, collation);
    let mut query = plain_query(filter, &bindings, None, hint)?;
    let view = database.read_view(operation);
    let counted = match database.catalog.at(view).find(&namespace)? {
        None => {
            query.skip = skip;
            query.limit = Some(limit).filter(|&limit| limit > 0);
            count_view(database, &namespace, &query, &bindings, operation)?
        }
        Some(collection) if is_empty(filter) && query.hint.is_none() => {
            let all = view.counter(&collection.counter_key())?.count;
            let rest = u64::try_from(all).unwrap_or(0).saturating_sub(skip);
            if limit > 0 { rest.min(limit) } else { rest }
        }
        Some(collection) => {
            query.skip = skip;
            query.limit = Some(limit).filter(|&limit| limit > 0);
            let query = Arc::new(query);
            let planned = choose_plan(view, &collection, &query, operation)?;
            let mut executor = Executor::new(
                view.clone(),
                collection,
                query,
                planned.winning,
                bindings.variables,
            )?;
            executor.count(operation)?
        }
    };
    if i64::try_from(counted).is_err() {
        return Err(Error::new(
            ErrorCode::Overflow,
            "the count does not fit into 64 bits",
        ));
    }
    reply_ok(reply, |writer| {
        writer.count("n", counted);
        Ok(())
    })?;
    Ok(Effects::default())
}

/// How many documents of a view answer `query`; none if there is no such view.
fn count_view(
    database: &Arc<Database>,
    namespace: &Namespace,
    query: &Query,
    bindings: &Bindings,
    operation: &Operation,
) -> Result<u64> {
    let opened = super::views::open(database, namespace, query, None, bindings, operation)?;
    let Some(mut found) = opened else {
        return Ok(0);
    };
    let mut counted = 0;
    while found.stream.next(operation)?.is_some() {
        operation.check()?;
        counted += 1;
    }
    Ok(counted)
}
