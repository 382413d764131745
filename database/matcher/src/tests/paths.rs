//! What a path leads to.

use bson::{Bson, doc};

use super::check_table;

#[test]
fn null_matches_missing_but_not_what_an_array_hides() {
    let documents = [
        doc! {},
        doc! {"a": Bson::Null},
        doc! {"a": 5},
        doc! {"a": []},
        doc! {"a": [1, 2]},
        doc! {"a": [{}]},
        doc! {"a": [{"b": 1}]},
        doc! {"a": {"b": Bson::Null}},
        doc! {"a": Bson::Undefined},
        doc! {"a": [Bson::Null]},
    ];
    check_table(
        &documents,
        &[
            (doc! {"a": Bson::Null}, "xx.......x"),
            (doc! {"a.b": Bson::Null}, "xxx..x.xx."),
            (doc! {"a": {"$in": [Bson::Null, 7]}}, "xx.......x"),
            (doc! {"a": {"$ne": Bson::Null}}, "..xxxxxxx."),
            (doc! {"a": {"$gte": Bson::Null}}, "xx.......x"),
            (doc! {"a": {"$gt": Bson::Null}}, ".........."),
            (doc! {"a": {"$exists": true}}, ".xxxxxxxxx"),
            (doc! {"a": {"$exists": false}}, "x........."),
            (doc! {"a.b": {"$exists": true}}, "......xx.."),
            (doc! {"a.b": {"$exists": 0}}, "xxxxxx..xx"),
            (doc! {"a": {"$type": "null"}}, ".x.......x"),
            (doc! {"a": {"$type": 6}}, "........x."),
        ],
    );
}

#[test]
fn arrays_are_searched_by_element_and_as_a_whole() {
    let documents = [
        doc! {"a": [1, 2]},
        doc! {"a": [[1, 2]]},
        doc! {"a": 1},
        doc! {"a": [2, 1]},
        doc! {"a": [[[1, 2]]]},
        doc! {"a": []},
        doc! {"a": [[]]},
    ];
    check_table(
        &documents,
        &[
            (doc! {"a": 1}, "x.xx..."),
            (doc! {"a": [1, 2]}, "xx....."),
            (doc! {"a": {"$in": [[1, 2]]}}, "xx....."),
            (doc! {"a": {"$ne": 1}}, ".x..xxx"),
            (doc! {"a": {"$nin": [1, 5]}}, ".x..xxx"),
            (doc! {"a": []}, ".....xx"),
            (doc! {"a": {"$size": 2}}, "x..x..."),
            (doc! {"a": {"$size": 0}}, ".....x."),
            (doc! {"a": {"$type": "array"}}, "xx.xxxx"),
            (doc! {"a": {"$type": "number"}}, "x.xx..."),
            (doc! {"a": {"$gt": 1}}, "x..x..."),
            // Two conditions may be met by two elements.
            (doc! {"a": {"$gt": 1, "$lt": 2}}, "x..x..."),
            (doc! {"a": {"$elemMatch": {"$gt": 1, "$lt": 2}}}, "......."),
            // An array is greater than a number, also as an element.
            (doc! {"a": {"$gte": [2]}}, ".x.xx.x"),
        ],
    );
}

#[test]
fn numbers_in_paths_are_positions_or_names() {
    let documents = [
        doc! {"a": [5, {"b": 6}]},
        doc! {"a": {"0": 5}},
        doc! {"a": [{"0": 5}]},
        doc! {"a": [[5]]},
        doc! {"a": [[{"b": 6}]]},
        doc! {"a": [{"b": [6, 7]}]},
    ];
    check_table(
        &documents,
        &[
            (doc! {"a.0": 5}, "xxx..."),
            (doc! {"a.0": [5]}, "...x.."),
            (doc! {"a.00": 5}, "......"),
            (doc! {"a.1.b": 6}, "x....."),
            (doc! {"a.b": 6}, "x....x"),
            (doc! {"a.0.b": 6}, "....xx"),
            (doc! {"a.0.0": 5}, "..xx.."),
            (doc! {"a.b.1": 7}, ".....x"),
            (doc! {"a.0.b.1": 7}, ".....x"),
            (doc! {"a.0": {"$size": 1}}, "...xx."),
            (doc! {"a.2": {"$exists": false}}, "xxxxxx"),
        ],
    );
}

#[test]
fn names_may_be_empty() {
    let documents = [doc! {"": 1}, doc! {"a": {"": 1}}, doc! {"a": 1}];
    check_table(
        &documents,
        &[
            (doc! {"": 1}, "x.."),
            (doc! {"a.": 1}, ".x."),
            (doc! {}, "xxx"),
        ],
    );
}
