//! `collStats`, `dbStats`, `dataSize`, and the documents of `$collStats` and `$indexStats`.

use std::sync::Arc;

use bson::{Bson, DateTime, Document, doc};
use millrace_collection::{Collection, Namespace};
use millrace_engine::Counter;
use millrace_value::{Error, ErrorCode, Operation, ReadView, Result};

use super::arguments::Arguments;
use super::{CommandRequest, Database, Effects, reply_ok};

/// About how many bytes a collection and its indexes take on storage.
pub(crate) fn storage_bytes(database: &Database, collection: &Collection) -> Result<u64> {
    let mut bytes = record_bytes(database, collection)?;
    for index in &collection.indexes {
        bytes += database.engine().size_estimate(&index.ident.range())?;
    }
    Ok(bytes)
}

fn record_bytes(database: &Database, collection: &Collection) -> Result<u64> {
    Ok(database.engine().size_estimate(&collection.ident.range())?)
}

/// The scale of the sizes in a reply.
fn scale(arguments: &Arguments<'_>) -> Result<i64> {
    let scale = arguments.integer("scale")?.unwrap_or(1);
    if scale < 1 {
        return Err(Error::location(
            51024,
            format!("BSON field 'scale' value must be >= 1, actual value '{scale}'"),
        ));
    }
    Ok(scale)
}

fn number(value: i64) -> Bson {
    i32::try_from(value).map_or(Bson::Int64(value), Bson::Int32)
}

/// The storage statistics of one collection, in units of `scale` bytes.
fn collection_document(
    database: &Database,
    view: &ReadView,
    collection: &Collection,
    scale: i64,
) -> Result<Document> {
    let Counter { count, bytes } = view.counter(&collection.counter_key())?;
    let scaled = |bytes: u64| number(i64::try_from(bytes).unwrap_or(i64::MAX) / scale);
    let storage = record_bytes(database, collection)?;
    let mut sizes = Document::new();
    let mut index_bytes = 0;
    for index in &collection.indexes {
        let bytes = database.engine().size_estimate(&index.ident.range())?;
        index_bytes += bytes;
        sizes.insert(index.spec.name.clone(), scaled(bytes));
    }
    let mut document = doc! {
        "size": number(bytes / scale),
        "count": number(count),
        "numOrphanDocs": 0,
        "storageSize": scaled(storage),
        "freeStorageSize": 0,
        "capped": collection.capped().is_some(),
    };
    if count > 0 {
        document.insert("avgObjSize", number(bytes / count));
    }
    if let Some(capped) = collection.capped() {
        document.insert("max", number(capped.count_max.unwrap_or(0)));
        document.insert("maxSize", number(capped.bytes_max / scale));
    }
    let building: Vec<Bson> = collection
        .indexes
        .iter()
        .filter(|index| !index.ready)
        .map(|index| Bson::String(index.spec.name.clone()))
        .collect();
    document.extend(doc! {
        "nindexes": number(i64::try_from(collection.indexes.len()).unwrap_or(i64::MAX)),
        "indexBuilds": building,
        "totalIndexSize": scaled(index_bytes),
        "totalSize": scaled(storage + index_bytes),
        "indexSizes": sizes,
        "scaleFactor": number(scale),
    });
    Ok(document)
}

/// `collStats`.
pub(super) fn coll_stats(
    database: &Arc<Database>,
    request: &CommandRequest<'_>,
    operation: &Operation,
    reply: &mut Vec<u8>,
) -> Result<Effects> {
    let arguments = Arguments::of_command("collStats", request.body, &["scale"])?;
    let namespace = Namespace::new(request.database, arguments.collection()?)?;
    let scale = scale(&arguments)?;
    let view = database.read_view(operation);
    let catalog = database.catalog.at(view);
    catalog.refuse_view(&namespace)?;
    let statistics = match catalog.find(&namespace)? {
        Some(collection) => collection_document(database, view, &collection, scale)?,
        None => doc! {
            "size": 0, "count": 0, "numOrphanDocs": 0, "storageSize": 0, "totalSize": 0,
            "nindexes": 0, "totalIndexSize": 0, "indexDetails": {}, "indexSizes": {},
            "scaleFactor": number(scale),
        },
    };
    reply_ok(reply, |writer| {
        writer.string("ns", namespace.as_str());
        for (name, value) in &statistics {
            writer.value(name, value)?;
        }
        Ok(())
    })?;
    Ok(Effects::default())
}

/// `dataSize`.
pub(super) fn data_size(
    database: &Arc<Database>,
    request: &CommandRequest<'_>,
    operation: &Operation,
    reply: &mut Vec<u8>,
) -> Result<Effects> {
    let arguments = Arguments::of_command(
        "dataSize",
        request.body,
        &["keyPattern", "min", "max", "estimate"],
    )?;
    let namespace = Namespace::parse(arguments.collection()?)?;
    if arguments.contains("min") || arguments.contains("max") {
        return Err(Error::new(
            ErrorCode::NotImplemented,
            "dataSize of a range of keys is not supported",
        ));
    }
    let view = database.read_view(operation);
    let catalog = database.catalog.at(view);
    catalog.refuse_view(&namespace)?;
    let counter = match catalog.find(&namespace)? {
        Some(collection) => view.counter(&collection.counter_key())?,
        None => Counter::default(),
    };
    reply_ok(reply, |writer| {
        writer.boolean("estimate", false);
        writer.value("size", &number(counter.bytes))?;
        writer.value("numObjects", &number(counter.count))?;
        writer.int32("millis", 0);
        Ok(())
    })?;
    Ok(Effects::default())
}

/// `dbStats`.
pub(super) fn db_stats(
    database: &Arc<Database>,
    request: &CommandRequest<'_>,
    operation: &Operation,
    reply: &mut Vec<u8>,
) -> Result<Effects> {
    let arguments = Arguments::of_command(request.name, request.body, &["scale", "freeStorage"])?;
    Namespace::check_database(request.database)?;
    let scale = scale(&arguments)?;
    let view = database.read_view(operation);
    let catalog = database.catalog.at(view);
    let collections = catalog.collections(request.database)?;
    let views = catalog.views(request.database)?.len();
    let mut total = Counter::default();
    let (mut storage, mut index_storage, mut indexes) = (0, 0, 0);
    for collection in &collections {
        total = total.plus(view.counter(&collection.counter_key())?);
        let records = record_bytes(database, collection)?;
        storage += records;
        index_storage += storage_bytes(database, collection)? - records;
        indexes += collection.indexes.len() as u64;
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "MongoDB reports these as doubles"
    )]
    reply_ok(reply, |writer| {
        let scaled = |bytes: u64| bytes as f64 / scale as f64;
        writer.string("db", request.database);
        writer.count("collections", collections.len() as u64);
        writer.count("views", views as u64);
        writer.value("objects", &number(total.count))?;
        let average = if total.count > 0 {
            total.bytes as f64 / total.count as f64
        } else {
            0.0
        };
        writer.double("avgObjSize", average);
        writer.double("dataSize", total.bytes as f64 / scale as f64);
        writer.double("storageSize", scaled(storage));
        writer.count("indexes", indexes);
        writer.double("indexSize", scaled(index_storage));
        writer.double("totalSize", scaled(storage + index_storage));
        writer.value("scaleFactor", &number(scale))?;
        Ok(())
    })?;
    Ok(Effects::default())
}

/// The document of `$collStats`.
pub(super) fn coll_stats_stage(
    database: &Database,
    view: &ReadView,
    namespace: &Namespace,
    spec: &Document,
    operation: &Operation,
) -> Result<Document> {
    let collection = database.catalog.at(view).find(namespace)?;
    let mut document = doc! {
        "ns": namespace.as_str(),
        "host": database.hooks.address(),
        "localTime": DateTime::from_millis(operation.environment().wall_clock_ms()),
    };
    for (name, options) in spec {
        let Bson::Document(options) = options else {
            return Err(Error::location(
                40167,
                format!("{name} argument must be an object"),
            ));
        };
        match name.as_str() {
            "storageStats" => {
                let scale = millrace_collection::as_i64(options.get("scale"))
                    .unwrap_or(1)
                    .max(1);
                if let Some(collection) = &collection {
                    let statistics = collection_document(database, view, collection, scale)?;
                    document.insert("storageStats", statistics);
                }
            }
            "count" => {
                let collection = collection.as_ref().ok_or_else(|| {
                    Error::location(
                        40481,
                        format!("Unable to retrieve count in $collStats stage :: caused by :: Collection [{namespace}] not found."),
                    )
                })?;
                let counter = view.counter(&collection.counter_key())?;
                document.insert("count", number(counter.count));
            }
            "latencyStats" | "queryExecStats" => {
                return Err(Error::new(
                    ErrorCode::NotImplemented,
                    format!("$collStats with {name} is not supported"),
                ));
            }
            other => {
                return Err(Error::new(
                    ErrorCode::IDLUnknownField,
                    format!("BSON field '$collStats.{other}' is an unknown field."),
                ));
            }
        }
    }
    Ok(document)
}

/// The documents of `$indexStats`.
pub(super) fn index_stats_stage(
    database: &Database,
    view: &ReadView,
    namespace: &Namespace,
    operation: &Operation,
) -> Result<Vec<Document>> {
    let Some(collection) = database.catalog.at(view).find(namespace)? else {
        return Ok(Vec::new());
    };
    let since = DateTime::from_millis(operation.started_wall_ms());
    let documents = collection
        .indexes
        .iter()
        .map(|index| {
            let key = index
                .spec
                .document
                .get_document("key")
                .cloned()
                .unwrap_or_default();
            doc! {
                "name": index.spec.name.clone(),
                "key": key,
                "host": database.hooks.address(),
                "accesses": {
                    "ops": i64::try_from(index.accesses()).unwrap_or(i64::MAX),
                    "since": since,
                },
                "spec": index.spec.document.clone(),
            }
        })
        .collect();
    Ok(documents)
}
