//! Values restored from index keys.

use bson::{Bson, Document};
use millrace_collection::index::{FieldKind, IndexSpec};
use millrace_value::key::TypeBitsReader;
use millrace_value::{Path, Result, key};

/// The fields of an index entry as a document with nested documents; none if a field is null or
/// undefined, which may stand for a missing one.
pub(super) fn document(
    spec: &IndexSpec,
    fields: &[u8],
    type_bits: &[u8],
) -> Result<Option<Document>> {
    let values = values(spec, fields, type_bits)?;
    let mut document = Document::new();
    for (field, value) in spec.fields.iter().zip(values) {
        if field.kind == FieldKind::Hashed {
            continue;
        }
        if matches!(value, Bson::Null | Bson::Undefined) || !put(&mut document, &field.path, value)
        {
            return Ok(None);
        }
    }
    Ok(Some(document))
}

/// The fields of an index entry, each under its dotted name, as `returnKey` shows them.
pub(super) fn key_document(spec: &IndexSpec, fields: &[u8], type_bits: &[u8]) -> Result<Document> {
    let values = values(spec, fields, type_bits)?;
    Ok(spec
        .fields
        .iter()
        .map(|field| field.path.to_string())
        .zip(values)
        .collect())
}

fn values(spec: &IndexSpec, mut fields: &[u8], type_bits: &[u8]) -> Result<Vec<Bson>> {
    let mut reader = TypeBitsReader::new(type_bits);
    spec.fields
        .iter()
        .map(|field| {
            let descending = field.kind == FieldKind::Descending;
            Ok(Bson::try_from(key::decode(
                &mut fields,
                &mut reader,
                descending,
            )?)?)
        })
        .collect()
}

/// Puts `value` at `path`; false if something else is in the way.
fn put(document: &mut Document, path: &Path, value: Bson) -> bool {
    let Some((last, parents)) = path.components().split_last() else {
        return false;
    };
    let mut inner = document;
    for parent in parents {
        let slot = inner
            .entry(parent.to_string())
            .or_insert_with(|| Bson::Document(Document::new()));
        match slot {
            Bson::Document(document) => inner = document,
            _ => return false,
        }
    }
    inner.insert(last.to_string(), value);
    true
}
