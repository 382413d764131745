//! `createIndexes`, `listIndexes`, `dropIndexes`.

use std::sync::Arc;

use bson::raw::RawBsonRef;
use bson::{Document, RawDocumentBuf};
use millrace_collection::index::{Compatibility, IndexSpec};
use millrace_collection::{Collection, Index, Namespace, build_indexes};
use millrace_query::planner::same_keys;
use millrace_value::{Error, ErrorCode, Operation, Result, document_text};

use super::arguments::Arguments;
use super::cursors::{OpenCursor, Source};
use super::document_list::DocumentList;
use super::first_batch::first_batch;
use super::{CommandRequest, Database, Effects, reply_ok};

/// How many indexes a collection may have.
const INDEXES_MAX: usize = 64;

/// `createIndexes`.
pub(super) fn create_indexes(
    database: &Arc<Database>,
    request: &CommandRequest<'_>,
    operation: &Operation,
    reply: &mut Vec<u8>,
) -> Result<Effects> {
    let arguments = Arguments::of_command(
        "createIndexes",
        request.body,
        &["indexes", "commitQuorum", "v", "ignoreUnknownIndexOptions"],
    )?;
    let namespace = Namespace::new(request.database, arguments.collection()?)?;
    super::insert::check_writable(&namespace)?;
    let documents = arguments
        .trees("indexes")?
        .ok_or_else(|| arguments.missing("indexes"))?;
    if documents.is_empty() {
        return Err(Error::new(
            ErrorCode::BadValue,
            "Must specify at least one index to create",
        ));
    }
    let specs = documents
        .iter()
        .map(|document| {
            IndexSpec::parse(document).map_err(|error| in_specification(&error, document))
        })
        .collect::<Result<Vec<_>>>()?;
    let created = database.catalog.find(&namespace).is_none();
    let guard = database
        .catalog
        .find_or_create(&namespace, &**operation.environment())?;
    drop(guard);
    let mut before = 0;
    let mut joined = Vec::new();
    let added = database.catalog.add_indexes(&namespace, |collection| {
        before = collection.indexes.len();
        choose(collection, specs, &mut joined)
    })?;
    build_indexes(&database.catalog, &namespace, &added, &joined, operation)?;
    reply_ok(reply, |writer| {
        writer.count("numIndexesBefore", before as u64);
        writer.count("numIndexesAfter", (before + added.len()) as u64);
        writer.boolean("createdCollectionAutomatically", created);
        if added.is_empty() {
            writer.string("note", "all indexes already exist");
        }
        Ok(())
    })?;
    Ok(Effects::written(Some(database.engine().last_commit_seq())))
}

/// Names the specification an error is about, as MongoDB does.
fn in_specification(error: &Error, document: &Document) -> Error {
    Error::new(
        error.code(),
        format!(
            "Error in specification {} :: caused by :: {}",
            document_text(document),
            error.message()
        ),
    )
}

/// Of the wanted indexes those that are not there yet. Those that are there but still being built are
/// added to `joined`.
fn choose(
    collection: &Collection,
    specs: Vec<IndexSpec>,
    joined: &mut Vec<Arc<Index>>,
) -> Result<Vec<IndexSpec>> {
    let mut added: Vec<IndexSpec> = Vec::new();
    'specs: for spec in specs {
        for index in &collection.indexes {
            if index.spec.compatibility(&spec)? == Compatibility::Same {
                if !index.ready {
                    joined.push(Arc::clone(index));
                }
                continue 'specs;
            }
        }
        for other in &added {
            if other.compatibility(&spec)? == Compatibility::Same {
                continue 'specs;
            }
        }
        added.push(spec);
    }
    if collection.indexes.len() + added.len() > INDEXES_MAX {
        return Err(Error::new(
            ErrorCode::CannotCreateIndex,
            format!(
                "add index fails, too many indexes for {} (limit {INDEXES_MAX})",
                collection.namespace
            ),
        ));
    }
    Ok(added)
}

/// `listIndexes`.
pub(super) fn list_indexes(
    database: &Arc<Database>,
    request: &CommandRequest<'_>,
    operation: &Operation,
    reply: &mut Vec<u8>,
) -> Result<Effects> {
    let arguments = Arguments::of_command(
        "listIndexes",
        request.body,
        &["cursor", "includeBuildUUIDs", "includeIndexBuildInfo"],
    )?;
    let namespace = Namespace::new(request.database, arguments.collection()?)?;
    let catalog = database.catalog_of(operation);
    let collection = catalog
        .find(&namespace)?
        .ok_or_else(|| catalog.missing(&namespace))?;
    let mut list = DocumentList::default();
    for index in collection.indexes.iter().filter(|index| index.ready) {
        let shown = match collection.options.get_document("clusteredIndex") {
            Ok(clustered) if index.spec.name == "_id_" => {
                let mut shown = clustered.clone();
                shown.insert("clustered", true);
                RawDocumentBuf::try_from(&shown)?
            }
            _ => RawDocumentBuf::try_from(&index.spec.document)?,
        };
        list.push(shown);
    }
    let cursor = OpenCursor::new(namespace, Source::List(list), request.session);
    let batch_size = arguments.cursor_batch_size()?.unwrap_or(u64::MAX);
    first_batch(database, cursor, batch_size, false, operation, reply)
}

/// Which indexes are to go.
enum Selection {
    All,
    Names(Vec<String>),
    Keys(Document),
}

/// `dropIndexes`.
pub(super) fn drop_indexes(
    database: &Arc<Database>,
    request: &CommandRequest<'_>,
    _operation: &Operation,
    reply: &mut Vec<u8>,
) -> Result<Effects> {
    let arguments =
        Arguments::of_command("dropIndexes", request.body, &["index", "collectionUUID"])?;
    let namespace = Namespace::new(request.database, arguments.collection()?)?;
    if database.catalog.find(&namespace).is_none() {
        database.catalog.refuse_view(&namespace)?;
        return Err(Error::new(
            ErrorCode::NamespaceNotFound,
            format!("ns not found {namespace}"),
        ));
    }
    let selection = match arguments
        .get("index")
        .ok_or_else(|| arguments.missing("index"))?
    {
        RawBsonRef::String("*") => Selection::All,
        RawBsonRef::String(name) => Selection::Names(vec![name.to_owned()]),
        RawBsonRef::Document(keys) => Selection::Keys(keys.try_into()?),
        RawBsonRef::Array(names) => {
            let mut list = Vec::new();
            for name in names {
                match name? {
                    RawBsonRef::String(name) => list.push(name.to_owned()),
                    _ => return Err(wrong_selection()),
                }
            }
            Selection::Names(list)
        }
        _ => return Err(wrong_selection()),
    };
    let mut before = 0;
    let commit_seq = database.catalog.change_indexes(&namespace, |indexes| {
        before = indexes.len();
        remove(indexes, &selection)
    })?;
    reply_ok(reply, |writer| {
        writer.count("nIndexesWas", before as u64);
        if matches!(selection, Selection::All) {
            writer.string("msg", "non-_id indexes dropped for collection");
        }
        Ok(())
    })?;
    Ok(Effects::written(Some(commit_seq)))
}

fn wrong_selection() -> Error {
    Error::new(
        ErrorCode::TypeMismatch,
        "BSON field 'dropIndexes.index' is the wrong type, expected types '[string, object, array]'",
    )
}

fn remove(indexes: &mut Vec<Arc<Index>>, selection: &Selection) -> Result<()> {
    let not_id = |name: &str| {
        if name == "_id_" {
            return Err(Error::new(
                ErrorCode::InvalidOptions,
                "cannot drop _id index",
            ));
        }
        Ok(())
    };
    match selection {
        Selection::All => indexes.retain(|index| index.spec.name == "_id_"),
        Selection::Names(names) => {
            for name in names {
                not_id(name)?;
                let position = indexes.iter().position(|index| index.spec.name == *name);
                let position = position.ok_or_else(|| {
                    Error::new(
                        ErrorCode::IndexNotFound,
                        format!("index not found with name [{name}]"),
                    )
                })?;
                indexes.remove(position);
            }
        }
        Selection::Keys(keys) => {
            let key_of = |index: &Arc<Index>| index.spec.document.get_document("key").cloned();
            let mut matching = indexes
                .iter()
                .enumerate()
                .filter(|(_, index)| key_of(index).is_ok_and(|key| same_keys(&key, keys)));
            let Some((position, index)) = matching.next() else {
                return Err(Error::new(
                    ErrorCode::IndexNotFound,
                    format!("can't find index with key: {}", document_text(keys)),
                ));
            };
            not_id(&index.spec.name)?;
            let others = matching.count();
            if others > 0 {
                return Err(Error::new(
                    ErrorCode::AmbiguousIndexKeyPattern,
                    format!(
                        "{} indexes found for key: {}, identify by name instead",
                        others + 1,
                        document_text(keys)
                    ),
                ));
            }
            indexes.remove(position);
        }
    }
    Ok(())
}
