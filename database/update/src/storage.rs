//! What a document must obey to be stored: size, nesting, the types of `_id`, names with a dollar.

use std::cell::Cell;

use bson::{Bson, Document, RawBson, RawDocumentBuf};
use millrace_value::{Error, ErrorCode, Result, type_alias};

use super::text;

/// The largest document a client may store, in bytes.
pub(super) const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How deep a stored document may nest. It is less than what messages may nest, so that a stored
/// document still fits into a command and its reply.
const NESTING_STORED_MAX: usize = 180;

/// Checks that the result of an update may be stored.
pub(super) fn check(document: &Document, is_insert: bool) -> Result<()> {
    if document_size(document, 1)? > DOCUMENT_BYTES_MAX {
        return Err(too_large(is_insert));
    }
    document.get("_id").map_or(Ok(()), check_id)
}

fn too_large(is_insert: bool) -> Error {
    let subject = if is_insert {
        "Document to upsert"
    } else {
        "Resulting document after update"
    };
    let message = format!("{subject} is larger than {DOCUMENT_BYTES_MAX}");
    Error::new(ErrorCode::BSONObjectTooLarge, message)
}

/// The room that the values made by one update may take.
///
/// A short update can multiply: `$[]` puts a value into every element of an array, and a far position
/// puts nulls before itself. All that an update makes is part of its result, so once it exceeds what a
/// document may hold, the update stops instead of building a result that cannot be stored.
#[derive(Debug)]
pub(super) struct Room {
    used: Cell<usize>,
    is_insert: bool,
}

impl Room {
    /// The room for one document.
    pub(super) const fn new(is_insert: bool) -> Self {
        Self {
            used: Cell::new(0),
            is_insert,
        }
    }

    /// Takes room for a value that the update made.
    pub(super) fn take(&self, value: &Bson) -> Result<()> {
        self.take_bytes(value_size(value, 1)?)
    }

    /// Takes room for `count` nulls in an array.
    pub(super) fn take_nulls(&self, count: usize) -> Result<()> {
        // A type, a name of at least one digit and its end.
        self.take_bytes(count.saturating_mul(3))
    }

    fn take_bytes(&self, bytes: usize) -> Result<()> {
        let used = self.used.get().saturating_add(bytes);
        self.used.set(used);
        if used > DOCUMENT_BYTES_MAX {
            Err(too_large(self.is_insert))
        } else {
            Ok(())
        }
    }
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
        Bson::DbPointer(pointer) => {
            // Its parts are private to the BSON library. Around the value lie a length, a type, the
            // end of an empty name and the end of the document.
            let mut holder = RawDocumentBuf::new();
            holder.append(bson::raw::cstr!(""), RawBson::DbPointer(pointer.clone()));
            holder.as_bytes().len() - 7
        }
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
        check(&document, false).unwrap();
        let error = check(&doc! {"a": document}, false).unwrap_err();
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
