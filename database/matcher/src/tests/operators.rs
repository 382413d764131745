//! What each operator matches.

use bson::oid::ObjectId;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, DateTime, Timestamp, doc};
use millrace_expression::{EvaluationContext, Variables};
use millrace_value::{Collation, ErrorCode, Result};

use super::{check_table, matches, operation, parse, raw, regex, try_matches};
use crate::{Node, Predicate};

fn decimal(text: &str) -> Bson {
    Bson::Decimal128(text.parse().unwrap())
}

#[test]
fn comparisons_stay_within_a_type() {
    let documents = [
        doc! {"a": 5},
        doc! {"a": 5.0},
        doc! {"a": decimal("5.00")},
        doc! {"a": 5_i64},
        doc! {"a": "5"},
        doc! {"a": true},
        doc! {"a": DateTime::from_millis(5)},
        doc! {"a": Timestamp { time: 0, increment: 5 }},
        doc! {"a": {"b": 1}},
        doc! {"a": Bson::MinKey},
        doc! {"a": Bson::MaxKey},
        doc! {"a": f64::NAN},
        doc! {"a": decimal("NaN")},
        doc! {},
    ];
    check_table(
        &documents,
        &[
            (doc! {"a": 5}, "xxxx.........."),
            (doc! {"a": {"$gt": 4}}, "xxxx.........."),
            (doc! {"a": {"$lt": 4}}, ".............."),
            (doc! {"a": {"$lte": decimal("5")}}, "xxxx.........."),
            (doc! {"a": {"$gte": "4"}}, "....x........."),
            (doc! {"a": {"$lte": true}}, ".....x........"),
            (doc! {"a": {"$gt": DateTime::MIN}}, "......x......."),
            (doc! {"a": {"$gt": {}}}, "........x....."),
            (doc! {"a": {"$gt": Bson::MinKey}}, "xxxxxxxxx.xxxx"),
            (doc! {"a": {"$gte": Bson::MinKey}}, "xxxxxxxxxxxxxx"),
            (doc! {"a": {"$lt": Bson::MaxKey}}, "xxxxxxxxxx.xxx"),
            (doc! {"a": {"$lt": Bson::MinKey}}, ".............."),
            (doc! {"a": Bson::MaxKey}, "..........x..."),
            (doc! {"a": f64::NAN}, "...........xx."),
            (doc! {"a": {"$gte": f64::NAN}}, "...........xx."),
            (doc! {"a": {"$lt": f64::NAN}}, ".............."),
            (doc! {"a": {"$lt": f64::INFINITY}}, "xxxx.........."),
            (doc! {"a": {"$in": [f64::NAN, "5"]}}, "....x......xx."),
        ],
    );
}

#[test]
fn documents_are_equal_field_by_field_in_order() {
    let documents = [
        doc! {"a": {"b": 1, "c": 2}},
        doc! {"a": {"c": 2, "b": 1}},
        doc! {"a": {"b": 1}},
    ];
    check_table(
        &documents,
        &[
            (doc! {"a": {"b": 1, "c": 2}}, "x.."),
            (doc! {"a": {"$eq": {"b": 1.0}}}, "..x"),
            (doc! {"a.b": 1}, "xxx"),
            (doc! {"a": {"$gt": {"b": 1}}}, "xx."),
            (doc! {"a": {}}, "..."),
        ],
    );
}

#[test]
fn logical_operators_combine() {
    let documents = [doc! {"a": 1, "b": 1}, doc! {"a": 1}, doc! {"b": 1}, doc! {}];
    check_table(
        &documents,
        &[
            (doc! {"$and": [{"a": 1}, {"b": 1}]}, "x..."),
            (doc! {"$or": [{"a": 1}, {"b": 1}]}, "xxx."),
            (doc! {"$nor": [{"a": 1}, {"b": 1}]}, "...x"),
            (doc! {"a": {"$not": {"$eq": 1}}}, "..xx"),
            (doc! {"a": {"$not": {"$gt": 0, "$lt": 1}}}, "xxxx"),
            (doc! {"a": {"$not": {"$not": {"$eq": 1}}}}, "xx.."),
            (
                doc! {"$comment": "c", "a": {"$comment": "d", "$eq": 1}},
                "xx..",
            ),
            (doc! {"$alwaysTrue": 1}, "xxxx"),
            (doc! {"$alwaysFalse": 1.0}, "...."),
            (doc! {"$sampleRate": 0}, "...."),
            (doc! {"$sampleRate": 1}, "xxxx"),
            (doc! {"$expr": "$a"}, "xx.."),
        ],
    );
}

#[test]
fn all_and_elem_match_look_at_elements() {
    let documents = [
        doc! {"a": [1, 2, 3]},
        doc! {"a": 1},
        doc! {"a": [{"b": 1, "c": 2}, {"b": 3, "c": 4}]},
        doc! {"a": [{"b": 1, "c": 4}]},
        doc! {"a": [[1, 2], [3]]},
        doc! {"a": ["abc"]},
        doc! {},
    ];
    check_table(
        &documents,
        &[
            (doc! {"a": {"$all": [1, 3]}}, "x......"),
            (doc! {"a": {"$all": [1]}}, "xx....."),
            (doc! {"a": {"$all": [[1, 2]]}}, "....x.."),
            (doc! {"a": {"$all": []}}, "......."),
            (doc! {"a": {"$all": [Bson::Null]}}, "......x"),
            (doc! {"a": {"$all": [regex("^a", "")]}}, ".....x."),
            (
                doc! {"a": {"$all": [{"$elemMatch": {"b": 1}}, {"$elemMatch": {"c": 4}}]}},
                "..xx...",
            ),
            (doc! {"a": {"$not": {"$all": [1, 3]}}}, ".xxxxxx"),
            (doc! {"a": {"$elemMatch": {"b": 1, "c": 4}}}, "...x..."),
            (
                doc! {"a": {"$elemMatch": {"$or": [{"b": 3}, {"c": 9}]}}},
                "..x....",
            ),
            (doc! {"a": {"$elemMatch": {"$gte": 3}}}, "x......"),
            (
                doc! {"a": {"$elemMatch": {"$elemMatch": {"$eq": 3}}}},
                "....x..",
            ),
            (doc! {"a": {"$elemMatch": {"0": 3}}}, "....x.."),
            (doc! {"a": {"$elemMatch": {"$not": {"$lt": 3}}}}, "x.xxxx."),
            (
                doc! {"a": {"$elemMatch": {"$ne": 1, "$nin": [2, 3]}}},
                "..xxxx.",
            ),
            (doc! {"a": {"$elemMatch": {"$in": [3]}}}, "x......"),
            (doc! {"a": {"$elemMatch": {"$all": [1]}}}, "x......"),
            (doc! {"a": {"$elemMatch": {}}}, "..xxx.."),
            (doc! {"a.b": {"$elemMatch": {"$eq": 1}}}, "......."),
        ],
    );
}

#[test]
fn regular_expressions_match_strings_and_themselves() {
    let documents = [
        doc! {"a": "Hello"},
        doc! {"a": ["x", "hello"]},
        doc! {"a": regex("^h", "i")},
        doc! {"a": Bson::Symbol("hey".into())},
        doc! {"a": 5},
        doc! {},
    ];
    check_table(
        &documents,
        &[
            (doc! {"a": regex("^h", "i")}, "xxxx.."),
            (doc! {"a": regex("^h", "")}, ".x.x.."),
            (doc! {"a": {"$regex": "^h"}}, ".x.x.."),
            (doc! {"a": {"$regex": "^H", "$options": "i"}}, "xx.x.."),
            (
                doc! {"a": {"$options": "i", "$regex": regex("^h", "")}},
                "xxxx..",
            ),
            (doc! {"a": {"$regex": regex("^h", "i")}}, "xxxx.."),
            (doc! {"a": {"$in": [5, regex("^H", "")]}}, "x...x."),
            (doc! {"a": {"$nin": [regex("^h", "")]}}, "x.x.xx"),
            (doc! {"a": {"$not": regex("^h", "i")}}, "....xx"),
            (
                doc! {"a": {"$not": {"$regex": "^h", "$options": "i"}}},
                "....xx",
            ),
            (doc! {"a": {"$eq": regex("^h", "i")}}, "..x..."),
            (doc! {"a": {"$elemMatch": {"$regex": "o$"}}}, ".x...."),
        ],
    );
}

#[test]
fn mod_cuts_to_integers() {
    let documents = [
        doc! {"a": 9},
        doc! {"a": 9.9},
        doc! {"a": decimal("9.5")},
        doc! {"a": -9},
        doc! {"a": f64::NAN},
        doc! {"a": 1e300},
        doc! {"a": "9"},
        doc! {"a": [4, 9_i64]},
        doc! {"a": i64::MIN},
    ];
    check_table(
        &documents,
        &[
            (doc! {"a": {"$mod": [5, 4]}}, "xxx....x."),
            (doc! {"a": {"$mod": [5.9, 4.9]}}, "xxx....x."),
            (doc! {"a": {"$mod": [5, -4]}}, "...x....."),
            (doc! {"a": {"$mod": [-1, 0]}}, "xxxx...xx"),
        ],
    );
}

#[test]
fn bits_are_those_of_integers_and_bytes() {
    let binary = |bytes: &[u8]| {
        Bson::Binary(Binary {
            subtype: BinarySubtype::Generic,
            bytes: bytes.to_vec(),
        })
    };
    let documents = [
        doc! {"a": 54},
        doc! {"a": 54.0},
        doc! {"a": 54.5},
        doc! {"a": -1},
        doc! {"a": binary(&[0b0011_0110])},
        doc! {"a": "54"},
        doc! {"a": 0},
        doc! {"a": decimal("54")},
    ];
    check_table(
        &documents,
        &[
            (doc! {"a": {"$bitsAllSet": [1, 5]}}, "xx.xx..x"),
            (doc! {"a": {"$bitsAllSet": 50}}, "xx.xx..x"),
            (doc! {"a": {"$bitsAllSet": binary(&[0x30])}}, "xx.xx..x"),
            (doc! {"a": {"$bitsAllClear": [0, 3]}}, "xx..x.xx"),
            (doc! {"a": {"$bitsAnySet": [0, 1]}}, "xx.xx..x"),
            (doc! {"a": {"$bitsAnyClear": [1, 3]}}, "xx..x.xx"),
            (doc! {"a": {"$bitsAllSet": [200]}}, "...x...."),
            (doc! {"a": {"$bitsAllClear": [200]}}, "xx..x.xx"),
            (doc! {"a": {"$bitsAllSet": 0}}, "xx.xx.xx"),
            (doc! {"a": {"$bitsAnySet": []}}, "........"),
        ],
    );
}

#[test]
fn types_are_named_or_numbered() {
    let documents = [
        doc! {"a": 1},
        doc! {"a": "x"},
        doc! {"a": ["x"]},
        doc! {"a": {}},
        doc! {},
    ];
    check_table(
        &documents,
        &[
            (doc! {"a": {"$type": "string"}}, ".xx.."),
            (doc! {"a": {"$type": ["int", 3]}}, "x..x."),
            (doc! {"a": {"$type": 4}}, "..x.."),
            (doc! {"a": {"$not": {"$type": "string"}}}, "x..xx"),
        ],
    );
}

#[test]
fn references_are_values() {
    let id = ObjectId::from_bytes([7; 12]);
    let reference = doc! {"$ref": "c", "$id": id};
    let documents = [
        doc! {"a": reference.clone()},
        doc! {"a": [reference.clone()]},
        doc! {"a": 1},
    ];
    check_table(
        &documents,
        &[
            (doc! {"a": reference.clone()}, "xx."),
            (doc! {"a": {"$in": [reference.clone()]}}, "xx."),
            (doc! {"a.$id": id}, "xx."),
            (doc! {"a": {"$elemMatch": {"$id": id}}}, ".x."),
        ],
    );
}

#[test]
fn a_sample_follows_its_rate() -> Result<()> {
    let operation = operation();
    let variables = Variables::new(&operation);
    let context = EvaluationContext::new(&operation, &variables, Collation::SIMPLE);
    let matcher = parse(&doc! {"$sampleRate": 0.25})?;
    let empty = raw(&doc! {});
    let mut drawn = 0;
    for _ in 0..1000 {
        drawn += i32::from(matcher.matches(&empty, &context)?);
    }
    assert!((200..300).contains(&drawn), "{drawn}");
    Ok(())
}

#[test]
fn the_tree_shows_the_planner_simple_forms() -> Result<()> {
    let is_equality = |node: &Node| {
        matches!(
            node,
            Node::Path {
                predicate: Predicate::Equal(_),
                ..
            }
        )
    };
    assert!(is_equality(parse(&doc! {"a": 1})?.root()));
    assert!(is_equality(parse(&doc! {"a": {"$in": [1, 1.0]}})?.root()));
    assert!(matches!(parse(&doc! {})?.root(), Node::And(nodes) if nodes.is_empty()));
    match parse(&doc! {"a": {"$gt": 1, "$lt": 5}, "b": {"$ne": 2}})?.root() {
        Node::And(nodes) => {
            assert_eq!(nodes.len(), 3);
            assert!(matches!(&nodes[2], Node::Not(inner) if is_equality(inner)));
        }
        node => panic!("{node:?}"),
    }
    Ok(())
}

#[test]
fn killed_operations_stop_between_regular_expressions() {
    let operation = operation();
    operation.interrupt().kill(ErrorCode::Interrupted);
    let variables = Variables::new(&operation);
    let context = EvaluationContext::new(&operation, &variables, Collation::SIMPLE);
    let matcher = parse(&doc! {"a": regex("x", "")}).unwrap();
    let error = matcher
        .matches(&raw(&doc! {"a": ["a", "b"]}), &context)
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::Interrupted);
}

#[test]
fn damaged_documents_are_errors() {
    let mut bytes = raw(&doc! {"a": "text", "b": 1}).into_bytes();
    bytes[7] = 0xff;
    let damaged = bson::RawDocumentBuf::from_bytes(bytes).unwrap();
    let operation = operation();
    let variables = Variables::new(&operation);
    let context = EvaluationContext::new(&operation, &variables, Collation::SIMPLE);
    let error = parse(&doc! {"b": 1})
        .unwrap()
        .matches(&damaged, &context)
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidBSON);
    assert!(matches(&doc! {"b": 1}, &doc! {"b": 1}));
    assert!(try_matches(&doc! {"$x": 1}, &doc! {}).is_err());
}
