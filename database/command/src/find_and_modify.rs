//! `findAndModify`.

use std::sync::Arc;

use bson::raw::RawBsonRef;
use bson::{Bson, RawDocument, RawDocumentBuf};
use millrace_collection::Namespace;
use millrace_matcher::Matcher;
use millrace_query::planner;
use millrace_update::projection::{Mode, Projection};
use millrace_value::{Error, ErrorCode, Operation, Result};

use super::arguments::Arguments;
use super::delete::{DeleteStatement, run_delete};
use super::insert::check_writable;
use super::query_arguments::{no_filter, parse_hint};
use super::update::{UpdateStatement, run_update};
use super::variables::Bindings;
use super::{CommandRequest, Cost, Counts, Database, Effects, reply_ok};

/// The fields of the command.
pub(super) const FIELDS: &[&str] = &[
    "query",
    "sort",
    "remove",
    "update",
    "new",
    "fields",
    "upsert",
    "bypassDocumentValidation",
    "bypassEmptyTsReplacement",
    "collation",
    "arrayFilters",
    "hint",
    "let",
    "encryptionInformation",
    "sampleId",
];

pub(super) fn classify(request: &CommandRequest<'_>) -> Cost {
    match request.body.get("query") {
        Ok(Some(RawBsonRef::Document(filter))) if planner::id_equality(filter).is_some() => {
            Cost::Inline
        }
        _ => Cost::Blocking,
    }
}

pub(super) fn find_and_modify(
    database: &Arc<Database>,
    request: &CommandRequest<'_>,
    operation: &Operation,
    reply: &mut Vec<u8>,
) -> Result<Effects> {
    let arguments = Arguments::of_command(request.name, request.body, FIELDS)?;
    let collation = arguments.collation()?;
    let namespace = Namespace::new(request.database, arguments.collection()?)?;
    check_writable(&namespace)?;
    let bindings = Bindings::with_let(arguments.tree("let")?.as_ref(), operation, collation)?;
    let remove = arguments.flag("remove")?;
    let update = arguments.get("update");
    check_combination(&arguments, remove, update.is_some())?;
    let projection = match arguments.tree("fields")? {
        Some(spec) => Some(Projection::parse(&spec, Mode::Find, &bindings.scope)?),
        None => None,
    };
    let none = no_filter();
    let filter = arguments.document("query")?.unwrap_or(&none);
    let done = match update {
        None => remove_one(
            database, &namespace, filter, &arguments, &bindings, operation,
        )?,
        Some(update) => update_one(
            database, &namespace, filter, update, &arguments, &bindings, operation,
        )?,
    };
    let value = match (&done.value, &projection) {
        (Some(document), Some(projection)) => {
            let matcher = Matcher::parse(filter, &bindings.scope)?;
            Some(project(
                document, projection, &matcher, &bindings, operation,
            )?)
        }
        (value, _) => value.clone(),
    };
    reply_ok(reply, |writer| {
        writer.open_document("lastErrorObject");
        writer.count("n", done.matched + u64::from(done.upserted.is_some()));
        if !remove {
            writer.boolean("updatedExisting", done.matched > 0);
        }
        if let Some(id) = &done.upserted {
            writer.value("upserted", id)?;
        }
        writer.close();
        match &value {
            Some(document) => writer.document("value", document),
            None => writer.value("value", &Bson::Null)?,
        }
        Ok(())
    })?;
    Ok(Effects {
        counts: done.counts,
        ..Effects::written(done.commit_seq)
    })
}

/// What the command did, and the document it returns.
struct Done {
    matched: u64,
    upserted: Option<Bson>,
    value: Option<RawDocumentBuf>,
    commit_seq: Option<millrace_engine::CommitSeq>,
    counts: Counts,
}

fn check_combination(arguments: &Arguments<'_>, remove: bool, update: bool) -> Result<()> {
    let refused = |why: &str| Err(Error::new(ErrorCode::FailedToParse, why));
    if remove && update {
        return refused("Cannot specify both an update and remove=true");
    }
    if !remove && !update {
        return refused("Either an update or remove=true must be specified");
    }
    if remove && arguments.flag("upsert")? {
        return refused("Cannot specify both upsert=true and remove=true");
    }
    if remove && arguments.flag("new")? {
        return refused(
            "Cannot specify both new=true and remove=true; 'remove' always returns the deleted document",
        );
    }
    if remove && arguments.array("arrayFilters")?.is_some() {
        return refused("Cannot specify arrayFilters and remove=true");
    }
    Ok(())
}

fn remove_one(
    database: &Arc<Database>,
    namespace: &Namespace,
    filter: &RawDocument,
    arguments: &Arguments<'_>,
    bindings: &Bindings,
    operation: &Operation,
) -> Result<Done> {
    let statement = DeleteStatement {
        filter,
        matcher: Matcher::parse(filter, &bindings.scope)?,
        bindings: bindings.clone(),
        one: true,
        sort: arguments.tree("sort")?,
        hint: parse_hint(arguments)?,
    };
    let result = run_delete(database, namespace, &statement, operation)?;
    Ok(Done {
        matched: result.deleted,
        upserted: None,
        value: result.document,
        commit_seq: result.commit_seq,
        counts: Counts {
            deleted: result.deleted,
            ..Counts::default()
        },
    })
}

fn update_one(
    database: &Arc<Database>,
    namespace: &Namespace,
    filter: &RawDocument,
    update: RawBsonRef<'_>,
    arguments: &Arguments<'_>,
    bindings: &Bindings,
    operation: &Operation,
) -> Result<Done> {
    let array_filters = arguments.trees("arrayFilters")?.unwrap_or_default();
    let mut statement = UpdateStatement::new(filter, update, &array_filters, bindings.clone())?;
    statement.upsert = arguments.flag("upsert")?;
    statement.sort = arguments.tree("sort")?;
    statement.hint = parse_hint(arguments)?;
    statement.bypass_validation = arguments.flag("bypassDocumentValidation")?;
    let keep_zero_timestamps = arguments.flag("bypassEmptyTsReplacement")?;
    statement.update.keep_zero_timestamps(keep_zero_timestamps);
    statement.failure_context = "Plan executor error during findAndModify";
    let result = run_update(database, namespace, &statement, operation)?;
    let value = if arguments.flag("new")? {
        result.after
    } else {
        result.before
    };
    Ok(Done {
        matched: result.matched,
        value,
        commit_seq: result.commit_seq,
        counts: Counts {
            updated: result.modified,
            inserted: u64::from(result.upserted.is_some()),
            ..Counts::default()
        },
        upserted: result.upserted,
    })
}

fn project(
    document: &RawDocument,
    projection: &Projection,
    matcher: &Matcher,
    bindings: &Bindings,
    operation: &Operation,
) -> Result<RawDocumentBuf> {
    let context = bindings.evaluation(operation);
    projection.check_positional(matcher.root())?;
    let mut details = millrace_matcher::MatchDetails::default();
    matcher.matches_recording(document, &context, &mut details)?;
    projection.apply_raw(document, Some(&details), &context)
}
