//! Commands on collections as a whole: `create`, `drop`, `dropDatabase`, `renameCollection`, `collMod`,
//! `listCollections`.

use std::sync::Arc;

use bson::{Bson, Document, RawDocumentBuf, doc};
use millrace_collection::index::IndexSpec;
use millrace_collection::validation::Validator;
use millrace_collection::{Collection, Namespace, latest};
use millrace_engine::CommitSeq;
use millrace_matcher::Matcher;
use millrace_query::planner::same_keys;
use millrace_value::{Collation, Error, ErrorCode, Operation, Result};

use super::arguments::Arguments;
use super::cursors::{OpenCursor, Source};
use super::document_list::DocumentList;
use super::first_batch::first_batch;
use super::variables::Bindings;
use super::{CommandRequest, Database, Effects, reply_ok, views};

/// The fields of `create`.
const CREATE_FIELDS: &[&str] = &[
    "capped",
    "autoIndexId",
    "idIndex",
    "size",
    "max",
    "storageEngine",
    "validator",
    "validationLevel",
    "validationAction",
    "indexOptionDefaults",
    "viewOn",
    "pipeline",
    "collation",
    "timeseries",
    "expireAfterSeconds",
    "clusteredIndex",
    "changeStreamPreAndPostImages",
    "encryptedFields",
    "flags",
    "temp",
    "recordPreImages",
];

/// The largest capped collection: 1 PiB.
const CAPPED_BYTES_MAX: i64 = 1 << 50;

/// `create`.
pub(super) fn create(
    database: &Arc<Database>,
    request: &CommandRequest<'_>,
    operation: &Operation,
    reply: &mut Vec<u8>,
) -> Result<Effects> {
    let arguments = Arguments::of_command("create", request.body, CREATE_FIELDS)?;
    let collation = arguments.collation()?;
    let namespace = Namespace::new(request.database, arguments.collection()?)?;
    super::insert::check_writable(&namespace)?;
    if arguments.contains("viewOn") || arguments.contains("pipeline") {
        let known = CREATE_FIELDS;
        let commit_seq = views::create_view(database, &namespace, &arguments, known, operation)?;
        reply_ok(reply, |_| Ok(()))?;
        return Ok(Effects::written(Some(commit_seq)));
    }
    for unsupported in ["timeseries", "encryptedFields"] {
        if arguments.contains(unsupported) {
            return Err(Error::new(
                ErrorCode::CommandNotSupported,
                format!("collections with '{unsupported}' are not supported"),
            ));
        }
    }
    let options = create_options(&arguments)?;
    Validator::from_options(&options, collation)?;
    match database
        .catalog
        .create(&namespace, options.clone(), &**operation.environment())
    {
        Err(error) if error.code() == ErrorCode::NamespaceExists => {
            // Creating what is there already, just so, is no error.
            let same = database
                .catalog
                .find(&namespace)
                .is_some_and(|c| c.options == options);
            if !same {
                return Err(Error::new(
                    ErrorCode::NamespaceExists,
                    format!("namespace {namespace} already exists, but with different options"),
                ));
            }
        }
        other => {
            other?;
        }
    }
    reply_ok(reply, |_| Ok(()))?;
    Ok(Effects::written(Some(database.engine().last_commit_seq())))
}

/// The options of a new collection, checked.
fn create_options(arguments: &Arguments<'_>) -> Result<Document> {
    let mut options = Document::new();
    if arguments.flag("capped")? {
        let size = arguments.integer("size")?.ok_or_else(|| {
            Error::new(
                ErrorCode::InvalidOptions,
                "the 'size' field is required when 'capped' is true",
            )
        })?;
        check_capped_size("size", size)?;
        options.insert("capped", true);
        // MongoDB rounds up to whole blocks of 256 bytes.
        let rounded = (size + 255) / 256 * 256;
        options.insert("size", small_int(rounded));
        if let Some(max) = arguments.integer("max")? {
            options.insert("max", small_int(max));
        }
    } else if arguments.contains("max") {
        return Err(Error::new(
            ErrorCode::InvalidOptions,
            "the 'max' field is only allowed when 'capped' is true",
        ));
    }
    if let Some(validator) = arguments.document("validator")? {
        options.insert("validator", Document::try_from(validator)?);
    }
    if let Some(level) = arguments.string("validationLevel")? {
        one_of(
            "create.validationLevel",
            level,
            &["off", "strict", "moderate"],
        )?;
        options.insert("validationLevel", level);
    }
    if let Some(action) = arguments.string("validationAction")? {
        one_of(
            "create.validationAction",
            action,
            &["error", "warn", "errorAndLog"],
        )?;
        options.insert("validationAction", action);
    }
    if let Some(index) = clustered_index(arguments)? {
        options.insert("clusteredIndex", index);
    }
    for name in [
        "storageEngine",
        "indexOptionDefaults",
        "changeStreamPreAndPostImages",
    ] {
        if let Some(value) = arguments.tree(name)? {
            options.insert(name, value);
        }
    }
    Ok(options)
}

fn check_capped_size(field: &str, size: i64) -> Result<()> {
    if (1..=CAPPED_BYTES_MAX).contains(&size) {
        return Ok(());
    }
    Err(Error::location(
        51024,
        format!(
            "BSON field '{field}' value must be >= 1 and <= {CAPPED_BYTES_MAX}, actual value '{size}'"
        ),
    ))
}

/// The description of the index a clustered collection is. Every collection that is not capped is
/// clustered by `_id`, so it is only kept to be shown.
fn clustered_index(arguments: &Arguments<'_>) -> Result<Option<Document>> {
    let Some(given) = arguments.tree("clusteredIndex")? else {
        return Ok(None);
    };
    if given.get("key").and_then(Bson::as_document) != Some(&doc! { "_id": 1 }) {
        return Err(Error::new(
            ErrorCode::InvalidIndexSpecificationOption,
            "The clusteredIndex option is only supported for key: {_id: 1}",
        ));
    }
    if !given.get_bool("unique").unwrap_or(false) {
        return Err(Error::location(
            5_979_700,
            "The clusteredIndex option requires unique: true to be specified",
        ));
    }
    if arguments.flag("capped")? {
        return Err(Error::new(
            ErrorCode::InvalidOptions,
            "The 'capped' option is not supported with the 'clusteredIndex' option",
        ));
    }
    let name = given.get_str("name").unwrap_or("_id_");
    let version = given.get("v").cloned().unwrap_or(Bson::Int32(2));
    Ok(Some(
        doc! { "v": version, "key": { "_id": 1 }, "name": name, "unique": true },
    ))
}

fn small_int(value: i64) -> Bson {
    i32::try_from(value).map_or(Bson::Int64(value), Bson::Int32)
}

fn one_of(field: &str, value: &str, allowed: &[&str]) -> Result<()> {
    if allowed.contains(&value) {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::BadValue,
        format!("Enumeration value '{value}' for field '{field}' is not a valid value."),
    ))
}

/// `drop`.
pub(super) fn drop_collection(
    database: &Arc<Database>,
    request: &CommandRequest<'_>,
    _operation: &Operation,
    reply: &mut Vec<u8>,
) -> Result<Effects> {
    let arguments = Arguments::of_command("drop", request.body, &["collectionUUID"])?;
    let namespace = Namespace::new(request.database, arguments.collection()?)?;
    if let Some(commit_seq) = database.catalog.drop_view(&namespace)? {
        reply_ok(reply, |writer| {
            writer.string("ns", namespace.as_str());
            Ok(())
        })?;
        return Ok(Effects::written(Some(commit_seq)));
    }
    let Some((collection, commit_seq)) = database.catalog.drop_collection(&namespace)? else {
        // Since 7.0 dropping what is not there succeeds.
        reply_ok(reply, |_| Ok(()))?;
        return Ok(Effects::default());
    };
    reply_ok(reply, |writer| {
        writer.count("nIndexesWas", collection.indexes.len() as u64);
        writer.string("ns", namespace.as_str());
        Ok(())
    })?;
    Ok(Effects::written(Some(commit_seq)))
}

/// `dropDatabase`.
pub(super) fn drop_database(
    database: &Arc<Database>,
    request: &CommandRequest<'_>,
    operation: &Operation,
    reply: &mut Vec<u8>,
) -> Result<Effects> {
    Arguments::of_command("dropDatabase", request.body, &[])?;
    Namespace::check_database(request.database)?;
    let collections = database.catalog.collections(request.database);
    let mut commit_seq: Option<CommitSeq> = None;
    for collection in &collections {
        operation.check()?;
        if let Some((_, at)) = database.catalog.drop_collection(&collection.namespace)? {
            commit_seq = latest(commit_seq, Some(at));
        }
    }
    reply_ok(reply, |writer| {
        if !collections.is_empty() {
            writer.string("dropped", request.database);
        }
        Ok(())
    })?;
    Ok(Effects::written(commit_seq))
}

/// `renameCollection`, which is given whole namespaces and runs on `admin`.
pub(super) fn rename_collection(
    database: &Arc<Database>,
    request: &CommandRequest<'_>,
    _operation: &Operation,
    reply: &mut Vec<u8>,
) -> Result<Effects> {
    let arguments = Arguments::of_command(
        "renameCollection",
        request.body,
        &["to", "dropTarget", "stayTemp", "collectionUUID"],
    )?;
    if request.database != "admin" {
        return Err(Error::new(
            ErrorCode::Unauthorized,
            "renameCollection may only be run against the admin database.",
        ));
    }
    let source = Namespace::parse(arguments.collection()?)?;
    let target = arguments
        .string("to")?
        .ok_or_else(|| arguments.missing("to"))?;
    let target = Namespace::parse(target)?;
    super::insert::check_writable(&source)?;
    super::insert::check_writable(&target)?;
    let drop_target = arguments.flag("dropTarget")?;
    let commit_seq = database.catalog.rename(&source, &target, drop_target)?;
    reply_ok(reply, |_| Ok(()))?;
    Ok(Effects::written(Some(commit_seq)))
}

/// `collMod`: validator, limits of a capped collection, `expireAfterSeconds` and `hidden` of an index.
pub(super) fn coll_mod(
    database: &Arc<Database>,
    request: &CommandRequest<'_>,
    _operation: &Operation,
    reply: &mut Vec<u8>,
) -> Result<Effects> {
    let arguments = Arguments::of_command(
        "collMod",
        request.body,
        &[
            "index",
            "validator",
            "validationLevel",
            "validationAction",
            "cappedSize",
            "cappedMax",
            "changeStreamPreAndPostImages",
            "viewOn",
            "pipeline",
            "collectionUUID",
            "dryRun",
        ],
    )?;
    let namespace = Namespace::new(request.database, arguments.collection()?)?;
    if let Some(view) = database.catalog.view(&namespace) {
        let commit_seq = views::change_view(database, &view, &arguments)?;
        reply_ok(reply, |_| Ok(()))?;
        return Ok(Effects::written(Some(commit_seq)));
    }
    let collection = database
        .catalog
        .find(&namespace)
        .ok_or_else(|| database.catalog.missing(&namespace))?;
    views::refuse_view_changes(&arguments)?;
    let mut commit_seq = change_options(database, &collection, &arguments)?;
    let mut changes = Document::new();
    if let Some(index) = arguments.tree("index")? {
        let changed = change_index(database, &collection, &index, &mut changes)?;
        commit_seq = latest(commit_seq, Some(changed));
    }
    reply_ok(reply, |writer| {
        for (name, value) in &changes {
            writer.value(name, value)?;
        }
        Ok(())
    })?;
    Ok(Effects::written(commit_seq))
}

fn change_options(
    database: &Arc<Database>,
    collection: &Collection,
    arguments: &Arguments<'_>,
) -> Result<Option<CommitSeq>> {
    let mut changed = Document::new();
    if let Some(validator) = arguments.document("validator")? {
        changed.insert("validator", Document::try_from(validator)?);
    }
    if let Some(level) = arguments.string("validationLevel")? {
        one_of(
            "collMod.validationLevel",
            level,
            &["off", "strict", "moderate"],
        )?;
        changed.insert("validationLevel", level);
    }
    if let Some(action) = arguments.string("validationAction")? {
        one_of(
            "collMod.validationAction",
            action,
            &["error", "warn", "errorAndLog"],
        )?;
        changed.insert("validationAction", action);
    }
    for (argument, option) in [("cappedSize", "size"), ("cappedMax", "max")] {
        if let Some(value) = arguments.integer(argument)? {
            if collection.capped().is_none() {
                return Err(Error::new(
                    ErrorCode::InvalidOptions,
                    "Collection must be capped.",
                ));
            }
            if argument == "cappedSize" {
                check_capped_size(argument, value)?;
            }
            changed.insert(option, small_int(value));
        }
    }
    if let Some(images) = arguments.tree("changeStreamPreAndPostImages")? {
        changed.insert("changeStreamPreAndPostImages", images);
    }
    if changed.is_empty() {
        return Ok(None);
    }
    Validator::from_options(&changed, collection.collation())?;
    let commit_seq = database
        .catalog
        .change_options(&collection.namespace, |options| {
            options.extend(changed);
            Ok(())
        })?;
    Ok(Some(commit_seq))
}

fn change_index(
    database: &Arc<Database>,
    collection: &Collection,
    request: &Document,
    changes: &mut Document,
) -> Result<CommitSeq> {
    if !["expireAfterSeconds", "hidden"]
        .iter()
        .any(|name| request.contains_key(name))
    {
        return Err(Error::new(
            ErrorCode::InvalidOptions,
            "no expireAfterSeconds, hidden, unique, or prepareUnique field",
        ));
    }
    let wanted = |spec: &IndexSpec| match (request.get("name"), request.get("keyPattern")) {
        (Some(Bson::String(name)), None) => spec.name == *name,
        (None, Some(Bson::Document(pattern))) => spec
            .document
            .get_document("key")
            .is_ok_and(|key| same_keys(key, pattern)),
        _ => false,
    };
    database
        .catalog
        .change_indexes(&collection.namespace, |indexes| {
            let position = indexes
                .iter()
                .position(|index| wanted(&index.spec))
                .ok_or_else(|| {
                    Error::new(
                        ErrorCode::IndexNotFound,
                        format!(
                            "cannot find index {} for ns {}",
                            request, collection.namespace
                        ),
                    )
                })?;
            let index = &indexes[position];
            let mut document = index.spec.document.clone();
            for name in ["expireAfterSeconds", "hidden"] {
                if let Some(value) = request.get(name) {
                    if name == "hidden" && index.spec.name == "_id_" {
                        return Err(Error::new(ErrorCode::BadValue, "can't hide _id index"));
                    }
                    let old = document.get(name).cloned();
                    changes.insert(format!("{name}_new"), value.clone());
                    if let Some(old) = old {
                        changes.insert(format!("{name}_old"), old);
                    }
                    document.insert(name, value.clone());
                }
            }
            let spec = IndexSpec::parse(&document)?;
            indexes[position] = Arc::new(index.with_spec(spec));
            Ok(())
        })
}

/// `listCollections`.
pub(super) fn list_collections(
    database: &Arc<Database>,
    request: &CommandRequest<'_>,
    operation: &Operation,
    reply: &mut Vec<u8>,
) -> Result<Effects> {
    let arguments = Arguments::of_command(
        "listCollections",
        request.body,
        &[
            "filter",
            "nameOnly",
            "authorizedCollections",
            "cursor",
            "includePendingDrops",
        ],
    )?;
    Namespace::check_database(request.database)?;
    let name_only = arguments.flag("nameOnly")?;
    let bindings = Bindings::system(operation, Collation::SIMPLE);
    let filter = match arguments.document("filter")? {
        Some(filter) => Some(Matcher::parse(filter, &bindings.scope)?),
        None => None,
    };
    let context = bindings.evaluation(operation);
    let mut list = DocumentList::default();
    let catalog = database.catalog_of(operation);
    let collections = catalog.collections(request.database)?;
    let views = catalog.views(request.database)?;
    let descriptions = collections.iter().map(|collection| describe(collection));
    for description in descriptions.chain(views.iter().map(|view| views::describe(view))) {
        let full = RawDocumentBuf::try_from(&description)?;
        let wanted = match &filter {
            Some(filter) => filter.matches(&full, &context)?,
            None => true,
        };
        if wanted && name_only {
            let short = ["name", "type"].map(|field| {
                (
                    field.to_owned(),
                    description.get(field).cloned().unwrap_or_default(),
                )
            });
            list.push(RawDocumentBuf::try_from(&Document::from_iter(short))?);
        } else if wanted {
            list.push(full);
        }
    }
    let namespace = Namespace::of_command(request.database, "listCollections")?;
    let cursor = OpenCursor::new(namespace, Source::List(list), request.session);
    let batch_size = arguments.cursor_batch_size()?.unwrap_or(u64::MAX);
    first_batch(database, cursor, batch_size, false, operation, reply)
}

fn describe(collection: &Collection) -> Document {
    let mut document = doc! {
        "name": collection.namespace.collection(),
        "type": "collection",
        "options": collection.options.clone(),
        "info": {"readOnly": false, "uuid": collection.uuid},
    };
    if let Some(index) = collection.id_index() {
        document.insert("idIndex", index.spec.document.clone());
    }
    document
}
