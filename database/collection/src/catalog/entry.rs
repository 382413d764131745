//! How the catalog is stored: its keys, and the collections that its entries describe.

use std::sync::{Arc, OnceLock};

use bson::{Bson, Document, RawDocument};
use millrace_engine::{Batch, KeyRange};
use millrace_value::ident::Ident;
use millrace_value::{Error, ErrorCode, ReadView, Result};

use crate::collection::{Collection, Index, RecordKind, Shared, as_i64, counter_key, multikey_key};
use crate::index::IndexSpec;
use crate::namespace::Namespace;

fn entry_prefix() -> Vec<u8> {
    Ident::CATALOG.key(b"c")
}

pub(super) fn entry_key(namespace: &Namespace) -> Vec<u8> {
    let mut key = entry_prefix();
    key.extend_from_slice(namespace.as_str().as_bytes());
    key
}

pub(super) fn next_ident_key() -> Vec<u8> {
    Ident::CATALOG.key(b"i")
}

pub(super) fn put_entry(batch: &mut Batch, collection: &Collection) -> Result<()> {
    let entry = collection.to_document().to_vec()?;
    batch.put(&entry_key(&collection.namespace), &entry);
    Ok(())
}

fn corrupt(source: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorCode::InternalError, "the catalog cannot be read").with_source(source)
}

/// The collection that has the name `namespace` at `view`.
pub(super) fn read_entry(view: &ReadView, namespace: &Namespace) -> Result<Option<Collection>> {
    view.get(&entry_key(namespace))?
        .map(|bytes| read_collection(view, &bytes))
        .transpose()
}

/// The collections whose names begin with `prefix` at `view`, in the order of their names.
pub(super) fn read_entries(view: &ReadView, prefix: &str) -> Result<Vec<Collection>> {
    let mut key = entry_prefix();
    key.extend_from_slice(prefix.as_bytes());
    let mut cursor = view.cursor(KeyRange::prefix(&key))?;
    let mut found = cursor.seek_first()?;
    let mut collections = Vec::new();
    while found {
        collections.push(read_collection(view, cursor.value())?);
        found = cursor.next()?;
    }
    Ok(collections)
}

/// The number of the next free ident at `view`.
pub(super) fn read_next_ident(view: &ReadView) -> Result<u32> {
    Ok(match view.get(&next_ident_key())? {
        Some(bytes) => u32::from_le_bytes(bytes.as_slice().try_into().map_err(corrupt)?),
        None => Ident::CATALOG.get() + 1,
    })
}

/// The collection that an entry describes. Its flags and counts in memory are new: those of the catalog's
/// present description are not shared.
fn read_collection(view: &ReadView, entry: &[u8]) -> Result<Collection> {
    let entry = RawDocument::from_bytes(entry).map_err(corrupt)?;
    let entry = Document::try_from(entry).map_err(corrupt)?;
    let namespace = Namespace::parse(entry.get_str("ns").map_err(corrupt)?)?;
    let ident = read_ident(&entry)?;
    let kind = match entry.get_str("kind").map_err(corrupt)? {
        "clustered" => RecordKind::Clustered,
        "sequenced" => RecordKind::Sequenced,
        other => {
            return Err(Error::new(
                ErrorCode::UnsupportedFormat,
                format!("{namespace} is stored in a way this version does not know: {other}"),
            ));
        }
    };
    let mut indexes = Vec::new();
    for index in entry.get_array("indexes").map_err(corrupt)? {
        let Bson::Document(index) = index else {
            return Err(Error::new(
                ErrorCode::InternalError,
                "an index entry is no document",
            ));
        };
        let ident = read_ident(index)?;
        let spec = IndexSpec::parse(index.get_document("spec").map_err(corrupt)?)?;
        let multikey = match view.get(&multikey_key(ident))? {
            Some(bytes) => u64::from_le_bytes(bytes.as_slice().try_into().map_err(corrupt)?),
            None => 0,
        };
        let ready = index.get_bool("ready").map_err(corrupt)?;
        indexes.push(Arc::new(Index::new(ident, spec, ready, multikey)));
    }
    // The counter is checked here so that a damaged one is found when the server starts.
    view.counter(&counter_key(ident))?;
    let uuid = match entry.get("uuid") {
        Some(Bson::Binary(binary)) => binary.to_uuid().map_err(corrupt)?,
        _ => {
            return Err(Error::new(
                ErrorCode::InternalError,
                "a collection has no UUID",
            ));
        }
    };
    Ok(Collection {
        namespace,
        uuid,
        ident,
        kind,
        options: entry.get_document("options").map_err(corrupt)?.clone(),
        indexes,
        shared: Arc::new(Shared::default()),
        validator: OnceLock::new(),
    })
}

fn read_ident(entry: &Document) -> Result<Ident> {
    as_i64(entry.get("ident"))
        .and_then(|number| u32::try_from(number).ok())
        .map(Ident::new)
        .ok_or_else(|| Error::new(ErrorCode::InternalError, "a catalog entry has no ident"))
}
