//! What a document must be before it is stored.

use bson::raw::RawBsonRef;
use bson::spec::ElementType;
use bson::{RawDocument, RawDocumentBuf};
use millrace_value::operation::{current_timestamp, new_object_id};
use millrace_value::{DocumentWriter, Elements, Environment, Error, ErrorCode, Result};

/// The largest document that is stored, in bytes.
pub(crate) const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How deep documents may be nested.
pub(crate) const DEPTH_MAX: usize = 180;

/// Checks that every element of a document is well-formed, nested no deeper than allowed.
///
/// # Errors
/// `InvalidBSON`, `Overflow` (nesting).
pub fn check_document(document: &RawDocument) -> Result<()> {
    check_nested(document, 1)
}

fn check_nested(document: &RawDocument, depth: usize) -> Result<()> {
    if depth > DEPTH_MAX {
        return Err(Error::new(
            ErrorCode::Overflow,
            format!("cannot store a document nested deeper than {DEPTH_MAX} levels"),
        ));
    }
    for element in document {
        match element?.1 {
            RawBsonRef::Document(nested) => check_nested(nested, depth + 1)?,
            RawBsonRef::Array(nested) => {
                check_nested(RawDocument::from_bytes(nested.as_bytes())?, depth + 1)?;
            }
            RawBsonRef::JavaScriptCodeWithScope(code) => check_nested(code.scope, depth + 1)?,
            _ => {}
        }
    }
    Ok(())
}

/// Checks that `id` may be an `_id`.
///
/// # Errors
/// `InvalidIdField` for arrays, regular expressions and undefined; `DollarPrefixedFieldName` for a
/// document with fields that begin with `$`.
pub fn check_id(id: RawBsonRef<'_>) -> Result<()> {
    let refused = match id {
        RawBsonRef::Array(_) => "array",
        RawBsonRef::RegularExpression(_) => "regex",
        RawBsonRef::Undefined => "undefined",
        RawBsonRef::Document(document) => {
            for element in document {
                let (name, _) = element?;
                if name.as_str().starts_with('$') {
                    return Err(Error::new(
                        ErrorCode::DollarPrefixedFieldName,
                        format!(
                            "_id fields may not contain '$'-prefixed fields: {name} is not valid for storage."
                        ),
                    ));
                }
            }
            return Ok(());
        }
        _ => return Ok(()),
    };
    Err(Error::new(
        ErrorCode::InvalidIdField,
        format!("The '_id' value cannot be of type {refused}"),
    ))
}

/// Checks a document that a client wants stored and puts its `_id` first, generating one if there is
/// none. Returns none when the document can be stored as it is.
///
/// # Errors
/// As [`check_document`] and [`check_id`]; `BSONObjectTooLarge`.
pub fn prepare_document(
    document: &RawDocument,
    environment: &dyn Environment,
) -> Result<Option<RawDocumentBuf>> {
    check_document(document)?;
    check_size(document.as_bytes().len())?;
    let first = document.iter().next().transpose()?;
    if let Some((name, id)) = first {
        if name.as_str() == "_id" {
            check_id(id)?;
            return Ok(None);
        }
    }
    let mut out = Vec::with_capacity(document.as_bytes().len() + 24);
    let mut writer = DocumentWriter::new(&mut out);
    match document.get("_id")? {
        Some(id) => {
            check_id(id)?;
            writer.raw("_id", id)?;
            for element in document {
                let (name, value) = element?;
                if name.as_str() != "_id" {
                    writer.raw(name.as_str(), value)?;
                }
            }
        }
        None => {
            writer.value("_id", &new_object_id(environment).into())?;
            writer.fields_of(document);
        }
    }
    writer.finish();
    check_size(out.len())?;
    Ok(Some(RawDocumentBuf::from_bytes(out)?))
}

/// Puts the present time in the place of zero timestamps at the top of `document`, except in `_id`.
/// Returns none when there is no such timestamp.
///
/// # Errors
/// `InvalidBSON`.
pub fn fill_zero_timestamps(
    document: &RawDocument,
    environment: &dyn Environment,
) -> Result<Option<RawDocumentBuf>> {
    let mut has_one = false;
    for element in Elements::new(document) {
        let element = element?;
        has_one |= element.kind == ElementType::Timestamp
            && element.name != b"_id"
            && element.value == [0; 8];
    }
    if !has_one {
        return Ok(None);
    }
    let zero = bson::Timestamp {
        time: 0,
        increment: 0,
    };
    let mut out = Vec::with_capacity(document.as_bytes().len());
    let mut writer = DocumentWriter::new(&mut out);
    for element in document {
        let (name, value) = element?;
        if value == RawBsonRef::Timestamp(zero) && name.as_str() != "_id" {
            writer.value(name.as_str(), &current_timestamp(environment).into())?;
        } else {
            writer.raw(name.as_str(), value)?;
        }
    }
    writer.finish();
    Ok(Some(RawDocumentBuf::from_bytes(out)?))
}

/// Checks a document's size.
///
/// # Errors
/// `BSONObjectTooLarge`.
pub(crate) fn check_size(bytes: usize) -> Result<()> {
    if bytes > DOCUMENT_BYTES_MAX {
        return Err(Error::new(
            ErrorCode::BSONObjectTooLarge,
            format!(
                "object to insert too large. size in bytes: {bytes}, max size: {DOCUMENT_BYTES_MAX}"
            ),
        ));
    }
    Ok(())
}
