//! What a document must obey to be stored: size, nesting, the types of `_id`, names with a dollar.

use bson::{Bson, Document};

use super::text;
use crate::value::type_alias;
use crate::{Error, ErrorCode, Result};

/// The largest document a client may store, in bytes.
pub(super) const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How deep a stored document may nest. It is less than what messages may nest, so that a stored
/// document still fits into a command and its reply.
const NESTING_STORED_MAX: usize = 180;

/// Checks that the result of an update may be stored.
///
/// `subject` begins the message about a result that is too large.
pub(super) fn check(document: &Document, subject: &str) -> Result<()> {
    let size = document_size(document, 1)?;
    if size > DOCUMENT_BYTES_MAX {
        return Err(Error::new(
            ErrorCode::BSONObjectTooLarge,
            format!("{subject} is larger than {DOCUMENT_BYTES_MAX}"),
        ));
    }
    document.get("_id").map_or(Ok(()), check_id)
}

/// Checks the type of an `_id` and the field names inside it.
pub(super) fn check_id(id: &Bson) -> Result<()> {
    match id {
        Bson::Array(_) | Bson::RegularExpression(_) | Bson::Undefined => Err(Error::new(
            ErrorCode::InvalidIdField,
            format!("The '_id' value cannot be of type {}", type_alias(id)),
        )),
        Bson::Document(fields) => {
            check_dollar_fields(fields, "is not valid for storage.").map_err(|error| {
                let message = format!(
                    "_id fields may not contain '$'-prefixed fields: {}",
                    error.message()
                );
                Error::new(error.code(), message)
            })
        }
        _ => Ok(()),
    }
}

/// Checks the names of the fields that a replacement document brings.
pub(super) fn check_replacement_fields(document: &Document) -> Result<()> {
    check_dollar_fields(
        document,
        "is not allowed in the context of an update's replacement document. Consider using an \
         aggregation pipeline with $replaceWith.",
    )
}

/// Checks that fields of `document` itself (not of what it holds) begin with a dollar only where they
/// form a DBRef: `$ref`, `$id` and perhaps `$db`, in this order.
fn check_dollar_fields(document: &Document, problem: &str) -> Result<()> {
    if document.keys().all(|name| !name.starts_with('$')) {
        return Ok(());
    }
    let fields: Vec<(&String, &Bson)> = document.iter().collect();
    for (index, (name, value)) in fields.iter().enumerate() {
        if !name.starts_with('$') {
            continue;
        }
        let before = index.checked_sub(1).map(|index| fields[index].0.as_str());
        let after = fields.get(index + 1).map(|field| field.0.as_str());
        check_reference_field(name, value, before, after, problem)?;
    }
    Ok(())
}

fn check_reference_field(
    name: &str,
    value: &Bson,
    before: Option<&str>,
    after: Option<&str>,
    problem: &str,
) -> Result<()> {
    let invalid = |message: String| Err(Error::new(ErrorCode::InvalidDBRef, message));
    let is_string = matches!(value, Bson::String(_));
    match name {
        "$db" if !is_string => invalid(format!(
            "The DBRef $db field must be a String, not a {}",
            type_alias(value)
        )),
        "$db" if before != Some("$id") => {
            invalid("Found $db field without a $id before it, which is invalid.".to_owned())
        }
        "$id" if before != Some("$ref") => {
            invalid("Found $id field without a $ref before it, which is invalid.".to_owned())
        }
        "$ref" if !is_string => invalid(format!(
            "The DBRef $ref field must be a String, not a {}",
            type_alias(value)
        )),
        "$ref" if after != Some("$id") => {
            invalid("The DBRef $ref field must be followed by a $id field".to_owned())
        }
        "$db" | "$id" | "$ref" => Ok(()),
        _ => Err(Error::new(
            ErrorCode::DollarPrefixedFieldName,
            format!("The dollar ($) prefixed field '{name}' in '{name}' {problem}"),
        )),
    }
}

/// The bytes of `document` as BSON; `depth` is how deep it lies itself, counted from 1.
fn document_size(document: &Document, depth: usize) -> Result<usize> {
    check_depth(depth)?;
    let mut size = 5;
    for (name, value) in document {
        size += 2 + name.len() + value_size(value, depth)?;
    }
    Ok(size)
}

fn array_size(array: &[Bson], depth: usize) -> Result<usize> {
    check_depth(depth)?;
    let mut size = 5;
    for (index, value) in array.iter().enumerate() {
        let digits = index.checked_ilog10().map_or(1, |log| 1 + log as usize);
        size += 2 + digits + value_size(value, depth)?;
    }
    Ok(size)
}

fn check_depth(depth: usize) -> Result<()> {
    if depth > NESTING_STORED_MAX {
        return Err(Error::new(
            ErrorCode::Overflow,
            format!("Document exceeds maximum nesting depth of {NESTING_STORED_MAX}"),
        ));
    }
    Ok(())
}

/// The bytes of a value inside a document that lies at `depth`.
fn value_size(value: &Bson, depth: usize) -> Result<usize> {
    Ok(match value {
        Bson::Null | Bson::Undefined | Bson::MinKey | Bson::MaxKey => 0,
        Bson::Boolean(_) => 1,
        Bson::Int32(_) => 4,
        Bson::Int64(_) | Bson::Double(_) | Bson::DateTime(_) | Bson::Timestamp(_) => 8,
        Bson::ObjectId(_) => 12,
        Bson::Decimal128(_) => 16,
        Bson::String(text) | Bson::Symbol(text) | Bson::JavaScriptCode(text) => 5 + text.len(),
        Bson::Binary(binary) => 5 + binary.bytes.len(),
        Bson::RegularExpression(regex) => {
            2 + regex.pattern.as_str().len() + regex.options.as_str().len()
        }
        Bson::JavaScriptCodeWithScope(code) => {
            9 + code.code.len() + document_size(&code.scope, depth + 1)?
        }
        // Its parts are private to the BSON library; the namespace is short.
        Bson::DbPointer(_) => 17,
        Bson::Document(document) => document_size(document, depth + 1)?,
        Bson::Array(array) => array_size(array, depth + 1)?,
    })
}

/// The message about an `_id` that an update would change.
pub(super) fn altered_id(id: &Bson) -> Error {
    Error::new(
        ErrorCode::ImmutableField,
        format!(
            "After applying the update, the (immutable) field '_id' was found to have been altered \
             to {}",
            text::element("_id", id)
        ),
    )
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn sizes_are_those_of_the_encoded_document() {
        let long: Vec<i32> = (0..1200).collect();
        let document = doc! {
            "_id": bson::oid::ObjectId::from_bytes([7; 12]),
            "a": [1, 2_i64, 3.0, "text", {"b": null, "c": [true, []]}],
            "regex": bson::Regex { pattern: bson::raw::cstr!("^a").into(), options: bson::raw::cstr!("i").into() },
            "binary": bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![1; 9] },
            "code": bson::JavaScriptCodeWithScope { code: "f()".to_owned(), scope: doc! {"x": 1} },
            "date": bson::DateTime::from_millis(5),
            "long": long,
        };
        let encoded = document.to_vec().unwrap();
        assert_eq!(document_size(&document, 1).unwrap(), encoded.len());
    }

    #[test]
    fn deep_documents_are_refused() {
        let mut document = doc! {};
        for _ in 1..NESTING_STORED_MAX {
            document = doc! {"a": document};
        }
        check(&document, "It").unwrap();
        let error = check(&doc! {"a": document}, "It").unwrap_err();
        assert_eq!(error.code(), ErrorCode::Overflow);
        assert_eq!(
            error.message(),
            "Document exceeds maximum nesting depth of 180"
        );
    }

    #[test]
    fn references_may_begin_with_a_dollar() {
        check_replacement_fields(&doc! {"$ref": "c", "$id": 1, "$db": "d", "x": 1}).unwrap();
        for (document, code) in [
            (doc! {"$ref": "c"}, ErrorCode::InvalidDBRef),
            (doc! {"$id": 1}, ErrorCode::InvalidDBRef),
            (doc! {"$ref": 1, "$id": 1}, ErrorCode::InvalidDBRef),
            (doc! {"a": 1, "$b": 1}, ErrorCode::DollarPrefixedFieldName),
        ] {
            assert_eq!(
                check_replacement_fields(&document).unwrap_err().code(),
                code
            );
        }
    }
}
