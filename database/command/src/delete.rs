//! `delete`.

use std::sync::Arc;

use bson::RawDocument;
use bson::raw::RawBsonRef;
use millrace_collection::{
    Namespace, RecordKind, clustered_record_id, delete_all_records, delete_record, is_fatal, latest,
};
use millrace_engine::CommitSeq;
use millrace_matcher::Matcher;
use millrace_query::executor::{Executor, choose_plan};
use millrace_query::planner;
use millrace_query::planner::Hint;
use millrace_value::{Error, ErrorCode, Operation, Result};

use super::arguments::Arguments;
use super::batch::{statements, write_errors};
use super::insert::check_writable;
use super::query_arguments::{parse_hint, plain_query};
use super::variables::Bindings;
use super::{CommandRequest, Cost, Counts, Database, Effects, is_empty, reply_ok};

/// One statement: which documents, all of them or one.
pub(crate) struct DeleteStatement<'a> {
    pub(crate) filter: &'a RawDocument,
    pub(crate) matcher: Matcher,
    pub(crate) bindings: Bindings,
    pub(crate) one: bool,
    pub(crate) sort: Option<bson::Document>,
    pub(crate) hint: Option<Hint>,
}

/// What one statement did.
#[derive(Debug, Default)]
pub(crate) struct DeleteResult {
    pub(crate) deleted: u64,
    pub(crate) commit_seq: Option<CommitSeq>,
    /// The document, of the last one if there were several.
    pub(crate) document: Option<bson::RawDocumentBuf>,
}

impl<'a> DeleteStatement<'a> {
    fn parse(body: &'a RawDocument, bindings: &Bindings) -> Result<Self> {
        let arguments = Arguments::of_statement(
            "delete.deletes",
            body,
            &["q", "limit", "collation", "hint", "sampleId"],
        )?;
        let bindings = bindings.compared_by(arguments.collation()?);
        let filter = arguments
            .document("q")?
            .ok_or_else(|| arguments.missing("q"))?;
        let limit = arguments
            .integer("limit")?
            .ok_or_else(|| arguments.missing("limit"))?;
        if !(0..=1).contains(&limit) {
            return Err(Error::new(
                ErrorCode::FailedToParse,
                format!("The limit field in delete objects must be 0 or 1. Got {limit}"),
            ));
        }
        Ok(Self {
            filter,
            matcher: Matcher::parse(filter, &bindings.scope)?,
            bindings,
            one: limit == 1,
            sort: None,
            hint: parse_hint(&arguments)?,
        })
    }
}

/// Deletions of one document by `_id` are point operations.
pub(super) fn classify(request: &CommandRequest<'_>) -> Cost {
    let is_point = |statement: &RawDocument| match statement.get("q") {
        Ok(Some(RawBsonRef::Document(filter))) => planner::id_equality(filter).is_some(),
        _ => false,
    };
    super::update::classify_statements(request, "deletes", is_point)
}

pub(super) fn delete(
    database: &Arc<Database>,
    request: &CommandRequest<'_>,
    operation: &Operation,
    reply: &mut Vec<u8>,
) -> Result<Effects> {
    let arguments = Arguments::of_command(
        "delete",
        request.body,
        &["deletes", "ordered", "let", "encryptionInformation"],
    )?;
    let namespace = Namespace::new(request.database, arguments.collection()?)?;
    check_writable(&namespace)?;
    let bindings = Bindings::of_batch(arguments.tree("let")?.as_ref(), operation)?;
    let ordered = arguments.boolean("ordered")?.unwrap_or(true);
    let mut totals = DeleteResult::default();
    let mut errors = Vec::new();
    for (index, body) in statements(request, &arguments, "deletes")?
        .into_iter()
        .enumerate()
    {
        operation.check()?;
        let result = DeleteStatement::parse(body, &bindings)
            .and_then(|statement| run_delete(database, &namespace, &statement, operation));
        match result {
            Ok(result) => {
                totals.deleted += result.deleted;
                totals.commit_seq = latest(totals.commit_seq, result.commit_seq);
            }
            Err(error) if is_fatal(&error) => return Err(error),
            Err(error) => {
                errors.push((index, error));
                if ordered {
                    break;
                }
            }
        }
    }
    reply_ok(reply, |writer| {
        writer.count("n", totals.deleted);
        write_errors(writer, &errors)
    })?;
    let counts = Counts {
        deleted: totals.deleted,
        ..Counts::default()
    };
    Ok(Effects {
        counts,
        ..Effects::written(totals.commit_seq)
    })
}

/// Runs one statement.
///
/// # Errors
/// Those of the filter and of the engine. What was deleted before the failure stays.
pub(crate) fn run_delete(
    database: &Arc<Database>,
    namespace: &Namespace,
    statement: &DeleteStatement<'_>,
    operation: &Operation,
) -> Result<DeleteResult> {
    let mut result = DeleteResult::default();
    let view = database.read_view(operation);
    let Some(collection) = database.catalog.at(view).find(namespace)? else {
        database.catalog.refuse_view(namespace)?;
        return Ok(result);
    };
    if is_empty(statement.filter) && !statement.one && statement.hint.is_none() {
        let (deleted, commit_seq) = delete_all_records(&database.catalog, namespace, operation)?;
        return Ok(DeleteResult {
            deleted,
            commit_seq,
            document: None,
        });
    }
    let context = statement.bindings.evaluation(operation);
    let delete_one = |record_id: &[u8], result: &mut DeleteResult| -> Result<()> {
        let deleted = delete_record(
            &database.catalog,
            &collection,
            record_id,
            operation,
            |document| statement.matcher.matches(document, &context),
        )?;
        if let Some((document, commit_seq)) = deleted {
            result.deleted += 1;
            result.commit_seq = latest(result.commit_seq, commit_seq);
            result.document = Some(document);
        }
        Ok(())
    };
    if let Some(id) = planner::id_equality(statement.filter) {
        let direct = collection.kind == RecordKind::Clustered
            && statement.hint.is_none()
            && statement.bindings.collation() == collection.collation();
        if direct {
            delete_one(
                &clustered_record_id(id, collection.collation())?,
                &mut result,
            )?;
            return Ok(result);
        }
    }
    let query = Arc::new(plain_query(
        statement.filter,
        &statement.bindings,
        statement.sort.clone(),
        statement.hint.clone(),
    )?);
    let planned = choose_plan(view, &collection, &query, operation)?;
    let mut executor = Executor::new(
        view.clone(),
        Arc::clone(&collection),
        query,
        planned.winning,
        statement.bindings.variables.clone(),
    )?;
    while let Some(record) = executor.next(operation)? {
        operation.check()?;
        delete_one(&record.record_id, &mut result)?;
        if statement.one && result.deleted > 0 {
            break;
        }
    }
    Ok(result)
}
