//! The options of an index document, field by field.

use bson::{Bson, Document};
use millrace_value::{Collation, Error, ErrorCode, Number, Result, document_text, type_alias};

/// The fields that an index document may have.
const FIELDS: [&str; 27] = [
    "2dsphereIndexVersion",
    "background",
    "bits",
    "bucketSize",
    "clustered",
    "coarsestIndexedLevel",
    "collation",
    "default_language",
    "dropDups",
    "expireAfterSeconds",
    "finestIndexedLevel",
    "hidden",
    "key",
    "language_override",
    "max",
    "min",
    "name",
    "ns",
    "originalSpec",
    "partialFilterExpression",
    "prepareUnique",
    "sparse",
    "storageEngine",
    "textIndexVersion",
    "unique",
    "v",
    "weights",
];

/// The fields that the document of the index on `_id` may have. `hidden` is refused by itself.
const ID_FIELDS: [&str; 7] = ["clustered", "collation", "hidden", "key", "name", "ns", "v"];

/// The failure for a field of another type than `wanted`.
pub(super) fn type_mismatch(field: &str, wanted: &str, value: &Bson) -> Error {
    Error::new(
        ErrorCode::TypeMismatch,
        format!(
            "The field '{field}' must be {wanted}, but got {}",
            type_alias(value)
        ),
    )
}

/// Refuses fields that no index document has.
pub(super) fn check_fields(document: &Document, on_id: bool) -> Result<()> {
    for field in document.keys().map(String::as_str) {
        if field == "wildcardProjection" {
            return Err(Error::new(
                ErrorCode::BadValue,
                "The field 'wildcardProjection' is only allowed in a wildcard index",
            ));
        }
        let (known, kind) = if on_id {
            (ID_FIELDS.contains(&field), "_id ")
        } else {
            (FIELDS.contains(&field), "")
        };
        if !known {
            return Err(Error::new(
                ErrorCode::InvalidIndexSpecificationOption,
                format!(
                    "The field '{field}' is not valid for an {kind}index specification. \
                     Specification: {}",
                    document_text(document)
                ),
            ));
        }
    }
    Ok(())
}

/// A field that is true or false; numbers are taken too, and a missing one is false.
pub(super) fn flag(document: &Document, field: &str) -> Result<bool> {
    match document.get(field) {
        None => Ok(false),
        Some(Bson::Boolean(value)) => Ok(*value),
        Some(value) => match Number::from_bson(value) {
            Some(number) => Ok(!number.is_zero()),
            None => Err(Error::new(
                ErrorCode::TypeMismatch,
                format!(
                    "The field '{field}' has value {field}: {}, which is not convertible to bool",
                    millrace_value::value_text(value)
                ),
            )),
        },
    }
}

/// A field that is a document.
pub(super) fn object<'a>(document: &'a Document, field: &str) -> Result<Option<&'a Document>> {
    match document.get(field) {
        None => Ok(None),
        Some(Bson::Document(value)) => Ok(Some(value)),
        Some(other) => Err(type_mismatch(field, "an object", other)),
    }
}

/// The collation of an index; without one that of the collection, whose default is always the simple one.
///
/// # Errors
/// `CannotCreateIndex` for one that is not supported.
pub(super) fn parse_collation(collation: Option<&Document>) -> Result<Collation> {
    let Some(collation) = collation else {
        return Ok(Collation::SIMPLE);
    };
    let locale = collation.get_str("locale").unwrap_or_default();
    Collation::of_locale(locale).ok_or_else(|| {
        Error::new(
            ErrorCode::CannotCreateIndex,
            "indexes with a collation are not supported",
        )
    })
}

/// The name, or the default one: fields and directions joined by underscores.
pub(super) fn index_name(document: &Document, key: &Document) -> Result<String> {
    match document.get("name") {
        None => Ok(default_name(key)),
        Some(Bson::String(name)) if name.is_empty() => Err(Error::new(
            ErrorCode::CannotCreateIndex,
            "index name cannot be empty",
        )),
        Some(Bson::String(name)) if name == "*" => Err(Error::new(
            ErrorCode::BadValue,
            "The index name '*' is not valid.",
        )),
        Some(Bson::String(name)) if name.contains('\0') => Err(Error::new(
            ErrorCode::CannotCreateIndex,
            "index name cannot contain NUL bytes",
        )),
        Some(Bson::String(name)) => Ok(name.clone()),
        Some(other) => Err(type_mismatch("name", "a string", other)),
    }
}

fn default_name(key: &Document) -> String {
    let parts: Vec<String> = key
        .iter()
        .map(|(field, value)| match (value, Number::from_bson(value)) {
            (Bson::String(kind), _) => format!("{field}_{kind}"),
            (_, Some(number)) => format!("{field}_{number}"),
            _ => field.clone(),
        })
        .collect();
    parts.join("_")
}

/// The version of the index's format, 2 unless it says 1.
pub(super) fn version(document: &Document) -> Result<i32> {
    let Some(value) = document.get("v") else {
        return Ok(2);
    };
    let number = Number::from_bson(value).ok_or_else(|| type_mismatch("v", "a number", value))?;
    match number.as_i64_exact() {
        Some(1) => Ok(1),
        Some(2) => Ok(2),
        _ => Err(Error::new(
            ErrorCode::CannotCreateIndex,
            format!(
                "Invalid index specification {}; cannot create an index with v={number}",
                document_text(document)
            ),
        )),
    }
}

/// The seconds of a TTL index, rounded down; NaN stands for the most there can be.
pub(super) fn expire_after_seconds(document: &Document) -> Result<Option<u64>> {
    let Some(value) = document.get("expireAfterSeconds") else {
        return Ok(None);
    };
    let cannot = |message: &str| {
        Error::new(
            ErrorCode::CannotCreateIndex,
            format!("{message}. Index spec: {}", document_text(document)),
        )
    };
    let number = Number::from_bson(value).ok_or_else(|| {
        cannot(&format!(
            "TTL index 'expireAfterSeconds' option must be numeric, but received a type of '{}'",
            type_alias(value)
        ))
    })?;
    if number.is_nan() {
        return Ok(Some(u64::from(i32::MAX.unsigned_abs())));
    }
    if number.is_negative() {
        return Err(cannot(
            "TTL index 'expireAfterSeconds' option cannot be less than 0",
        ));
    }
    let seconds = number
        .trunc(0)
        .and_then(Number::as_i64_exact)
        .and_then(|s| i32::try_from(s).ok());
    match seconds {
        Some(seconds) => Ok(Some(u64::from(seconds.unsigned_abs()))),
        None => Err(cannot(
            "TTL index 'expireAfterSeconds' option must be within an acceptable range, try a lower number",
        )),
    }
}
