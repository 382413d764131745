//! The positional operators: `$`, `$[]` and `$[name]`.

use bson::{bson, doc};
use millrace_value::ErrorCode;

use super::support::{Case, check_errors, check_results, matched, parse_error};

#[test]
fn the_positional_operator_names_the_matched_element() {
    check_results(&[
        matched(
            1,
            doc! {"a": [1, 2, 3]},
            doc! {"$set": {"a.$": 9}},
            doc! {"a": [1, 9, 3]},
        ),
        matched(
            0,
            doc! {"a": [{"b": 1}, {"b": 2}]},
            doc! {"$inc": {"a.$.b": 5}, "$set": {"a.0.c": 1, "a.1.c": 2}},
            doc! {"a": [{"b": 6, "c": 1}, {"b": 2, "c": 2}]},
        ),
        matched(
            1,
            doc! {"a": [1, 2]},
            doc! {"$unset": {"a.$": 1}},
            doc! {"a": [1, null]},
        ),
        matched(
            2,
            doc! {"a": [1]},
            doc! {"$set": {"a.$": 2}},
            doc! {"a": [1, null, 2]},
        ),
    ]);
    check_errors(&[(
        doc! {"a": [1]},
        doc! {"$set": {"a.$": 2}},
        ErrorCode::BadValue,
        "The positional operator did not find the match needed from the query.",
    )]);
    let case = matched(
        1,
        doc! {"a": [1, 2]},
        doc! {"$set": {"a.$": 1, "a.1": 2}},
        doc! {},
    );
    let error = case.run().unwrap_err();
    assert_eq!(error.message(), "Update created a conflict at 'a.1'");
}

#[test]
fn array_filters_select_elements() {
    check_results(&[
        Case::new(
            doc! {"a": [1, 2]},
            doc! {"$inc": {"a.$[]": 1}},
            doc! {"a": [2, 3]},
        ),
        Case::new(doc! {"a": []}, doc! {"$inc": {"a.$[]": 1}}, doc! {"a": []}),
        Case::new(
            doc! {"a": [1, 5, 9]},
            doc! {"$set": {"a.$[x]": 0}},
            doc! {"a": [1, 0, 0]},
        )
        .filtered(&[doc! {"x": {"$gt": 3}}]),
        Case::new(
            doc! {"a": [{"b": 1, "c": [1, 2]}, {"b": 2, "c": [2]}]},
            doc! {"$set": {"a.$[i].c.$[j]": 0}},
            doc! {"a": [{"b": 1, "c": [1, 0]}, {"b": 2, "c": [2]}]},
        )
        .filtered(&[doc! {"i.b": 1}, doc! {"j": 2}]),
        Case::new(
            doc! {"a": [0, 1, 3]},
            doc! {"$set": {"a.$[i]": 2}},
            doc! {"a": [2, 1, 2]},
        )
        .filtered(&[doc! {"$or": [{"i": 0}, {"i": 3}]}]),
        Case::new(
            doc! {"a": [{"k": 1}, {"k": 2}]},
            doc! {"$set": {"a.$[].x": 1, "a.$[i].y": 2}},
            doc! {"a": [{"k": 1, "x": 1}, {"k": 2, "x": 1, "y": 2}]},
        )
        .filtered(&[doc! {"i.k": 2}]),
        Case::new(
            doc! {"a": [1, 2]},
            doc! {"$unset": {"a.$[]": 1}},
            doc! {"a": [null, null]},
        ),
    ]);
    check_errors(&[
        (
            doc! {"b": 1},
            doc! {"$set": {"a.$[]": 1}},
            ErrorCode::BadValue,
            "The path 'a' must exist in the document in order to apply array updates.",
        ),
        (
            doc! {"a": 5},
            doc! {"$set": {"a.$[]": 1}},
            ErrorCode::BadValue,
            "Cannot apply array updates to non-array element a: 5",
        ),
        (
            doc! {"a": {}},
            doc! {"$set": {"a.b.$[].c": 1}},
            ErrorCode::BadValue,
            "The path 'a.b' must exist in the document in order to apply array updates.",
        ),
    ]);
    let case = Case::new(
        doc! {"a": [1]},
        doc! {"$set": {"a.$[]": 1, "a.$[i]": 2}},
        doc! {},
    )
    .filtered(&[doc! {"i": 1}]);
    assert_eq!(
        case.run().unwrap_err().message(),
        "Update created a conflict at 'a.0'"
    );
}

#[test]
fn bad_array_filters_are_refused() {
    let update = bson!({"$set": {"a.$[x]": 1}});
    for (filters, code, message) in [
        (
            vec![doc! {}],
            ErrorCode::FailedToParse,
            "Cannot use an expression without a top-level field name in arrayFilters",
        ),
        (
            vec![doc! {"x": 1, "y": 1}],
            ErrorCode::FailedToParse,
            "Error parsing array filter :: caused by :: Expected a single top-level field name, \
             found 'x' and 'y'",
        ),
        (
            vec![doc! {"X.a": 1}],
            ErrorCode::BadValue,
            "Error parsing array filter :: caused by :: The top-level field name must be an \
             alphanumeric string beginning with a lowercase letter, found 'X'",
        ),
        (
            vec![doc! {"x": 1}, doc! {"x.a": 1}],
            ErrorCode::FailedToParse,
            "Found multiple array filters with the same top-level field name x",
        ),
        (
            vec![doc! {"x": 1}, doc! {"y": 1}],
            ErrorCode::FailedToParse,
            "The array filter for identifier 'y' was not used in the update { $set: { a.$[x]: 1 } }",
        ),
    ] {
        let error = parse_error(&update, &filters);
        assert_eq!((error.code(), error.message()), (code, message));
    }
    let error = parse_error(&bson!([]), &[doc! {"x": 1}]);
    assert_eq!(
        error.message(),
        "arrayFilters may not be specified for pipeline-style updates"
    );
}
