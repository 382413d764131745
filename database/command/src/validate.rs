//! `validate`: checks that documents, index entries and counters agree.

use std::collections::HashMap;
use std::sync::Arc;

use bson::{Document, RawDocument, doc};
use millrace_collection::index::{IndexEntry, IndexKeys};
use millrace_collection::{
    Collection, Index, Namespace, RecordKind, check_document, clustered_record_id, internal,
    multikey_key,
};
use millrace_value::ident::Ident;
use millrace_value::{DocumentWriter, Error, ErrorCode, Operation, ReadView, Result};

use super::arguments::Arguments;
use super::{CommandRequest, Database, Effects, reply_ok};

/// How many single findings a reply lists.
const FINDINGS_MAX: usize = 100;

/// What a check found.
#[derive(Debug, Default)]
struct Findings {
    records: u64,
    bytes: i64,
    invalid: u64,
    /// How many entries the documents are to have in each index.
    expected: HashMap<Ident, u64>,
    /// How many entries there are.
    keys: HashMap<Ident, u64>,
    missing: Vec<Document>,
    extra: Vec<Document>,
    errors: Vec<String>,
}

impl Findings {
    fn error(&mut self, text: String) {
        if self.errors.len() < FINDINGS_MAX {
            self.errors.push(text);
        }
    }
}

pub(super) fn validate(
    database: &Arc<Database>,
    request: &CommandRequest<'_>,
    operation: &Operation,
    reply: &mut Vec<u8>,
) -> Result<Effects> {
    let arguments = Arguments::of_command(
        "validate",
        request.body,
        &[
            "full",
            "scandata",
            "repair",
            "metadata",
            "checkBSONConformance",
            "background",
            "fixMultikey",
        ],
    )?;
    let namespace = Namespace::new(request.database, arguments.collection()?)?;
    // The description and the state must be of one moment: nothing may commit in between.
    let look = |latest: &ReadView, collection: &Arc<Collection>| {
        Ok((Arc::clone(collection), latest.fixed()?))
    };
    let missing = |error: Error| match error.code() {
        ErrorCode::CommandNotSupportedOnView => Error::new(error.code(), "Cannot validate a view"),
        ErrorCode::NamespaceNotFound => Error::new(
            error.code(),
            format!("Collection '{namespace}' does not exist to validate."),
        ),
        _ => error,
    };
    let quiesced = database.catalog.quiesce(&namespace, look);
    let (collection, view) = quiesced.map_err(missing)?;
    let counted = view.counter(&collection.counter_key())?;
    let mut findings = Findings::default();
    check_records(&view, &collection, operation, &mut findings)?;
    for index in collection.stored_indexes().filter(|index| index.ready) {
        check_entries(&view, &collection, index, operation, &mut findings)?;
    }
    let records = i64::try_from(findings.records).unwrap_or(i64::MAX);
    if (counted.count, counted.bytes) != (records, findings.bytes) {
        findings.error(format!(
            "the counter says {} documents of {} bytes, but there are {records} of {}",
            counted.count, counted.bytes, findings.bytes
        ));
    }
    reply_ok(reply, |writer| report(writer, &collection, &findings))?;
    Ok(Effects::default())
}

/// Reads every document and looks for its entries in every index.
fn check_records(
    view: &ReadView,
    collection: &Collection,
    operation: &Operation,
    findings: &mut Findings,
) -> Result<()> {
    let mut cursor = view.cursor(collection.ident.range())?;
    let mut found = cursor.seek_first()?;
    while found {
        operation.check()?;
        findings.records += 1;
        findings.bytes += i64::try_from(cursor.value().len()).unwrap_or(i64::MAX);
        let record_id = cursor.key()[Ident::LEN..].to_vec();
        match RawDocument::from_bytes(cursor.value()) {
            Err(error) => {
                findings.invalid += 1;
                findings.error(format!("a document is not BSON: {error}"));
            }
            Ok(document) => check_record(view, collection, &record_id, document, findings)?,
        }
        found = cursor.next()?;
    }
    Ok(())
}

fn check_record(
    view: &ReadView,
    collection: &Collection,
    record_id: &[u8],
    document: &RawDocument,
    findings: &mut Findings,
) -> Result<()> {
    if let Err(error) = check_document(document) {
        findings.invalid += 1;
        findings.error(format!("a document is damaged: {error}"));
        return Ok(());
    }
    let id = document.get("_id")?;
    if collection.kind == RecordKind::Clustered {
        let right = match id {
            Some(id) => clustered_record_id(id, collection.collation())? == record_id,
            None => false,
        };
        if !right {
            findings.error("a document is stored under another _id than it has".to_owned());
        }
    }
    for index in collection.stored_indexes().filter(|index| index.ready) {
        let keys = IndexKeys::of(&index.spec, document)?;
        if keys.multikey & !stored_multikey(view, index)? != 0 {
            findings.error(format!(
                "a document has an array in {}, which the index does not know of",
                index.spec.name
            ));
        }
        *findings.expected.entry(index.ident).or_default() += keys.keys.len() as u64;
        for key in keys.keys {
            let unique = index.spec.unique;
            let expected = IndexEntry::value(unique, record_id, &key.type_bits);
            let entry = IndexEntry::key(index.ident, unique, &key.fields, record_id);
            let mut same = false;
            view.get_with(&entry, &mut |value| same = value == expected)?;
            if !same && findings.missing.len() < FINDINGS_MAX {
                let id = id
                    .map(bson::Bson::try_from)
                    .transpose()?
                    .unwrap_or(bson::Bson::Null);
                findings
                    .missing
                    .push(doc! {"indexName": index.spec.name.clone(), "recordId": id});
            }
        }
    }
    Ok(())
}

/// Which fields of an index are multikey by what is stored.
fn stored_multikey(view: &ReadView, index: &Index) -> Result<u64> {
    let mut mask = Some(0);
    view.get_with(&multikey_key(index.ident), &mut |bytes| {
        mask = bytes.try_into().map(u64::from_le_bytes).ok();
    })?;
    mask.ok_or_else(|| internal("a multikey mask is damaged"))
}

/// Counts the entries of an index. When every entry that a document is to have is there, and there are
/// as many as that, none is too many; else the ones that are have to be found.
fn check_entries(
    view: &ReadView,
    collection: &Collection,
    index: &Index,
    operation: &Operation,
    findings: &mut Findings,
) -> Result<()> {
    let mut count = 0;
    each_entry(view, index, operation, &mut |entry| {
        count += 1;
        if let Err(error) = entry {
            findings.error(format!(
                "an entry of {} is damaged: {error}",
                index.spec.name
            ));
        }
        Ok(())
    })?;
    findings.keys.insert(index.ident, count);
    let expected = findings.expected.get(&index.ident).copied();
    let is_of = |finding: &Document| {
        let name = finding.get_str("indexName");
        name.is_ok_and(|name| name == index.spec.name)
    };
    if count == expected.unwrap_or(0) && !findings.missing.iter().any(is_of) {
        return Ok(());
    }
    each_entry(view, index, operation, &mut |entry| {
        let Ok(entry) = entry else {
            return Ok(());
        };
        if findings.extra.len() < FINDINGS_MAX && !is_supported(view, collection, index, &entry)? {
            findings
                .extra
                .push(doc! {"indexName": index.spec.name.clone()});
        }
        Ok(())
    })
}

/// Calls `visit` with every entry of an index, or why it is none.
fn each_entry(
    view: &ReadView,
    index: &Index,
    operation: &Operation,
    visit: &mut dyn FnMut(Result<IndexEntry<'_>>) -> Result<()>,
) -> Result<()> {
    let mut cursor = view.cursor(index.ident.range())?;
    let mut found = cursor.seek_first()?;
    while found {
        operation.check()?;
        visit(IndexEntry::parse(
            index.spec.unique,
            cursor.key(),
            cursor.value(),
        ))?;
        found = cursor.next()?;
    }
    Ok(())
}

/// Whether the entry's document is there and has the entry's key.
fn is_supported(
    view: &ReadView,
    collection: &Collection,
    index: &Index,
    entry: &IndexEntry<'_>,
) -> Result<bool> {
    let mut supported = false;
    view.get_checked(&collection.record_key(entry.record_id), &mut |bytes| {
        let keys = IndexKeys::of(&index.spec, RawDocument::from_bytes(bytes)?)?;
        supported = keys.keys.iter().any(|key| key.fields == entry.fields);
        Ok(())
    })?;
    Ok(supported)
}

fn report(
    writer: &mut DocumentWriter<'_>,
    collection: &Collection,
    findings: &Findings,
) -> Result<()> {
    let clean = findings.errors.is_empty()
        && findings.missing.is_empty()
        && findings.extra.is_empty()
        && findings.invalid == 0;
    writer.string("ns", collection.namespace.as_str());
    writer.string("uuid", &collection.uuid.to_string());
    writer.count("nInvalidDocuments", findings.invalid);
    writer.count("nNonCompliantDocuments", 0);
    writer.count("nrecords", findings.records);
    writer.count("nIndexes", collection.indexes.len() as u64);
    writer.open_document("keysPerIndex");
    for index in &collection.indexes {
        // The index on _id of a clustered collection is the collection itself.
        let keys = findings
            .keys
            .get(&index.ident)
            .copied()
            .unwrap_or(findings.records);
        writer.count(&index.spec.name, keys);
    }
    writer.close();
    writer.open_document("indexDetails");
    for index in &collection.indexes {
        let is_of = |finding: &Document| {
            finding
                .get_str("indexName")
                .is_ok_and(|name| name == index.spec.name)
        };
        let valid = !findings.missing.iter().any(is_of) && !findings.extra.iter().any(is_of);
        writer.open_document(&index.spec.name);
        writer.boolean("valid", valid);
        writer.close();
    }
    writer.close();
    writer.boolean("valid", clean);
    writer.boolean("repaired", false);
    writer.open_array("warnings");
    writer.close();
    writer.open_array("errors");
    for (position, error) in findings.errors.iter().enumerate() {
        writer.string(&position.to_string(), error);
    }
    writer.close();
    for (name, list) in [
        ("extraIndexEntries", &findings.extra),
        ("missingIndexEntries", &findings.missing),
    ] {
        writer.open_array(name);
        for (position, finding) in list.iter().enumerate() {
            writer.value(&position.to_string(), &finding.clone().into())?;
        }
        writer.close();
    }
    writer.open_array("corruptRecords");
    writer.close();
    Ok(())
}
