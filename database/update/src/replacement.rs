//! Putting another document in a document's place.

use bson::{Bson, Document, Timestamp};
use millrace_expression::EvaluationContext;
use millrace_value::operation::current_timestamp;
use millrace_value::{Collation, Result};

use super::identical::identical_documents;
use super::storage;

/// Puts the present time in the place of zero timestamps at the top of `document`, except in `_id`.
pub(super) fn fill_timestamps(document: &mut Document, evaluation: &EvaluationContext<'_>) {
    for (name, value) in document.iter_mut() {
        if let Bson::Timestamp(Timestamp {
            time: 0,
            increment: 0,
        }) = value
        {
            if name != "_id" {
                *value = Bson::Timestamp(current_timestamp(&**evaluation.operation.environment()));
            }
        }
    }
}

/// The document that takes the place of `before` when a client sends `document`.
pub(super) fn replace(before: &Document, document: Document) -> Result<Document> {
    storage::check_replacement_fields(&document)?;
    with_id_of(before, document)
}

/// `document` with its `_id` in front, taken from `before` if it has none itself.
///
/// # Errors
/// `ImmutableField` if both have one and they are not equal.
pub(super) fn with_id_of(before: &Document, document: Document) -> Result<Document> {
    match (before.get("_id"), document.get("_id")) {
        // An `_id` never changes, not even to one that a collation finds equal.
        (Some(earlier), Some(id)) if !Collation::SIMPLE.compare_bson(earlier, id).is_eq() => {
            storage::check_id(id)?;
            Err(storage::altered_id(id))
        }
        (Some(earlier), None) => Ok(put_first(earlier.clone(), document)),
        _ => Ok(id_first(document)),
    }
}

/// `document` with its `_id`, if it has one, in front.
pub(super) fn id_first(mut document: Document) -> Document {
    if document.keys().next().is_none_or(|first| first == "_id") {
        return document;
    }
    match document.remove("_id") {
        Some(id) => put_first(id, document),
        None => document,
    }
}

fn put_first(id: Bson, document: Document) -> Document {
    let mut out = Document::new();
    out.insert("_id", id);
    out.extend(document);
    out
}

/// Whether a replacement leaves everything as it was.
pub(super) fn is_noop(before: &Document, after: &Document) -> bool {
    identical_documents(before, after)
}
