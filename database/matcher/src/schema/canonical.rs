//! Equality of values in a schema, for which the order of an object's fields does not count.

use std::cmp::Ordering;

use bson::{Bson, Document, RawArray, RawBson, RawBsonRef, RawDocument};
use millrace_value::{Collation, Error, ErrorCode, Result};

use super::super::DEPTH_MAX;

/// The value with the fields of all objects in the order of their names.
pub(super) fn canonical(value: RawBsonRef<'_>) -> Result<RawBson> {
    match value {
        RawBsonRef::Document(_) | RawBsonRef::Array(_) => {
            Ok(RawBson::try_from(canonical_tree(value, 0)?)?)
        }
        scalar => Ok(scalar.into()),
    }
}

/// The order of canonical values. No schema compares strings by a collation.
pub(super) fn order(a: &RawBson, b: &RawBson) -> Ordering {
    Collation::SIMPLE.compare(a.as_raw_bson_ref(), b.as_raw_bson_ref())
}

/// Sorts canonical values; returns whether all differ.
pub(super) fn sort_distinct(values: &mut [RawBson]) -> bool {
    values.sort_by(order);
    values
        .windows(2)
        .all(|pair| order(&pair[0], &pair[1]).is_ne())
}

/// Whether all items of `array` differ.
pub(super) fn all_differ(array: &RawArray) -> Result<bool> {
    let items = array.into_iter().map(|item| canonical(item?));
    let mut items = items.collect::<Result<Vec<_>>>()?;
    Ok(sort_distinct(&mut items))
}

fn canonical_tree(value: RawBsonRef<'_>, depth: usize) -> Result<Bson> {
    if depth > DEPTH_MAX {
        return Err(Error::new(
            ErrorCode::Overflow,
            "BSON nests too deep to be compared",
        ));
    }
    match value {
        RawBsonRef::Document(document) => Ok(Bson::Document(sorted(document, depth)?)),
        RawBsonRef::Array(array) => {
            let items = array
                .into_iter()
                .map(|item| canonical_tree(item?, depth + 1));
            Ok(Bson::Array(items.collect::<Result<_>>()?))
        }
        scalar => Ok(Bson::try_from(scalar)?),
    }
}

fn sorted(document: &RawDocument, depth: usize) -> Result<Document> {
    let mut fields = Vec::new();
    for element in document.iter_elements() {
        let element = element?;
        let value = canonical_tree(element.value()?, depth + 1)?;
        fields.push((element.key().as_str().to_owned(), value));
    }
    fields.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(fields.into_iter().collect())
}
