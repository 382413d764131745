//! Paths, variables, literals, and the operators that are part of the language itself.

use bson::{Bson, bson, doc};
use millrace_value::{Collation, ErrorCode};

use super::{NOW_MS, check, evaluate, fails, missing, operation, table};
use crate::{DEPTH_MAX, EvaluationContext, Expression, Scope, Variables};

#[test]
fn paths() {
    table! {
        "$a", {"a": 1} => 1;
        "$a.b", {"a": {"b": 2}} => 2;
        "$a.b", {"a": 1} => missing();
        "$a.b", {"a": [{"b": 1}, {"c": 2}, 3, [{"b": 4}], {"b": null}]} => bson!([1, null]);
        "$a.0", {"a": [7, 8]} => Bson::Array(vec![]);
        "$a.b.c", {"a": [{"b": [{"c": 1}, {"c": 2}]}, {"b": {"c": 3}}]} => bson!([[1, 2], 3]);
        "$$ROOT", {"a": 1} => bson!({"a": 1});
        "$$ROOT.a", {"a": 1} => 1;
        "$$CURRENT.a.b", {"a": {"b": 2}} => 2;
        "$$REMOVE", {"a": 1} => missing();
        "$$NOW" => bson::DateTime::from_millis(NOW_MS);
        "$$USER_ROLES" => Bson::Array(vec![]);
        "$" => fails(16872, "'$' by itself is not a valid FieldPath");
        "$a." => fails(40353, "must not end with a '.'");
        "$a..b" => fails(15998, "may not be empty strings");
        "$a.$b" => fails(16410, "may not start with '$'");
        "$$x" => fails(17276, "Use of undefined variable: x");
        "$$" => fails(9, "empty variable names are not allowed");
        "$$x-y" => fails(9, "contains an invalid character for a variable name: '-'");
        "$$CLUSTER_TIME" => fails(51144, "is not available");
    }
}

#[test]
fn objects_arrays_and_literals() {
    table! {
        1 => 1;
        "a" => "a";
        null => Bson::Null;
        {} => bson!({});
        {"a": "$x", "b": {"c": "$y"}}, {"x": 1} => bson!({"a": 1, "b": {}});
        ["$x", "$y", 3], {"x": 1} => bson!([1, null, 3]);
        {"$literal": {"$add": ["$x"]}} => bson!({"$add": ["$x"]});
        {"$const": "$x"} => "$x";
        {"a.b": 1} => fails(16412, "may not contain '.'");
        {"a": 1, "$add": [1]} => fails(16410, "may not start with '$'");
        {"$add": [1], "a": 1} => fails(15983, "must have exactly one field");
        {"$foo": 1} => fails(168, "Unrecognized expression '$foo'");
        {"$not": [1, 2]} => fails(16020, "Expression $not takes exactly 1 arguments. 2 were passed in.");
        {"$eq": 1} => fails(16020, "Expression $eq takes exactly 2 arguments. 1 were passed in.");
        {"$round": [1, 2, 3]} => fails(28667, "Expression $round takes at least 1 arguments, and at most 2, but 3 were passed in.");
    }
}

#[test]
fn comparison_and_boolean() {
    table! {
        {"$cmp": [1, 2]} => -1;
        {"$cmp": ["b", "a"]} => 1;
        {"$eq": [1, 1.0]} => true;
        {"$eq": ["$a", null]} => false;
        {"$lt": ["$a", null]} => true;
        {"$gt": ["$a", {"$literal": {}}]} => false;
        {"$eq": ["$a", "$b"]} => true;
        {"$gte": [{"a": 1}, 5]} => true;
        {"$ne": [[1], [1, 2]]} => true;
        {"$lte": [(f64::NAN), 1]} => true;
        {"$and": []} => true;
        {"$or": []} => false;
        {"$and": [1, "a", true]} => true;
        {"$and": [0, {"$divide": [1, 0]}]} => false;
        {"$or": [1, {"$divide": [1, 0]}]} => true;
        {"$or": [null, "$a", 0, false]} => false;
        {"$not": ["$a"]} => true;
        {"$not": [[false]]} => false;
    }
}

#[test]
fn conditions() {
    table! {
        {"$cond": [true, 1, {"$divide": [1, 0]}]} => 1;
        {"$cond": {"if": "$a", "then": 1, "else": "$b"}} => missing();
        {"$cond": [1, 2]} => fails(16020, "$cond takes exactly 3 arguments. 2 were passed in.");
        {"$cond": {"if": 1, "then": 2}} => fails(17082, "Missing 'else' parameter to $cond");
        {"$cond": {"if": 1, "then": 2, "else": 3, "x": 4}} => fails(17083, "Unrecognized parameter to $cond: x");
        {"$ifNull": ["$a", null, 3, 4]} => 3;
        {"$ifNull": ["$a", "$b"]} => missing();
        {"$ifNull": [1]} => fails(28667, "$ifNull");
        {"$switch": {"branches": [{"case": "$a", "then": 1}, {"case": "$b", "then": 2}]}}, {"b": 1} => 2;
        {"$switch": {"branches": [{"case": false, "then": 1}], "default": "x"}} => "x";
        {"$switch": {"branches": [{"case": false, "then": 1}]}} => fails(40066, "could not find a matching branch");
        {"$switch": 1} => fails(40060, "found: int");
        {"$switch": {"branches": 1}} => fails(40061, "found: int");
        {"$switch": {"branches": [1]}} => fails(40062, "found: int");
        {"$switch": {"branches": [{"x": 1}]}} => fails(40063, "unknown argument to a branch: x");
        {"$switch": {"branches": [{"then": 1}]}} => fails(40064, "'case'");
        {"$switch": {"branches": [{"case": 1}]}} => fails(40065, "'then'");
        {"$switch": {"x": []}} => fails(40067, "unknown argument: x");
        {"$switch": {"branches": []}} => fails(40068, "at least one branch");
    }
}

#[test]
fn bound_variables() {
    table! {
        {"$let": {"vars": {"x": 1, "y": "$a"}, "in": {"$add": ["$$x", "$$y"]}}}, {"a": 2} => 3;
        {"$let": {"vars": {"x": {"b": [{"c": 1}]}}, "in": "$$x.b.c"}} => bson!([1]);
        {"$let": {"vars": {"x": 1}, "in": {"$let": {"vars": {"x": 2, "y": "$$x"}, "in": ["$$x", "$$y"]}}}} => bson!([2, 1]);
        {"$let": {"vars": {"x": "$a"}, "in": {"$ifNull": ["$$x", "none"]}}} => "none";
        {"$let": {"vars": {"CURRENT": "$a"}, "in": "$b"}}, {"a": {"b": 1}, "b": 2} => 1;
        {"$let": {"vars": {"X": 1}, "in": 1}} => fails(9, "'X' starts with an invalid character for a user variable name");
        {"$let": {"vars": {}}} => fails(16877, "Missing 'in' parameter to $let");
        {"$let": {"in": 1}} => fails(16876, "Missing 'vars' parameter to $let");
        {"$let": 1} => fails(16874, "$let only supports an object as its argument");
        {"$let": {"x": 1}} => fails(16875, "Unrecognized parameter to $let: x");
        {"$let": {"vars": {"x": 1, "y": "$$x"}, "in": 1}} => fails(17276, "undefined variable: x");
        {"$map": {"input": "$a", "in": {"$multiply": ["$$this", 2]}}}, {"a": [1, 2.5]} => bson!([2, 5.0]);
        {"$map": {"input": "$a", "as": "x", "in": "$$x.b"}}, {"a": [{"b": 1}, {}]} => bson!([1, null]);
        {"$map": {"input": "$a", "in": 1}} => Bson::Null;
        {"$map": {"input": 1, "in": 1}} => fails(16883, "input to $map must be an array not int");
        {"$map": {"input": [1], "as": "x", "in": {"$map": {"input": [2], "as": "y", "in": ["$$x", "$$y"]}}}} => bson!([[[1, 2]]]);
        {"$map": {"in": 1}} => fails(16880, "Missing 'input' parameter to $map");
        {"$map": {"input": 1}} => fails(16882, "Missing 'in' parameter to $map");
        {"$map": {"input": 1, "in": 1, "x": 1}} => fails(16879, "Unrecognized parameter to $map: x");
        {"$filter": {"input": [1, 2, 3, 4], "cond": {"$gt": ["$$this", 1]}}} => bson!([2, 3, 4]);
        {"$filter": {"input": [1, 2, 3, 4], "as": "n", "cond": {"$gt": ["$$n", 1]}, "limit": 2}} => bson!([2, 3]);
        {"$filter": {"input": [1], "cond": true, "limit": "$none"}} => bson!([1]);
        {"$filter": {"input": [1], "cond": true, "limit": 0}} => fails(327_392, "limit must be greater than 0: 0");
        {"$filter": {"input": [1], "cond": true, "limit": 1.5}} => fails(327_391, "32-bit integral value: 1.5");
        {"$filter": {"input": "x", "cond": true}} => fails(28651, "input to $filter must be an array not string");
        {"$filter": {"input": null, "cond": true}} => Bson::Null;
        {"$filter": {"cond": true}} => fails(28648, "Missing 'input'");
        {"$filter": {"input": []}} => fails(28650, "Missing 'cond'");
        {"$reduce": {"input": [1, 2, 3], "initialValue": 10, "in": {"$add": ["$$value", "$$this"]}}} => 16;
        {"$reduce": {"input": [], "initialValue": "$a", "in": 1}} => missing();
        {"$reduce": {"input": null, "initialValue": 1, "in": 1}} => Bson::Null;
        {"$reduce": {"input": 1, "initialValue": 1, "in": 1}} => fails(40080, "requires that 'input' be an array, found: 1");
        {"$reduce": {"input": [], "in": 1}} => fails(40078, "requires 'initialValue' to be specified");
        {"$reduce": 1} => fails(40075, "found: int");
        {"$reduce": {"x": 1}} => fails(40076, "unknown argument: x");
    }
}

#[test]
fn nesting_is_bounded() {
    let mut deep = Bson::Int32(1);
    for _ in 0..DEPTH_MAX + 10 {
        deep = bson!([deep]);
    }
    check(&deep, &doc! {}, fails(15, "levels of nesting"));

    // A value that grows by a level in each round of a loop.
    let rounds: Vec<Bson> = (0..1000).map(Bson::Int32).collect();
    let grow = bson!({"$reduce": {"input": rounds, "initialValue": 1, "in": {"a": "$$value"}}});
    check(&grow, &doc! {}, fails(15, "levels of nesting"));
}

#[test]
fn memory_is_bounded() {
    let text = "x".repeat(100_000);
    let mut doubling = bson!("$text");
    for _ in 0..40 {
        doubling = bson!({"$let": {"vars": {"x": doubling}, "in": ["$$x", "$$x"]}});
    }
    check(
        &doubling,
        &doc! {"text": text},
        fails(146, "too much memory"),
    );
}

#[test]
fn an_interrupted_operation_stops_in_loops() {
    let operation = operation();
    operation.interrupt().kill(ErrorCode::Interrupted);
    let variables = Variables::new(&operation);
    let map = bson!({"$map": {"input": "$a", "in": "$$this"}});
    let map = Expression::parse(&map, &Scope::new(Collation::SIMPLE)).unwrap();
    let error = map
        .evaluate(
            &doc! {"a": [1]},
            &EvaluationContext::new(&operation, &variables, Collation::SIMPLE),
        )
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::Interrupted);
}

#[test]
fn constants_are_folded_and_failing_ones_are_left() {
    let parse =
        |expression: Bson| Expression::parse(&expression, &Scope::new(Collation::SIMPLE)).unwrap();
    assert_eq!(
        parse(bson!({"$eq": [1, 1]})).as_constant(),
        Some(&Bson::Boolean(true))
    );
    assert_eq!(
        parse(bson!({"a": [{"$add": [1, 2]}]})).as_constant(),
        Some(&bson!({"a": [3]}))
    );
    assert!(parse(bson!({"$divide": [1, 0]})).as_constant().is_none());
    assert_eq!(
        parse(bson!("$$ROOT.a.b")).as_field_path().as_deref(),
        Some("a.b")
    );
}

#[test]
fn dependencies() {
    let of = |expression: Bson| {
        Expression::parse(&expression, &Scope::new(Collation::SIMPLE).with("v"))
            .unwrap()
            .field_paths()
    };
    let found = of(bson!({"$map": {"input": "$a.b", "as": "x", "in": ["$c", "$$x.d", "$$v"]}}));
    assert_eq!(found.paths.iter().collect::<Vec<_>>(), ["a.b", "c"]);
    assert_eq!(found.variables.iter().collect::<Vec<_>>(), ["v", "x"]);
    assert!(!found.whole_document);
    assert!(of(bson!({"$eq": ["$$ROOT", 1]})).whole_document);
}

#[test]
fn variables_brought_along() {
    let operation = operation();
    let (scope, variables) = Variables::from_let(
        &doc! {"x": {"$add": [1, 2]}, "y": ["$$x"]},
        &operation,
        Collation::SIMPLE,
    )
    .unwrap();
    let expression = Expression::parse(&bson!(["$$x", "$$y", "$a"]), &scope).unwrap();
    let context = EvaluationContext::new(&operation, &variables, Collation::SIMPLE);
    assert_eq!(
        expression.evaluate(&doc! {"a": 5}, &context).unwrap(),
        Some(bson!([3, [3], 5]))
    );

    let error = Variables::from_let(&doc! {"x": "$a"}, &operation, Collation::SIMPLE).unwrap_err();
    assert_eq!(error.code().number(), 4_890_500);
    assert!(evaluate(&bson!("$$x"), &doc! {}).is_err());
}
