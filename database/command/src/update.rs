//! `update`.

use std::sync::Arc;

use bson::raw::RawBsonRef;
use bson::{Bson, Document, RawDocument, RawDocumentBuf};
use millrace_collection::{
    Collection, Namespace, RecordKind, Replaced, check_document, check_id, clustered_record_id,
    insert_one, is_fatal, latest, prepare_document, replace_record,
};
use millrace_engine::CommitSeq;
use millrace_matcher::{MatchDetails, Matcher};
use millrace_query::executor::{Executor, choose_plan};
use millrace_query::planner;
use millrace_query::planner::Hint;
use millrace_update::{Update, check_stage_names};
use millrace_value::operation::new_object_id;
use millrace_value::{Error, ErrorCode, Operation, Result};

use super::arguments::Arguments;
use super::batch::{statements, write_errors};
use super::insert::check_writable;
use super::query_arguments::{parse_hint, plain_query};
use super::variables::Bindings;
use super::{CommandRequest, Cost, Counts, Database, Effects, reply_ok};

/// The number of attempts at an upsert while other commits insert the document first.
const UPSERT_ATTEMPTS: u32 = 16;

/// One statement: which documents, and what becomes of them.
pub(crate) struct UpdateStatement<'a> {
    pub(crate) filter: &'a RawDocument,
    pub(crate) matcher: Matcher,
    pub(crate) update: Update,
    pub(crate) bindings: Bindings,
    pub(crate) multi: bool,
    pub(crate) upsert: bool,
    pub(crate) sort: Option<Document>,
    pub(crate) hint: Option<Hint>,
    pub(crate) bypass_validation: bool,
    /// What errors of applying the update begin with.
    pub(crate) failure_context: &'static str,
}

/// What one statement did.
#[derive(Debug, Default)]
pub(crate) struct UpdateResult {
    pub(crate) matched: u64,
    pub(crate) modified: u64,
    pub(crate) upserted: Option<Bson>,
    pub(crate) commit_seq: Option<CommitSeq>,
    /// The versions of the document, for findAndModify; of the last one if there were several.
    pub(crate) before: Option<RawDocumentBuf>,
    pub(crate) after: Option<RawDocumentBuf>,
}

impl<'a> UpdateStatement<'a> {
    pub(crate) fn new(
        filter: &'a RawDocument,
        update: RawBsonRef<'_>,
        array_filters: &[Document],
        bindings: Bindings,
    ) -> Result<Self> {
        let update = Bson::try_from(update)?;
        Ok(Self {
            filter,
            matcher: Matcher::parse(filter, &bindings.scope)?,
            update: Update::parse(&update, array_filters, &bindings.scope)?,
            bindings,
            multi: false,
            upsert: false,
            sort: None,
            hint: None,
            bypass_validation: false,
            failure_context: "Plan executor error during update",
        })
    }

    fn parse(
        body: &'a RawDocument,
        command_bindings: &Bindings,
        operation: &Operation,
    ) -> Result<Self> {
        let arguments = Arguments::of_statement(
            "update.updates",
            body,
            &[
                "q",
                "u",
                "c",
                "multi",
                "upsert",
                "collation",
                "arrayFilters",
                "hint",
                "sort",
                "sampleId",
            ],
        )?;
        let collation = arguments.collation()?;
        let filter = arguments
            .document("q")?
            .ok_or_else(|| arguments.missing("q"))?;
        let update = arguments.get("u").ok_or_else(|| arguments.missing("u"))?;
        let constants = arguments.tree("c")?;
        if constants.is_some() && !matches!(update, RawBsonRef::Array(_)) {
            return Err(Error::location(
                51198,
                "Constant values may only be specified for pipeline updates",
            ));
        }
        let bindings = command_bindings
            .compared_by(collation)
            .and(constants.as_ref(), operation)?;
        let array_filters = arguments.trees("arrayFilters")?.unwrap_or_default();
        let mut statement = Self::new(filter, update, &array_filters, bindings)?;
        statement.multi = arguments.flag("multi")?;
        statement.upsert = arguments.flag("upsert")?;
        statement.sort = arguments.tree("sort")?;
        statement.hint = parse_hint(&arguments)?;
        if statement.multi && statement.sort.is_some() {
            return Err(Error::new(
                ErrorCode::FailedToParse,
                "Cannot specify sort with multi=true",
            ));
        }
        if statement.multi && statement.update.is_replacement() {
            return Err(Error::new(
                ErrorCode::FailedToParse,
                "multi update is not supported for replacement-style update",
            ));
        }
        Ok(statement)
    }
}

/// An update of one document, found by `_id`, is a point operation.
pub(super) fn classify(request: &CommandRequest<'_>) -> Cost {
    let is_point = |statement: &RawDocument| {
        let by_id = match statement.get("q") {
            Ok(Some(RawBsonRef::Document(filter))) => planner::id_equality(filter).is_some(),
            _ => false,
        };
        by_id && statement.as_bytes().len() < 128 * 1024
    };
    classify_statements(request, "updates", is_point)
}

/// Whether a batch of few statements, each of which `is_point`, is a point operation.
pub(super) fn classify_statements(
    request: &CommandRequest<'_>,
    name: &str,
    is_point: impl Fn(&RawDocument) -> bool,
) -> Cost {
    const STATEMENTS_MAX: usize = 64;
    let mut count = 0;
    let mut all_point = true;
    let mut look = |statement: &RawDocument| {
        count += 1;
        all_point = all_point && count <= STATEMENTS_MAX && is_point(statement);
    };
    for (_, documents) in request.sequences.iter().filter(|(other, _)| *other == name) {
        documents
            .iter()
            .take(STATEMENTS_MAX + 1)
            .for_each(|statement| look(statement));
    }
    if let Ok(Some(RawBsonRef::Array(array))) = request.body.get(name) {
        for value in array.into_iter().take(STATEMENTS_MAX + 1).flatten() {
            if let RawBsonRef::Document(statement) = value {
                look(statement);
            }
        }
    }
    if all_point {
        Cost::Inline
    } else {
        Cost::Blocking
    }
}

pub(super) fn update(
    database: &Arc<Database>,
    request: &CommandRequest<'_>,
    operation: &Operation,
    reply: &mut Vec<u8>,
) -> Result<Effects> {
    let arguments = Arguments::of_command(
        "update",
        request.body,
        &[
            "updates",
            "ordered",
            "bypassDocumentValidation",
            "bypassEmptyTsReplacement",
            "let",
            "encryptionInformation",
        ],
    )?;
    let namespace = Namespace::new(request.database, arguments.collection()?)?;
    check_writable(&namespace)?;
    let bindings = Bindings::of_batch(arguments.tree("let")?.as_ref(), operation)?;
    let ordered = arguments.boolean("ordered")?.unwrap_or(true);
    let bypass_validation = arguments.flag("bypassDocumentValidation")?;
    let keep_zero_timestamps = arguments.flag("bypassEmptyTsReplacement")?;
    let statements = statements(request, &arguments, "updates")?;
    for statement in &statements {
        if let Ok(Some(RawBsonRef::Array(stages))) = statement.get("u") {
            check_stage_names(stages)?;
        }
    }
    let mut totals = UpdateResult::default();
    let mut upserted = Vec::new();
    let mut errors = Vec::new();
    for (index, body) in statements.into_iter().enumerate() {
        operation.check()?;
        let result =
            UpdateStatement::parse(body, &bindings, operation).and_then(|mut statement| {
                statement.bypass_validation = bypass_validation;
                statement.update.keep_zero_timestamps(keep_zero_timestamps);
                run_update(database, &namespace, &statement, operation)
            });
        match result {
            Ok(result) => {
                totals.matched += result.matched;
                totals.modified += result.modified;
                totals.commit_seq = latest(totals.commit_seq, result.commit_seq);
                if let Some(id) = result.upserted {
                    upserted.push((index, id));
                }
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
        writer.count("n", totals.matched + upserted.len() as u64);
        if !upserted.is_empty() {
            writer.open_array("upserted");
            for (position, (index, id)) in upserted.iter().enumerate() {
                writer.open_document(&position.to_string());
                writer.count("index", *index as u64);
                writer.value("_id", id)?;
                writer.close();
            }
            writer.close();
        }
        write_errors(writer, &errors)?;
        writer.count("nModified", totals.modified);
        Ok(())
    })?;
    let counts = Counts {
        updated: totals.modified,
        inserted: upserted.len() as u64,
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
/// Those of the update and of the engine. What was updated before the failure stays.
pub(crate) fn run_update(
    database: &Arc<Database>,
    namespace: &Namespace,
    statement: &UpdateStatement<'_>,
    operation: &Operation,
) -> Result<UpdateResult> {
    for attempt in 1.. {
        let mut result = UpdateResult::default();
        match database.catalog_of(operation).find(namespace)? {
            Some(collection) => {
                update_matching(database, &collection, statement, operation, &mut result)?;
            }
            None => database.catalog.refuse_view(namespace)?,
        }
        if result.matched > 0 || !statement.upsert {
            return Ok(result);
        }
        match upsert(database, namespace, statement, operation) {
            // The document, or one with the same unique key, was inserted since we looked.
            Err(error) if error.code() == ErrorCode::DuplicateKey && attempt < UPSERT_ATTEMPTS => {
                operation.check()?;
            }
            other => return other,
        }
    }
    Err(millrace_collection::internal(
        "an upsert was tried for ever",
    ))
}

fn update_matching(
    database: &Arc<Database>,
    collection: &Arc<Collection>,
    statement: &UpdateStatement<'_>,
    operation: &Operation,
    result: &mut UpdateResult,
) -> Result<()> {
    let direct = match planner::id_equality(statement.filter) {
        Some(id)
            if collection.kind == RecordKind::Clustered
                && statement.hint.is_none()
                && statement.bindings.collation() == collection.collation() =>
        {
            Some(id)
        }
        _ => None,
    };
    if let Some(id) = direct {
        let record_id = clustered_record_id(id, collection.collation())?;
        return update_record(
            database, collection, statement, &record_id, operation, result,
        );
    }
    let query = Arc::new(plain_query(
        statement.filter,
        &statement.bindings,
        statement.sort.clone(),
        statement.hint.clone(),
    )?);
    let view = database.read_view(operation);
    let planned = choose_plan(view, collection, &query, operation)?;
    let mut executor = Executor::new(
        view.clone(),
        Arc::clone(collection),
        query,
        planned.winning,
        statement.bindings.variables.clone(),
    )?;
    while let Some(record) = executor.next(operation)? {
        operation.check()?;
        update_record(
            database,
            collection,
            statement,
            &record.record_id,
            operation,
            result,
        )?;
        if result.matched > 0 && !statement.multi {
            break;
        }
    }
    Ok(())
}

/// Updates the document with this record id if it still matches.
fn update_record(
    database: &Arc<Database>,
    collection: &Collection,
    statement: &UpdateStatement<'_>,
    record_id: &[u8],
    operation: &Operation,
    result: &mut UpdateResult,
) -> Result<()> {
    let context = statement.bindings.evaluation(operation);
    let replaced = replace_record(
        &database.catalog,
        collection,
        record_id,
        operation,
        |collection, before| {
            let mut details = MatchDetails::default();
            if !statement
                .matcher
                .matches_recording(before, &context, &mut details)?
            {
                return Ok(None);
            }
            let document = Document::try_from(before)?;
            let outcome = statement
                .update
                .apply_owned(document, Some(&details), false, &context)
                .map_err(|error| error.context(statement.failure_context))?;
            if !outcome.modified {
                return Ok(Some(before.to_owned()));
            }
            let after = RawDocumentBuf::try_from(&outcome.document)?;
            check_document(&after)?;
            if !statement.bypass_validation {
                if let Some(validator) = collection.validator()? {
                    validator.check_update(before, &after, operation)?;
                }
            }
            Ok(Some(after))
        },
    )?;
    match replaced {
        Replaced::NoMatch => {}
        Replaced::Unchanged { document } => {
            result.matched += 1;
            // Nothing was written, but a client that receives this reply may rely on the document.
            result.commit_seq =
                latest(result.commit_seq, Some(database.engine().last_commit_seq()));
            result.before = Some(document.clone());
            result.after = Some(document);
        }
        Replaced::Changed {
            before,
            after,
            commit_seq,
        } => {
            result.matched += 1;
            result.modified += 1;
            result.commit_seq = latest(result.commit_seq, commit_seq);
            result.before = Some(before);
            result.after = Some(after);
        }
    }
    Ok(())
}

/// Inserts the document that an upsert without a match makes.
fn upsert(
    database: &Arc<Database>,
    namespace: &Namespace,
    statement: &UpdateStatement<'_>,
    operation: &Operation,
) -> Result<UpdateResult> {
    let environment = &**operation.environment();
    let context = statement.bindings.evaluation(operation);
    let base = statement.update.upsert_base(statement.matcher.root())?;
    let outcome = statement
        .update
        .apply_owned(base, None, true, &context)
        .map_err(|error| error.context(statement.failure_context))?;
    let mut document = outcome.document;
    if !document.contains_key("_id") {
        let mut with_id = bson::doc! {"_id": new_object_id(environment)};
        with_id.extend(document);
        document = with_id;
    }
    let raw = RawDocumentBuf::try_from(&document)?;
    let raw = prepare_document(&raw, environment)?.unwrap_or(raw);
    let id = raw
        .get("_id")?
        .ok_or_else(|| millrace_collection::internal("an upsert has no _id"))?;
    check_id(id)?;
    let id = Bson::try_from(id)?;
    let bypass = statement.bypass_validation;
    let commit_seq = insert_one(&database.catalog, namespace, &raw, bypass, operation)?;
    Ok(UpdateResult {
        upserted: Some(id),
        commit_seq,
        after: Some(raw),
        ..UpdateResult::default()
    })
}
