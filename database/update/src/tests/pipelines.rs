//! Updates given as pipelines.

use bson::{bson, doc};
use millrace_value::ErrorCode;

use super::support::{apply, parse_error};
use crate::identical::identical_documents;

#[test]
fn pipelines_transform_the_document() {
    for (stages, after) in [
        (
            bson!([{"$set": {"c": {"$add": ["$a", "$b"]}}}]),
            doc! {"_id": 1, "a": 1, "b": 2, "c": 3},
        ),
        (
            bson!([{"$addFields": {"c": "$a"}}, {"$unset": ["a", "b"]}]),
            doc! {"_id": 1, "c": 1},
        ),
        (bson!([{"$unset": "a"}]), doc! {"_id": 1, "b": 2}),
        (bson!([{"$project": {"b": 0}}]), doc! {"_id": 1, "a": 1}),
        (
            bson!([{"$replaceWith": {"x": "$b"}}]),
            doc! {"_id": 1, "x": 2},
        ),
        (
            bson!([{"$replaceRoot": {"newRoot": {"x": "$b", "_id": 1}}}]),
            doc! {"_id": 1, "x": 2},
        ),
        (bson!([]), doc! {"_id": 1, "a": 1, "b": 2}),
    ] {
        let before = doc! {"_id": 1, "a": 1, "b": 2};
        let outcome = apply(&before, &stages).unwrap();
        assert!(
            identical_documents(&outcome.document, &after),
            "{stages}: {}",
            outcome.document
        );
        assert!(
            identical_documents(&outcome.change.apply(&before), &after),
            "{stages}"
        );
        assert_eq!(
            outcome.modified,
            !identical_documents(&before, &after),
            "{stages}"
        );
    }
}

#[test]
fn bad_pipelines_are_refused() {
    for (stages, code, message) in [
        (
            bson!([{"$match": {}}]),
            ErrorCode::InvalidOptions.number(),
            "$match is not allowed to be used within an update",
        ),
        (
            bson!([{"$x": {}}]),
            40_324,
            "Unrecognized pipeline stage name: '$x'",
        ),
        (
            bson!([{"$set": {}, "$unset": "a"}]),
            40_323,
            "A pipeline stage specification object must contain exactly one field.",
        ),
        (
            bson!([5]),
            ErrorCode::TypeMismatch.number(),
            "Each element of the 'pipeline' array must be an object",
        ),
        (
            bson!([{"$unset": 5}]),
            31_002,
            "$unset specification must be a string or an array",
        ),
    ] {
        let error = parse_error(&stages, &[]);
        assert_eq!((error.code().number(), error.message()), (code, message));
    }
    let error = apply(&doc! {"_id": 1}, &bson!([{"$set": {"_id": 2}}])).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ImmutableField);
    let error = apply(&doc! {"_id": 1}, &bson!([{"$replaceWith": "$a"}])).unwrap_err();
    assert_eq!(error.code().number(), 40_228);
}
