//! Documents made by upserts.

use bson::{bson, doc};
use millrace_value::ErrorCode;

use super::support::upsert;
use crate::identical::identical_documents;

#[test]
fn upserts_start_from_the_equalities_of_the_query() {
    for (query, update, after) in [
        (
            doc! {"_id": 5},
            bson!({"$set": {"a": 1}}),
            doc! {"_id": 5, "a": 1},
        ),
        (
            doc! {"b": 1, "_id": 5},
            bson!({"$set": {"a": 1}}),
            doc! {"_id": 5, "b": 1, "a": 1},
        ),
        (
            doc! {"b": {"$gt": 1}, "c": {"$eq": 2}},
            bson!({"$inc": {"c": 1}}),
            doc! {"c": 3},
        ),
        (
            doc! {"$and": [{"a": 1}, {"b.c": 2}], "d": {"$in": [4]}},
            bson!({"$setOnInsert": {"e": 5}}),
            doc! {"a": 1, "b": {"c": 2}, "d": 4, "e": 5},
        ),
        (
            doc! {"$or": [{"a": 1}, {"b": 1}]},
            bson!({"$set": {"x": 1}}),
            doc! {"x": 1},
        ),
        (
            doc! {"$or": [{"a": 1}]},
            bson!({"$set": {"x": 1}}),
            doc! {"a": 1, "x": 1},
        ),
        (
            doc! {"_id": 5, "a": 1},
            bson!({"b": 2}),
            doc! {"_id": 5, "b": 2},
        ),
        (
            doc! {"a": 1},
            bson!([{"$set": {"b": "$a"}}]),
            doc! {"a": 1, "b": 1},
        ),
        (
            doc! {"a": {"b": 1}},
            bson!({"$set": {"a.c": 2}}),
            doc! {"a": {"b": 1, "c": 2}},
        ),
    ] {
        let after_upsert = upsert(&query, &update).unwrap().document;
        assert!(
            identical_documents(&after_upsert, &after),
            "{query} {update}: {after_upsert}"
        );
    }
}

#[test]
fn upserts_refuse_queries_that_say_two_things() {
    let set = bson!({"$set": {"x": 1}});
    for (query, update, code, message) in [
        (
            doc! {"$and": [{"a": 1}, {"a": 2}]},
            &set,
            ErrorCode::NotSingleValueField.number(),
            "cannot infer query fields to set, path 'a' is matched twice",
        ),
        (
            doc! {"a": 1, "a.b": 2},
            &set,
            ErrorCode::NotSingleValueField.number(),
            "cannot infer query fields to set, both paths 'a.b' and 'a' are matched",
        ),
        (
            doc! {"$expr": {"$eq": ["$a", 1]}},
            &set,
            224,
            "$expr is not allowed in the query predicate for an upsert",
        ),
        (
            doc! {"_id.a": 1},
            &bson!({"x": 1}),
            111,
            "field at '_id' must be exactly specified, field at sub-path '_id.a'found",
        ),
        (
            doc! {"_id": 1},
            &bson!({"$set": {"_id": 2}}),
            ErrorCode::ImmutableField.number(),
            "Performing an update on the path '_id' would modify the immutable field '_id'",
        ),
    ] {
        let error = upsert(&query, update).unwrap_err();
        assert_eq!((error.code().number(), error.message()), (code, message));
    }
}
