//! One table for each operator: document, update, result; and one of errors.

use bson::{Bson, DateTime, bson, doc};
use millrace_value::ErrorCode;

use crate::tests::support::{
    Case, NOW_MS, apply, check_errors, check_results, now_timestamp, parse_error,
};

fn check_parse_errors(cases: &[(Bson, ErrorCode, &str)]) {
    for (update, code, message) in cases {
        let error = parse_error(update, &[]);
        assert_eq!(
            (error.code(), error.message()),
            (*code, *message),
            "{update}"
        );
    }
}

#[test]
fn set_and_unset() {
    check_results(&[
        Case::new(doc! {"a": 1}, doc! {"$set": {"a": "x"}}, doc! {"a": "x"}),
        Case::new(
            doc! {"a": 1},
            doc! {"$set": {"a": {"b": 1}}},
            doc! {"a": {"b": 1}},
        ),
        Case::new(doc! {}, doc! {"$set": {"a": {}}}, doc! {"a": {}}),
        Case::new(
            doc! {"a": 1, "b": 2},
            doc! {"$unset": {"a": ""}},
            doc! {"b": 2},
        ),
        Case::new(
            doc! {"a": {"b": 1, "c": 2}},
            doc! {"$unset": {"a.b": ""}},
            doc! {"a": {"c": 2}},
        ),
        Case::new(
            doc! {"a": {"b": 1}},
            doc! {"$unset": {"a.b": ""}},
            doc! {"a": {}},
        ),
        Case::new(
            doc! {"a": [1, 2]},
            doc! {"$unset": {"a.0": ""}},
            doc! {"a": [null, 2]},
        ),
        Case::new(
            doc! {"a": [1]},
            doc! {"$unset": {"a.5": "", "a.x": ""}},
            doc! {"a": [1]},
        ),
    ]);
}

#[test]
fn inc_and_mul() {
    let max = i64::MAX;
    check_results(&[
        Case::new(doc! {"a": 1}, doc! {"$inc": {"a": 2}}, doc! {"a": 3}),
        Case::new(doc! {}, doc! {"$inc": {"a": 2_i64}}, doc! {"a": 2_i64}),
        Case::new(
            doc! {"a": i32::MAX},
            doc! {"$inc": {"a": 1}},
            doc! {"a": 2_147_483_648_i64},
        ),
        Case::new(
            doc! {"a": 1_i64},
            doc! {"$inc": {"a": 1}},
            doc! {"a": 2_i64},
        ),
        Case::new(doc! {"a": 1}, doc! {"$inc": {"a": 0.5}}, doc! {"a": 1.5}),
        Case::new(doc! {"a": 1}, doc! {"$inc": {"a": 0.0}}, doc! {"a": 1.0}),
        Case::new(doc! {"a": 3}, doc! {"$mul": {"a": 2}}, doc! {"a": 6}),
        Case::new(doc! {}, doc! {"$mul": {"a": 2}}, doc! {"a": 0}),
        Case::new(doc! {}, doc! {"$mul": {"a": 2_i64}}, doc! {"a": 0_i64}),
        Case::new(doc! {}, doc! {"$mul": {"a": 2.5}}, doc! {"a": 0.0}),
        Case::new(
            doc! {"a": i32::MAX},
            doc! {"$mul": {"a": 2}},
            doc! {"a": 4_294_967_294_i64},
        ),
    ]);
    check_errors(&[
        (
            doc! {"_id": 7, "a": {"b": "x"}},
            doc! {"$inc": {"a.b": 1}},
            ErrorCode::TypeMismatch,
            "Cannot apply $inc to a value of non-numeric type. {_id: 7} has the field 'b' of \
             non-numeric type string",
        ),
        (
            doc! {"_id": 7, "a": null},
            doc! {"$mul": {"a": 1}},
            ErrorCode::TypeMismatch,
            "Cannot apply $mul to a value of non-numeric type. {_id: 7} has the field 'a' of \
             non-numeric type null",
        ),
        (
            doc! {"_id": 7, "a": max},
            doc! {"$inc": {"a": 1}},
            ErrorCode::BadValue,
            "Failed to apply $inc operations to current value ((NumberLong)9223372036854775807) \
             for document {_id: 7}",
        ),
    ]);
    check_parse_errors(&[
        (
            bson!({"$inc": {"a": "x"}}),
            ErrorCode::TypeMismatch,
            "Cannot increment with non-numeric argument: {a: \"x\"}",
        ),
        (
            bson!({"$mul": {"a": null}}),
            ErrorCode::TypeMismatch,
            "Cannot multiply with non-numeric argument: {a: null}",
        ),
    ]);
}

#[test]
fn min_and_max() {
    check_results(&[
        Case::new(doc! {"a": 5}, doc! {"$min": {"a": 3}}, doc! {"a": 3}),
        Case::new(doc! {"a": 5}, doc! {"$min": {"a": 7}}, doc! {"a": 5}),
        Case::new(doc! {"a": 5}, doc! {"$max": {"a": 7}}, doc! {"a": 7}),
        Case::new(doc! {"a": 5}, doc! {"$max": {"a": 5.0}}, doc! {"a": 5}),
        Case::new(doc! {}, doc! {"$max": {"a.b": 5}}, doc! {"a": {"b": 5}}),
        // Types have an order too: null, numbers, strings.
        Case::new(doc! {"a": 5}, doc! {"$max": {"a": "x"}}, doc! {"a": "x"}),
        Case::new(doc! {"a": 5}, doc! {"$min": {"a": null}}, doc! {"a": null}),
    ]);
}

#[test]
fn bit() {
    check_results(&[
        Case::new(
            doc! {"a": 13},
            doc! {"$bit": {"a": {"and": 10}}},
            doc! {"a": 8},
        ),
        Case::new(
            doc! {"a": 3},
            doc! {"$bit": {"a": {"or": 5}}},
            doc! {"a": 7},
        ),
        Case::new(
            doc! {"a": 1},
            doc! {"$bit": {"a": {"xor": 5}}},
            doc! {"a": 4},
        ),
        Case::new(
            doc! {"a": 12},
            doc! {"$bit": {"a": {"and": 4, "or": 1}}},
            doc! {"a": 5},
        ),
        Case::new(
            doc! {"a": -1},
            doc! {"$bit": {"a": {"and": 7_i64}}},
            doc! {"a": 7_i64},
        ),
        Case::new(doc! {}, doc! {"$bit": {"a": {"or": 6}}}, doc! {"a": 6}),
    ]);
    check_errors(&[(
        doc! {"_id": 1, "a": 1.0},
        doc! {"$bit": {"a": {"or": 6}}},
        ErrorCode::BadValue,
        "Cannot apply $bit to a value of non-integral type.{_id: 1} has the field a of non-integer \
         type double",
    )]);
    check_parse_errors(&[
        (
            bson!({"$bit": {"a": 1}}),
            ErrorCode::BadValue,
            "The $bit modifier is not compatible with a int. You must pass in an embedded document: \
             {$bit: {field: {and/or/xor: #}}",
        ),
        (
            bson!({"$bit": {"a": {}}}),
            ErrorCode::BadValue,
            "You must pass in at least one bitwise operation. The format is: {$bit: {field: \
             {and/or/xor: #}}",
        ),
        (
            bson!({"$bit": {"a": {"nand": 1}}}),
            ErrorCode::BadValue,
            "The $bit modifier only supports 'and', 'or', and 'xor', not 'nand' which is an unknown \
             operator: {nand: 1}",
        ),
        (
            bson!({"$bit": {"a": {"and": 1.0}}}),
            ErrorCode::BadValue,
            "The $bit modifier field must be an Integer(32/64 bit); a 'double' is not supported \
             here: {and: 1.0}",
        ),
    ]);
}

#[test]
fn current_date() {
    let date = DateTime::from_millis(NOW_MS);
    check_results(&[
        Case::new(
            doc! {"a": 1},
            doc! {"$currentDate": {"a": true}},
            doc! {"a": date},
        ),
        Case::new(
            doc! {},
            doc! {"$currentDate": {"a.b": {"$type": "date"}}},
            doc! {"a": {"b": date}},
        ),
        Case::new(
            doc! {},
            doc! {"$currentDate": {"a": {"$type": "timestamp"}}},
            doc! {"a": now_timestamp()},
        ),
    ]);
    check_parse_errors(&[
        (
            bson!({"$currentDate": {"a": 1}}),
            ErrorCode::BadValue,
            "int is not valid type for $currentDate. Please use a boolean ('true') or a $type \
             expression ({$type: 'timestamp/date'}).",
        ),
        (
            bson!({"$currentDate": {"a": {"type": "date"}}}),
            ErrorCode::BadValue,
            "Unrecognized $currentDate option: type",
        ),
        (
            bson!({"$currentDate": {"a": {"$type": "time"}}}),
            ErrorCode::BadValue,
            "The '$type' string field is required to be 'date' or 'timestamp': {$currentDate: \
             {field : {$type: 'date'}}}",
        ),
    ]);
}

#[test]
fn rename() {
    check_results(&[
        Case::new(
            doc! {"a": 1, "b": 2},
            doc! {"$rename": {"a": "c"}},
            doc! {"b": 2, "c": 1},
        ),
        Case::new(
            doc! {"a": 1, "b": 2},
            doc! {"$rename": {"a": "b"}},
            doc! {"b": 1},
        ),
        Case::new(
            doc! {"a": {"b": 1}},
            doc! {"$rename": {"a.b": "c.d"}},
            doc! {"a": {}, "c": {"d": 1}},
        ),
        Case::new(
            doc! {"a": {"b": 1}},
            doc! {"$rename": {"a.b": "a.c"}},
            doc! {"a": {"c": 1}},
        ),
        Case::new(
            doc! {"a": 1},
            doc! {"$rename": {"x": "a", "y.z": "b"}},
            doc! {"a": 1},
        ),
        Case::new(
            doc! {"a": [1]},
            doc! {"$rename": {"a": "b"}},
            doc! {"b": [1]},
        ),
        Case::new(
            doc! {"a": 1, "b": 2},
            doc! {"$rename": {"a": "x", "b": "y"}, "$set": {"z": 3}},
            doc! {"x": 1, "y": 2, "z": 3},
        ),
        // A source that does not exist does not mind what its target leads through.
        Case::new(doc! {"b": 1}, doc! {"$rename": {"a": "b.c"}}, doc! {"b": 1}),
    ]);
}

#[test]
fn rename_refuses_arrays_and_blocked_paths() {
    check_errors(&[
        (
            doc! {"_id": 1, "a": [{"b": 1}]},
            doc! {"$rename": {"a.0.b": "c"}},
            ErrorCode::BadValue,
            "The source field cannot be an array element, 'a.0.b' in doc with _id: 1 has an array \
             field called 'a'",
        ),
        (
            doc! {"_id": 1, "a": [1], "b": 2},
            doc! {"$rename": {"b": "a.0"}},
            ErrorCode::BadValue,
            "The destination field cannot be an array element, 'a.0' in doc with _id: 1 has an \
             array field called 'a'",
        ),
        (
            doc! {"a": 1},
            doc! {"$rename": {"a.b": "c"}},
            ErrorCode::PathNotViable,
            "cannot use the part (a of a.b) to traverse the element ({a: 1})",
        ),
        (
            doc! {"a": 1, "b": 2},
            doc! {"$rename": {"b": "a.c"}},
            ErrorCode::PathNotViable,
            "Cannot create field 'c' in element {a: 1}",
        ),
    ]);
}

#[test]
fn rename_refuses_paths_that_meet() {
    check_parse_errors(&[
        (
            bson!({"$rename": {"a": 1}}),
            ErrorCode::BadValue,
            "The 'to' field for $rename must be a string: a: 1",
        ),
        (
            bson!({"$rename": {"a": "a"}}),
            ErrorCode::BadValue,
            "The source and target field for $rename must differ: a: \"a\"",
        ),
        (
            bson!({"$rename": {"a": "a.b"}}),
            ErrorCode::BadValue,
            "The source and target field for $rename must not be on the same path: a: \"a.b\"",
        ),
        (
            bson!({"$rename": {"a.$": "b"}}),
            ErrorCode::BadValue,
            "The source field for $rename may not be dynamic: a.$",
        ),
        (
            bson!({"$rename": {"a": "b.$[]"}}),
            ErrorCode::BadValue,
            "The destination field for $rename may not be dynamic: b.$[]",
        ),
    ]);
}

#[test]
fn push() {
    let push = |clauses: Bson| doc! {"$push": {"a": clauses}};
    check_results(&[
        Case::new(doc! {"a": [1]}, push(bson!(2)), doc! {"a": [1, 2]}),
        Case::new(doc! {}, push(bson!(2)), doc! {"a": [2]}),
        Case::new(
            doc! {"a": [1]},
            push(bson!([2, 3])),
            doc! {"a": [1, [2, 3]]},
        ),
        Case::new(
            doc! {"a": []},
            push(bson!({"$each": [2, 3]})),
            doc! {"a": [2, 3]},
        ),
        Case::new(doc! {}, push(bson!({"$each": []})), doc! {"a": []}),
        Case::new(
            doc! {"a": [1, 2]},
            push(bson!({"$each": [8, 9], "$position": 0})),
            doc! {"a": [8, 9, 1, 2]},
        ),
        Case::new(
            doc! {"a": [1, 2]},
            push(bson!({"$each": [8, 9], "$position": -1})),
            doc! {"a": [1, 8, 9, 2]},
        ),
        Case::new(
            doc! {"a": [1, 2]},
            push(bson!({"$each": [9], "$position": -7})),
            doc! {"a": [9, 1, 2]},
        ),
        Case::new(
            doc! {"a": [1, 2]},
            push(bson!({"$each": [9], "$position": 100})),
            doc! {"a": [1, 2, 9]},
        ),
        Case::new(
            doc! {"a": [1, 2]},
            push(bson!({"$each": [3], "$slice": 2})),
            doc! {"a": [1, 2]},
        ),
        Case::new(
            doc! {"a": [1, 2]},
            push(bson!({"$each": [3], "$slice": -2})),
            doc! {"a": [2, 3]},
        ),
        Case::new(
            doc! {"a": [1]},
            push(bson!({"$each": [3], "$slice": 0})),
            doc! {"a": []},
        ),
        Case::new(
            doc! {"a": [1]},
            push(bson!({"$each": [3], "$slice": i64::MIN})),
            doc! {"a": [1, 3]},
        ),
        Case::new(
            doc! {"a": [3, "x", 1]},
            push(bson!({"$each": [2, null], "$sort": 1})),
            doc! {"a": [null, 1, 2, 3, "x"]},
        ),
        Case::new(
            doc! {"a": [{"q": 1, "n": 1}, {"q": 3}, {"q": 1, "n": 2}, 5]},
            push(bson!({"$each": [{"q": 2}], "$sort": {"q": -1, "n": -1}, "$slice": 4})),
            doc! {"a": [{"q": 3}, {"q": 2}, {"q": 1, "n": 2}, {"q": 1, "n": 1}]},
        ),
    ]);
}

#[test]
fn push_refuses() {
    check_errors(&[(
        doc! {"_id": 1, "a": {"b": 5}},
        doc! {"$push": {"a.b": 1}},
        ErrorCode::BadValue,
        "The field 'a.b' must be an array but is of type int in document {_id: 1}",
    )]);
    let bad = |clauses: Bson, message: &'static str| {
        (
            bson!({"$push": {"a": clauses}}),
            ErrorCode::BadValue,
            message,
        )
    };
    check_parse_errors(&[
        bad(
            bson!({"$each": 1}),
            "The argument to $each in $push must be an array but it was of type: int",
        ),
        bad(
            bson!({"$each": [], "$x": 1}),
            "Unrecognized clause in $push: $x",
        ),
        bad(
            bson!({"$each": [], "$position": 1.5}),
            "The value for $position must be an integer value, not of type: double",
        ),
        bad(
            bson!({"$each": [], "$slice": "x"}),
            "The value for $slice must be an integer value but was given type: string",
        ),
        bad(
            bson!({"$each": [], "$sort": 2}),
            "The $sort element value must be either 1 or -1",
        ),
        bad(
            bson!({"$each": [], "$sort": {}}),
            "The $sort pattern is empty when it should be a set of fields.",
        ),
        bad(
            bson!({"$each": [], "$sort": {"a..b": 1}}),
            "The $sort field is a dotted field but has an empty part: a..b",
        ),
        bad(
            bson!({"$each": [], "$sort": "a"}),
            "The $sort is invalid: use 1/-1 to sort the whole element, or {field:1/-1} to sort \
             embedded fields",
        ),
    ]);
}

#[test]
fn add_to_set() {
    let many: Vec<i32> = (0..10).collect();
    check_results(&[
        Case::new(
            doc! {"a": [1]},
            doc! {"$addToSet": {"a": 2}},
            doc! {"a": [1, 2]},
        ),
        Case::new(doc! {}, doc! {"$addToSet": {"a": 2}}, doc! {"a": [2]}),
        Case::new(
            doc! {"a": [{"x": 1, "y": 2}]},
            doc! {"$addToSet": {"a": {"y": 2, "x": 1}}},
            doc! {"a": [{"x": 1, "y": 2}, {"y": 2, "x": 1}]},
        ),
        Case::new(
            doc! {"a": [1]},
            doc! {"$addToSet": {"a": {"$each": [3, 1.0, 3, 2]}}},
            doc! {"a": [1, 3, 2]},
        ),
        Case::new(
            doc! {"a": [7, 12]},
            doc! {"$addToSet": {"a": {"$each": many}}},
            doc! {"a": [7, 12, 0, 1, 2, 3, 4, 5, 6, 8, 9]},
        ),
        Case::new(
            doc! {},
            doc! {"$addToSet": {"a": {"$each": [1, 1]}}},
            doc! {"a": [1]},
        ),
    ]);
    check_errors(&[(
        doc! {"a": {"b": 5}},
        doc! {"$addToSet": {"a.b": 1}},
        ErrorCode::BadValue,
        "Cannot apply $addToSet to a non-array field. Field named 'b' has a non-array type int",
    )]);
    check_parse_errors(&[
        (
            bson!({"$addToSet": {"a": {"$each": 1}}}),
            ErrorCode::TypeMismatch,
            "The argument to $each in $addToSet must be an array but it was of type int",
        ),
        (
            bson!({"$addToSet": {"a": {"$each": [], "x": 1}}}),
            ErrorCode::BadValue,
            "Found unexpected fields after $each in $addToSet: { $each: [], x: 1 }",
        ),
    ]);
}

#[test]
fn pop() {
    check_results(&[
        Case::new(doc! {"a": [1, 2]}, doc! {"$pop": {"a": 1}}, doc! {"a": [1]}),
        Case::new(
            doc! {"a": [1, 2]},
            doc! {"$pop": {"a": -1.0}},
            doc! {"a": [2]},
        ),
        Case::new(doc! {"a": []}, doc! {"$pop": {"a": 1}}, doc! {"a": []}),
        Case::new(
            doc! {"a": {}},
            doc! {"$pop": {"a.b": 1, "c.d": 1}},
            doc! {"a": {}},
        ),
    ]);
    check_errors(&[
        (
            doc! {"a": {"b": 5}},
            doc! {"$pop": {"a.b": 1}},
            ErrorCode::TypeMismatch,
            "Path 'a.b' contains an element of non-array type 'int'",
        ),
        (
            doc! {"a": 5},
            doc! {"$pop": {"a.b": 1}},
            ErrorCode::PathNotViable,
            "Cannot create field 'b' in element {a: 5}",
        ),
    ]);
    check_parse_errors(&[
        (
            bson!({"$pop": {"a": 2}}),
            ErrorCode::FailedToParse,
            "$pop expects 1 or -1, found: 2",
        ),
        (
            bson!({"$pop": {"a": "x"}}),
            ErrorCode::FailedToParse,
            "Expected a number in: a: \"x\"",
        ),
        (
            bson!({"$pop": {"a": 1.5}}),
            ErrorCode::FailedToParse,
            "Expected an integer: a: 1.5",
        ),
        (
            bson!({"$pop": {"a": 1e18_f64 * 16.0}}),
            ErrorCode::FailedToParse,
            "Cannot represent as a 64-bit integer: a: 1.6e+19",
        ),
    ]);
}

#[test]
fn pull() {
    check_results(&[
        Case::new(
            doc! {"a": [1, 2, 1.0]},
            doc! {"$pull": {"a": 1}},
            doc! {"a": [2]},
        ),
        Case::new(
            doc! {"a": [1, 5, 9]},
            doc! {"$pull": {"a": {"$gt": 3}}},
            doc! {"a": [1]},
        ),
        Case::new(
            doc! {"a": [1, 5, 9]},
            doc! {"$pull": {"a": {"$in": [1, 9]}}},
            doc! {"a": [5]},
        ),
        Case::new(
            doc! {"a": [{"b": 1, "c": 1}, {"b": 2}, 1]},
            doc! {"$pull": {"a": {"b": 1}}},
            doc! {"a": [{"b": 2}, 1]},
        ),
        Case::new(
            doc! {"a": [{"b": 1}, {"b": 5}]},
            doc! {"$pull": {"a": {"b": {"$gte": 5}}}},
            doc! {"a": [{"b": 1}]},
        ),
        Case::new(
            doc! {"a": [[1, 2], [2]]},
            doc! {"$pull": {"a": [1, 2]}},
            doc! {"a": [[2]]},
        ),
        Case::new(
            doc! {"b": 1},
            doc! {"$pull": {"a": 1, "c.d": 1}},
            doc! {"b": 1},
        ),
        Case::new(
            doc! {"a": [1, 2, 3, {"x": 1}]},
            doc! {"$pullAll": {"a": [3.0, 1, {"x": 1}]}},
            doc! {"a": [2]},
        ),
        Case::new(
            doc! {"a": [1]},
            doc! {"$pullAll": {"a": []}},
            doc! {"a": [1]},
        ),
    ]);
    let non_array = "Cannot apply $pull to a non-array value";
    check_errors(&[
        (
            doc! {"a": 1},
            doc! {"$pull": {"a": 1}},
            ErrorCode::BadValue,
            non_array,
        ),
        (
            doc! {"a": 1},
            doc! {"$pullAll": {"a": [1]}},
            ErrorCode::BadValue,
            non_array,
        ),
        (
            doc! {"a": 1},
            doc! {"$pull": {"a.b": 1}},
            ErrorCode::PathNotViable,
            "Cannot create field 'b' in element {a: 1}",
        ),
    ]);
    check_parse_errors(&[(
        bson!({"$pullAll": {"a": 1}}),
        ErrorCode::BadValue,
        "$pullAll requires an array argument but was given a int",
    )]);
    let regex = bson::Regex {
        pattern: bson::raw::cstr!("^x").into(),
        options: bson::raw::cstr!("").into(),
    };
    let after = apply(&doc! {"a": ["xa", "b", 1]}, &bson!({"$pull": {"a": regex}})).unwrap();
    assert_eq!(after.document, doc! {"a": ["b", 1]});
}
