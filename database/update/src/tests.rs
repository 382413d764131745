//! Tests of whole updates. Those of single operators are beside the operators.

mod arrays;
mod pipelines;
mod properties;
mod replacements;
pub(super) mod support;
mod upserts;

use bson::{Bson, bson, doc};

use super::*;
use crate::identical::identical_documents;
use support::{Case, apply, check_errors, check_results, parse_error, upsert};

#[test]
fn new_fields_come_in_the_order_of_their_paths() {
    check_results(&[
        Case::new(
            doc! {"_id": 1},
            doc! {"$set": {"b": 1, "a": 2}},
            doc! {"_id": 1, "a": 2, "b": 1},
        ),
        Case::new(
            doc! {"_id": 1},
            doc! {"$set": {"c": 1}, "$inc": {"b": 1}, "$push": {"a": 1}},
            doc! {"_id": 1, "a": [1], "b": 1, "c": 1},
        ),
        Case::new(
            doc! {"_id": 1},
            doc! {"$set": {"a.10": 1, "a.9": 2, "a.x": 3}},
            doc! {"_id": 1, "a": {"9": 2, "10": 1, "x": 3}},
        ),
        // Fields that exist keep their places.
        Case::new(
            doc! {"z": 1, "_id": 1, "a": 1},
            doc! {"$set": {"a": 2, "m": 2, "z": 2}},
            doc! {"z": 2, "_id": 1, "a": 2, "m": 2},
        ),
    ]);
}

#[test]
fn paths_lead_through_documents_and_arrays() {
    check_results(&[
        Case::new(
            doc! {},
            doc! {"$set": {"a.b.c": 1}},
            doc! {"a": {"b": {"c": 1}}},
        ),
        Case::new(
            doc! {"a": [1, 2]},
            doc! {"$set": {"a.1": 5}},
            doc! {"a": [1, 5]},
        ),
        Case::new(
            doc! {"a": [1]},
            doc! {"$set": {"a.3": 5}},
            doc! {"a": [1, null, null, 5]},
        ),
        Case::new(
            doc! {"a": []},
            doc! {"$set": {"a.1.b": 5}},
            doc! {"a": [null, {"b": 5}]},
        ),
        Case::new(
            doc! {"a": [{"b": 1}]},
            doc! {"$inc": {"a.0.b": 1}},
            doc! {"a": [{"b": 2}]},
        ),
        Case::new(
            doc! {"a": {"0": 1}},
            doc! {"$set": {"a.0": 2}},
            doc! {"a": {"0": 2}},
        ),
        Case::new(
            doc! {"a": [0, 0]},
            doc! {"$set": {"a.0": 1, "a.1": 2, "a.2": 3}},
            doc! {"a": [1, 2, 3]},
        ),
    ]);
    check_errors(&[
        (
            doc! {"a": 1},
            doc! {"$set": {"a.b": 1}},
            ErrorCode::PathNotViable,
            "Cannot create field 'b' in element {a: 1}",
        ),
        (
            doc! {"a": {"b": "x"}},
            doc! {"$push": {"a.b.c.d": 1}},
            ErrorCode::PathNotViable,
            "Cannot create field 'c' in element {b: \"x\"}",
        ),
        (
            doc! {"a": [1, 2]},
            doc! {"$set": {"a.b": 1}},
            ErrorCode::PathNotViable,
            "Cannot create field 'b' in element {a: [ 1, 2 ]}",
        ),
        (
            doc! {"a": [{"b": null}]},
            doc! {"$set": {"a.0.b.c": 1}},
            ErrorCode::PathNotViable,
            "Cannot create field 'c' in element {b: null}",
        ),
        (
            doc! {"a": []},
            doc! {"$set": {"a.1500001": 1}},
            ErrorCode::CannotBackfillArray,
            "can't backfill more than 1500000 elements",
        ),
    ]);
}

#[test]
fn identical_results_are_no_modification() {
    for (before, update) in [
        (doc! {"a": 1}, doc! {"$set": {"a": 1}}),
        (doc! {"a": 1}, doc! {"$set": {}}),
        (doc! {"a": {"b": 1}}, doc! {"$set": {"a.b": 1}}),
        (doc! {"a": 1}, doc! {"$unset": {"b": 1, "c.d": 1, "a.b": 1}}),
        (doc! {"a": 1}, doc! {"$inc": {"a": 0}}),
        (doc! {"a": 1}, doc! {"$setOnInsert": {"a.c": 2, "b": 2}}),
        (doc! {"a": [3, 1]}, doc! {"$push": {"a": {"$each": []}}}),
        (
            doc! {"a": [1, 2]},
            doc! {"$push": {"a": {"$each": [], "$sort": 1}}},
        ),
        (doc! {"a": [1]}, doc! {"$addToSet": {"a": 1.0}}),
        (doc! {"_id": 1, "a": 1}, doc! {"_id": 1, "a": 1}),
        (doc! {"_id": 1, "a": 1}, doc! {"a": 1}),
    ] {
        let outcome = apply(&before, &Bson::Document(update.clone())).unwrap();
        assert!(!outcome.modified, "{update}");
        assert!(outcome.change.is_empty(), "{update}");
        assert!(identical_documents(&outcome.document, &before), "{update}");
    }
    let outcome = apply(&doc! {"a": 1}, &bson!({"$set": {"a": 1.0}})).unwrap();
    assert!(outcome.modified);
}

#[test]
fn bad_updates_are_refused_when_parsed() {
    for (update, code, message) in [
        (
            bson!({"$foo": {"a": 1}}),
            ErrorCode::FailedToParse,
            "Unknown modifier: $foo. Expected a valid update modifier or pipeline-style update \
             specified as an array",
        ),
        (
            bson!({"$set": {"a": 1}, "b": 1}),
            ErrorCode::FailedToParse,
            "Unknown modifier: b. Expected a valid update modifier or pipeline-style update \
             specified as an array",
        ),
        (
            bson!({"$set": 5}),
            ErrorCode::FailedToParse,
            "Modifiers operate on fields but we found type int instead. For example: {$mod: \
             {<field>: ...}} not {$set: 5}",
        ),
        (
            bson!({"$set": {"": 1}}),
            ErrorCode::EmptyFieldName,
            "An empty update path is not valid.",
        ),
        (
            bson!({"$set": {"a..b": 1}}),
            ErrorCode::EmptyFieldName,
            "The update path 'a..b' contains an empty field name, which is not allowed.",
        ),
        (
            bson!({"$set": {"a": 1}, "$inc": {"a": 1}}),
            ErrorCode::ConflictingUpdateOperators,
            "Updating the path 'a' would create a conflict at 'a'",
        ),
        (
            bson!({"$set": {"a.b": 1}, "$unset": {"a": 1}}),
            ErrorCode::ConflictingUpdateOperators,
            "Updating the path 'a' would create a conflict at 'a'",
        ),
        (
            bson!({"$rename": {"a": "b"}, "$set": {"a": 1}}),
            ErrorCode::ConflictingUpdateOperators,
            "Updating the path 'a' would create a conflict at 'a'",
        ),
        (
            bson!({"$set": {"a.$[x]": 1}}),
            ErrorCode::BadValue,
            "No array filter found for identifier 'x' in path 'a.$[x]'",
        ),
        (
            bson!(5),
            ErrorCode::FailedToParse,
            "Update argument must be either an object or an array",
        ),
    ] {
        let error = parse_error(&update, &[]);
        assert_eq!((error.code(), error.message()), (code, message), "{update}");
    }
}

#[test]
fn results_that_cannot_be_stored_are_refused() {
    let half = "x".repeat(9 * 1024 * 1024);
    let before = doc! {"a": half.clone()};
    let error = apply(&before, &bson!({"$set": {"b": half.clone()}})).unwrap_err();
    assert_eq!(error.code(), ErrorCode::BSONObjectTooLarge);
    assert_eq!(
        error.message(),
        "Resulting document after update is larger than 16777216"
    );
    let error = upsert(&before, &bson!({"$set": {"b": half}})).unwrap_err();
    assert_eq!(
        error.message(),
        "Document to upsert is larger than 16777216"
    );

    // Nothing is built that could not be stored.
    let text = "x".repeat(1024 * 1024);
    let before = doc! {"a": vec![1; 1000]};
    let error = apply(&before, &bson!({"$set": {"a.$[]": text}})).unwrap_err();
    assert_eq!(error.code(), ErrorCode::BSONObjectTooLarge);
    let before: Document = (0..1000).map(|n| (n.to_string(), bson!([]))).collect();
    let fields: Document = (0..1000)
        .map(|n| (format!("{n}.1000000"), bson!(1)))
        .collect();
    let error = apply(&before, &bson!({"$set": fields})).unwrap_err();
    assert_eq!(error.code(), ErrorCode::BSONObjectTooLarge);

    let path = ["a"; 181].join(".");
    let mut update = doc! {};
    update.insert(path, 1);
    let error = apply(&doc! {}, &bson!({"$set": update})).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Overflow);

    let error = upsert(&doc! {}, &bson!({"$set": {"_id": [1]}})).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidIdField);
    assert_eq!(error.message(), "The '_id' value cannot be of type array");
}
