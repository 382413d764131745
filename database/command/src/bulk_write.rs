//! `bulkWrite`: insertions, updates and deletions on several collections in one command.

use std::sync::Arc;

use bson::raw::RawBsonRef;
use bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};
use millrace_collection::{InsertOptions, Namespace, insert_documents, is_fatal, latest};
use millrace_engine::CommitSeq;
use millrace_matcher::Matcher;
use millrace_value::{DocumentWriter, Error, ErrorCode, Operation, Result};

use super::arguments::Arguments;
use super::batch::statements;
use super::cursors::{OpenCursor, Source};
use super::delete::{DeleteStatement, run_delete};
use super::document_list::DocumentList;
use super::insert::check_writable;
use super::query_arguments::parse_hint;
use super::update::{UpdateStatement, run_update};
use super::variables::Bindings;
use super::{CommandRequest, Counts, Database, Effects};

/// Fields an operation may have beside the one that names its kind.
const UPDATE_FIELDS: &[&str] = &[
    "update",
    "filter",
    "updateMods",
    "multi",
    "upsert",
    "arrayFilters",
    "hint",
    "collation",
    "constants",
    "sort",
    "sampleId",
];
const DELETE_FIELDS: &[&str] = &["delete", "filter", "multi", "hint", "collation", "sampleId"];
const INSERT_FIELDS: &[&str] = &["insert", "document"];

/// What all operations did together.
#[derive(Debug, Default)]
struct Totals {
    errors: u64,
    inserted: u64,
    matched: u64,
    modified: u64,
    upserted: u64,
    deleted: u64,
    commit_seq: Option<CommitSeq>,
}

/// What surrounds each operation.
struct Surrounding<'a> {
    database: &'a Arc<Database>,
    namespaces: Vec<Namespace>,
    bindings: Bindings,
    bypass_validation: bool,
    keep_zero_timestamps: bool,
    operation: &'a Operation,
}

pub(super) fn bulk_write(
    database: &Arc<Database>,
    request: &CommandRequest<'_>,
    operation: &Operation,
    reply: &mut Vec<u8>,
) -> Result<Effects> {
    let arguments = Arguments::of_command(
        "bulkWrite",
        request.body,
        &[
            "ops",
            "nsInfo",
            "ordered",
            "errorsOnly",
            "bypassDocumentValidation",
            "bypassEmptyTsReplacement",
            "let",
            "cursor",
        ],
    )?;
    if request.database != "admin" {
        return Err(Error::new(
            ErrorCode::Unauthorized,
            "bulkWrite may only be run against the admin database.",
        ));
    }
    let surrounding = Surrounding {
        database,
        namespaces: namespaces(request, &arguments)?,
        bindings: Bindings::of_batch(arguments.tree("let")?.as_ref(), operation)?,
        bypass_validation: arguments.flag("bypassDocumentValidation")?,
        keep_zero_timestamps: arguments.flag("bypassEmptyTsReplacement")?,
        operation,
    };
    let ordered = arguments.boolean("ordered")?.unwrap_or(true);
    let errors_only = arguments.flag("errorsOnly")?;
    let mut totals = Totals::default();
    let mut results = DocumentList::default();
    for (index, body) in statements(request, &arguments, "ops")?
        .into_iter()
        .enumerate()
    {
        operation.check()?;
        let position = i32::try_from(index).unwrap_or(i32::MAX);
        match run_one(&surrounding, body, &mut totals) {
            Ok(result) => {
                if !errors_only {
                    let mut document = doc! {"ok": 1.0, "idx": position};
                    document.extend(result);
                    results.push(RawDocumentBuf::try_from(&document)?);
                }
            }
            Err(error) if is_fatal(&error) => return Err(error),
            Err(error) => {
                totals.errors += 1;
                let mut document = doc! {
                    "ok": 0.0, "idx": position, "code": error.code().number(),
                    "errmsg": error.message(), "n": 0,
                };
                if let Some(details) = error.details() {
                    document.extend(details.clone());
                }
                results.push(RawDocumentBuf::try_from(&document)?);
                if ordered {
                    break;
                }
            }
        }
    }
    let batch_size = arguments.cursor_batch_size()?.unwrap_or(u64::MAX);
    write_reply(
        database, request, results, batch_size, &totals, operation, reply,
    )?;
    let counts = Counts {
        inserted: totals.inserted + totals.upserted,
        updated: totals.modified,
        deleted: totals.deleted,
        ..Counts::default()
    };
    Ok(Effects {
        counts,
        ..Effects::written(totals.commit_seq)
    })
}

/// The namespaces that operations name by position.
fn namespaces(request: &CommandRequest<'_>, arguments: &Arguments<'_>) -> Result<Vec<Namespace>> {
    let mut namespaces = Vec::new();
    for info in statements(request, arguments, "nsInfo")? {
        let info = Arguments::of_statement(
            "bulkWrite.nsInfo",
            info,
            &["ns", "collectionUUID", "encryptionInformation"],
        )?;
        let name = info.string("ns")?.ok_or_else(|| info.missing("ns"))?;
        let namespace = Namespace::parse(name)?;
        check_writable(&namespace)?;
        namespaces.push(namespace);
    }
    Ok(namespaces)
}

/// Runs one operation and returns the fields of its result.
fn run_one(
    surrounding: &Surrounding<'_>,
    body: &RawDocument,
    totals: &mut Totals,
) -> Result<Document> {
    let kind = body.iter().next().transpose()?;
    let Some((kind, position)) = kind else {
        return Err(Error::new(
            ErrorCode::FailedToParse,
            "an operation of bulkWrite is empty",
        ));
    };
    let position = position
        .as_i32()
        .and_then(|position| usize::try_from(position).ok());
    let namespace = position
        .and_then(|position| surrounding.namespaces.get(position))
        .ok_or_else(|| {
            Error::new(
                ErrorCode::BadValue,
                "BulkWrite ops entry has an invalid nsInfo index.",
            )
        })?;
    match kind.as_str() {
        "insert" => run_insert(surrounding, namespace, body, totals),
        "update" => run_one_update(surrounding, namespace, body, totals),
        "delete" => run_one_delete(surrounding, namespace, body, totals),
        other => Err(Error::new(
            ErrorCode::IDLUnknownField,
            format!("BSON field 'bulkWrite.ops.{other}' is an unknown field."),
        )),
    }
}

fn run_insert(
    surrounding: &Surrounding<'_>,
    namespace: &Namespace,
    body: &RawDocument,
    totals: &mut Totals,
) -> Result<Document> {
    let arguments = Arguments::of_statement("bulkWrite.ops", body, INSERT_FIELDS)?;
    let document = arguments
        .document("document")?
        .ok_or_else(|| arguments.missing("document"))?;
    let outcome = insert_documents(
        &surrounding.database.catalog,
        namespace,
        &[document],
        InsertOptions {
            ordered: true,
            bypass_validation: surrounding.bypass_validation,
            keep_zero_timestamps: surrounding.keep_zero_timestamps,
        },
        surrounding.operation,
    )?;
    totals.commit_seq = latest(totals.commit_seq, outcome.commit_seq);
    if let Some((_, error)) = outcome.errors.into_iter().next() {
        return Err(error);
    }
    totals.inserted += outcome.inserted;
    Ok(doc! {"n": 1})
}

fn run_one_update(
    surrounding: &Surrounding<'_>,
    namespace: &Namespace,
    body: &RawDocument,
    totals: &mut Totals,
) -> Result<Document> {
    let arguments = Arguments::of_statement("bulkWrite.ops", body, UPDATE_FIELDS)?;
    let collation = arguments.collation()?;
    let filter = arguments
        .document("filter")?
        .ok_or_else(|| arguments.missing("filter"))?;
    let update = arguments
        .get("updateMods")
        .ok_or_else(|| arguments.missing("updateMods"))?;
    let constants = arguments.tree("constants")?;
    if constants.is_some() && !matches!(update, RawBsonRef::Array(_)) {
        return Err(Error::location(
            51198,
            "Constant values may only be specified for pipeline updates",
        ));
    }
    let bindings = surrounding
        .bindings
        .compared_by(collation)
        .and(constants.as_ref(), surrounding.operation)?;
    let array_filters = arguments.trees("arrayFilters")?.unwrap_or_default();
    let mut statement = UpdateStatement::new(filter, update, &array_filters, bindings)?;
    statement.multi = arguments.flag("multi")?;
    statement.upsert = arguments.flag("upsert")?;
    statement.sort = arguments.tree("sort")?;
    statement.hint = parse_hint(&arguments)?;
    statement.bypass_validation = surrounding.bypass_validation;
    statement
        .update
        .keep_zero_timestamps(surrounding.keep_zero_timestamps);
    if statement.multi && statement.update.is_replacement() {
        return Err(Error::new(
            ErrorCode::FailedToParse,
            "multi update is not supported for replacement-style update",
        ));
    }
    let result = run_update(
        surrounding.database,
        namespace,
        &statement,
        surrounding.operation,
    )?;
    totals.matched += result.matched;
    totals.modified += result.modified;
    totals.upserted += u64::from(result.upserted.is_some());
    totals.commit_seq = latest(totals.commit_seq, result.commit_seq);
    let matched = i32::try_from(result.matched).unwrap_or(i32::MAX);
    let modified = i32::try_from(result.modified).unwrap_or(i32::MAX);
    let mut document =
        doc! {"n": matched + i32::from(result.upserted.is_some()), "nModified": modified};
    if let Some(id) = result.upserted {
        document.insert("upserted", doc! {"_id": id});
    }
    Ok(document)
}

fn run_one_delete(
    surrounding: &Surrounding<'_>,
    namespace: &Namespace,
    body: &RawDocument,
    totals: &mut Totals,
) -> Result<Document> {
    let arguments = Arguments::of_statement("bulkWrite.ops", body, DELETE_FIELDS)?;
    let bindings = surrounding.bindings.compared_by(arguments.collation()?);
    let filter = arguments
        .document("filter")?
        .ok_or_else(|| arguments.missing("filter"))?;
    let statement = DeleteStatement {
        filter,
        matcher: Matcher::parse(filter, &bindings.scope)?,
        bindings,
        one: !arguments.flag("multi")?,
        sort: None,
        hint: parse_hint(&arguments)?,
    };
    let result = run_delete(
        surrounding.database,
        namespace,
        &statement,
        surrounding.operation,
    )?;
    totals.deleted += result.deleted;
    totals.commit_seq = latest(totals.commit_seq, result.commit_seq);
    Ok(doc! {"n": i32::try_from(result.deleted).unwrap_or(i32::MAX)})
}

fn write_reply(
    database: &Database,
    request: &CommandRequest<'_>,
    results: DocumentList,
    batch_size: u64,
    totals: &Totals,
    operation: &Operation,
    reply: &mut Vec<u8>,
) -> Result<()> {
    let namespace = Namespace::of_command("admin", "bulkWrite")?;
    let mut cursor = OpenCursor::new(namespace, Source::List(results), request.session);
    let mut writer = DocumentWriter::new(reply);
    writer.open_document("cursor");
    writer.open_array("firstBatch");
    cursor.fill(operation, &mut writer, batch_size)?;
    writer.close();
    let more = cursor.pending.is_some()
        || matches!(&cursor.source, Source::List(list) if !list.is_empty());
    let id = if more {
        database
            .cursors
            .register(cursor, &**operation.environment())
    } else {
        0
    };
    writer.int64("id", id);
    writer.string("ns", "admin.$cmd.bulkWrite");
    writer.close();
    for (name, count) in [
        ("nErrors", totals.errors),
        ("nInserted", totals.inserted),
        ("nMatched", totals.matched),
        ("nModified", totals.modified),
        ("nUpserted", totals.upserted),
        ("nDeleted", totals.deleted),
    ] {
        writer.value(name, &Bson::Int32(i32::try_from(count).unwrap_or(i32::MAX)))?;
    }
    writer.double("ok", 1.0);
    writer.finish();
    Ok(())
}
