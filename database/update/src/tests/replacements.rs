//! Replacements, and what may not change: `_id` and the names of fields.

use bson::{Bson, bson, doc};
use millrace_value::ErrorCode;

use super::support::{Case, apply, check_errors, check_results, now_timestamp};

#[test]
fn the_id_cannot_change() {
    let immutable = ErrorCode::ImmutableField;
    check_errors(&[
        (
            doc! {"_id": 1},
            doc! {"$set": {"_id": 2}},
            immutable,
            "Performing an update on the path '_id' would modify the immutable field '_id'",
        ),
        (
            doc! {"_id": 1},
            doc! {"$unset": {"_id": 1}},
            immutable,
            "Performing an update on the path '_id' would modify the immutable field '_id'",
        ),
        (
            doc! {"_id": {"a": 1}},
            doc! {"$inc": {"_id.a": 1}},
            immutable,
            "Performing an update on the path '_id.a' would modify the immutable field '_id'",
        ),
        (
            doc! {"_id": {"a": 1}},
            doc! {"$set": {"_id.b": 1}},
            immutable,
            "Updating the path '_id' to _id: { a: 1, b: 1 } would modify the immutable field '_id'",
        ),
        (
            doc! {"_id": 1},
            doc! {"$rename": {"_id": "a"}},
            immutable,
            "Performing an update on the path '_id' would modify the immutable field '_id'",
        ),
        (
            doc! {"_id": 1, "a": 2},
            doc! {"$rename": {"a": "_id"}},
            immutable,
            "Performing an update on the path '_id' would modify the immutable field '_id'",
        ),
        (
            doc! {"_id": 1},
            doc! {"_id": 2, "a": 1},
            immutable,
            "After applying the update, the (immutable) field '_id' was found to have been altered \
             to _id: 2",
        ),
    ]);
    check_results(&[
        Case::new(
            doc! {"_id": 1},
            doc! {"$set": {"_id": 1, "a": 1}},
            doc! {"_id": 1, "a": 1},
        ),
        Case::new(
            doc! {"_id": {"a": 1}},
            doc! {"$set": {"_id.a": 1, "b": 1}},
            doc! {"_id": {"a": 1}, "b": 1},
        ),
    ]);
}

#[test]
fn replacements_keep_the_id_in_front() {
    check_results(&[
        Case::new(
            doc! {"_id": 1, "a": 1},
            doc! {"b": 2},
            doc! {"_id": 1, "b": 2},
        ),
        Case::new(
            doc! {"_id": 1, "a": 1},
            doc! {"b": 2, "_id": 1},
            doc! {"_id": 1, "b": 2},
        ),
        Case::new(doc! {"_id": 1, "a": 1}, doc! {}, doc! {"_id": 1}),
    ]);
    check_errors(&[(
        doc! {"_id": 1},
        doc! {"a": 1, "$b": 2},
        ErrorCode::DollarPrefixedFieldName,
        "The dollar ($) prefixed field '$b' in '$b' is not allowed in the context of an update's \
         replacement document. Consider using an aggregation pipeline with $replaceWith.",
    )]);
    let zero = Bson::Timestamp(bson::Timestamp {
        time: 0,
        increment: 0,
    });
    let update = bson!({"t": zero.clone(), "in": {"t": zero.clone()}});
    let after = apply(&doc! {"_id": 1}, &update).unwrap().document;
    assert_eq!(after.get("t"), Some(&now_timestamp()));
    assert_eq!(after.get_document("in").unwrap().get("t"), Some(&zero));
}

#[test]
fn dollar_names_are_for_deeper_levels_only() {
    let problem = "The dollar ($) prefixed field '$a' in '$a' is not allowed in the context of an \
                   update's replacement document. Consider using an aggregation pipeline with \
                   $replaceWith.";
    check_errors(&[(
        doc! {},
        doc! {"$set": {"$a": 1}},
        ErrorCode::DollarPrefixedFieldName,
        problem,
    )]);
    check_results(&[
        Case::new(doc! {}, doc! {"$set": {"a.$b": 1}}, doc! {"a": {"$b": 1}}),
        Case::new(
            doc! {},
            doc! {"$set": {"a": {"$b": 1, "c.d": 2}}},
            doc! {"a": {"$b": 1, "c.d": 2}},
        ),
        Case::new(
            doc! {"$a": 1, "b": 1},
            doc! {"$unset": {"$a": 1}},
            doc! {"b": 1},
        ),
    ]);
}
