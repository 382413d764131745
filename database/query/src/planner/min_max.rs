//! The bounds of a scan that are given as index keys: `min` and `max`.

use bson::Document;
use millrace_collection::index::{FieldKind, IndexSpec};
use millrace_value::ident::Ident;
use millrace_value::key::TypeBits;
use millrace_value::{Error, Result};

use super::key_bounds::KeyBounds;

/// The keys from `min`, included, up to `max`, excluded.
///
/// # Errors
/// 51174 when the fields are not those of the index, 51175 when `max` is not after `min`, 51176 when the
/// two differ in their fields.
pub(crate) fn key_bounds(
    ident: Ident,
    spec: &IndexSpec,
    min: Option<&Document>,
    max: Option<&Document>,
) -> Result<KeyBounds> {
    if let (Some(min), Some(max)) = (min, max) {
        if !min.keys().eq(max.keys()) {
            return Err(Error::location(
                51176,
                "min and max must have the same field names",
            ));
        }
    }
    let start = min.map(|min| encode(spec, min)).transpose()?;
    let end = max.map(|max| encode(spec, max)).transpose()?;
    if let (Some(start), Some(end)) = (&start, &end) {
        if start >= end {
            return Err(Error::location(
                51175,
                "The value provided for min() does not come before the value provided for max() in the \
                 hinted index.",
            ));
        }
    }
    Ok(KeyBounds::between(ident, start.as_deref(), end.as_deref()))
}

fn encode(spec: &IndexSpec, bound: &Document) -> Result<Vec<u8>> {
    let incompatible = || Error::location(51174, "The index chosen is not compatible with min/max");
    if bound.len() != spec.fields.len() {
        return Err(incompatible());
    }
    let mut bytes = Vec::new();
    let mut type_bits = TypeBits::default();
    for (field, (name, value)) in spec.fields.iter().zip(bound) {
        if field.path.to_string() != *name || field.kind == FieldKind::Hashed {
            return Err(incompatible());
        }
        let descending = field.kind == FieldKind::Descending;
        spec.collation
            .encode_key_bson(&mut bytes, &mut type_bits, value, descending)?;
    }
    Ok(bytes)
}
