//! `$jsonSchema`.

use bson::{Bson, Document, doc};
use millrace_value::ErrorCode;

use super::{matches, parse};

fn accepts(schema: &Document, document: &Document) -> bool {
    matches(&doc! {"$jsonSchema": schema.clone()}, document)
}

/// Checks a schema of the field `a` against values of it.
fn check(schema: Document, accepted: &[Bson], refused: &[Bson]) {
    let schema = doc! {"properties": {"a": schema}};
    for value in accepted {
        assert!(
            accepts(&schema, &doc! {"a": value.clone()}),
            "{schema} refused {value}"
        );
    }
    for value in refused {
        assert!(
            !accepts(&schema, &doc! {"a": value.clone()}),
            "{schema} accepted {value}"
        );
    }
    assert!(
        accepts(&schema, &doc! {}),
        "an absent property conforms to {schema}"
    );
}

macro_rules! values {
    ($($value:tt),* $(,)?) => { &[$(bson::bson!($value)),*] };
}

#[test]
fn types() {
    check(
        doc! {"bsonType": "int"},
        values![1],
        values![1.5, "x", null],
    );
    check(doc! {"type": "number"}, values![1, 1.5], values!["x", true]);
    check(
        doc! {"bsonType": ["string", "null"]},
        values!["x", null],
        values![1, []],
    );
    check(doc! {"type": "boolean"}, values![true], values![1]);
    check(doc! {"type": "array"}, values![[]], values![{}]);
}

#[test]
fn numbers() {
    check(
        doc! {"minimum": 3},
        values![3, 3.5, "x", null],
        values![2, 2.9],
    );
    check(
        doc! {"minimum": 3, "exclusiveMinimum": true},
        values![4],
        values![3],
    );
    check(
        doc! {"maximum": 3, "exclusiveMaximum": false},
        values![3],
        values![4],
    );
    check(
        doc! {"multipleOf": 0.1},
        values![0.3, 5, "x"],
        values![0.25],
    );
}

#[test]
fn strings() {
    check(
        doc! {"minLength": 2, "maxLength": 3},
        values!["éé", "abc", 1],
        values!["é", "abcd"],
    );
    check(doc! {"pattern": "b+"}, values!["abc", 7], values!["ac"]);
}

#[test]
fn arrays() {
    check(
        doc! {"minItems": 1, "maxItems": 2},
        values![[1], [1, 2], 5],
        values![[], [1, 2, 3]],
    );
    check(
        doc! {"uniqueItems": true},
        values![[1, 2, "1"], 5],
        values![[1, 1.0], [{"x": 1, "y": 2}, {"y": 2, "x": 1}]],
    );
    check(
        doc! {"items": {"bsonType": "int"}},
        values![[], [1, 2]],
        values![[1, "x"]],
    );
    check(
        doc! {"items": [{"type": "string"}, {"type": "number"}], "additionalItems": false},
        values![["x"], ["x", 1], 1],
        values![[1], ["x", "y"], ["x", 1, 2]],
    );
    check(
        doc! {"items": [{}], "additionalItems": {"type": "null"}},
        values![[1, null]],
        values![[1, 2]],
    );
    check(doc! {"additionalItems": false}, values![[1, 2]], &[]);
}

#[test]
fn objects() {
    check(
        doc! {"required": ["b"]},
        values![{"b": null}, 1],
        values![{"c": 1}],
    );
    check(
        doc! {"minProperties": 1, "maxProperties": 1},
        values![{"b": 1}, 1],
        values![{}],
    );
    check(
        doc! {"properties": {"b": {"type": "number"}}, "additionalProperties": false},
        values![{}, {"b": 1}],
        values![{"b": "x"}, {"c": 1}],
    );
    check(
        doc! {"patternProperties": {"^s": {"type": "string"}}, "additionalProperties": {"type": "null"}},
        values![{"s1": "x", "t": null}],
        values![{"s1": 1}, {"t": 1}],
    );
    check(
        doc! {"dependencies": {"b": ["c"], "d": {"required": ["e"]}}},
        values![{}, {"c": 1}, {"b": 1, "c": 1}, {"d": 1, "e": 1}],
        values![{"b": 1}, {"d": 1}],
    );
    check(
        doc! {"required": ["b.c"]},
        values![{"b": {"c": 1}}],
        values![{"b": 1}],
    );
}

#[test]
fn combinations() {
    check(
        doc! {"enum": [1, "x", {"p": 1, "q": 2}]},
        values![1.0, {"q": 2, "p": 1}],
        values![2],
    );
    check(
        doc! {"allOf": [{"minimum": 1}, {"maximum": 2}]},
        values![1, 2],
        values![0, 3],
    );
    check(
        doc! {"anyOf": [{"type": "string"}, {"minimum": 5}]},
        values!["x", 5],
        values![1],
    );
    check(
        doc! {"oneOf": [{"minimum": 1}, {"maximum": 5}]},
        values![0, 6],
        values![3],
    );
    check(doc! {"not": {"type": "string"}}, values![1], values!["x"]);
}

#[test]
fn the_document_itself() {
    assert!(accepts(
        &doc! {"bsonType": "object", "required": ["a"]},
        &doc! {"a": 1}
    ));
    assert!(!accepts(&doc! {"type": "array"}, &doc! {}));
    assert!(accepts(
        &doc! {"enum": [{"b": 2, "a": 1}, 5]},
        &doc! {"a": 1, "b": 2}
    ));
    assert!(accepts(
        &doc! {"title": "t", "description": "d", "minimum": 7},
        &doc! {}
    ));
}

#[test]
#[expect(clippy::too_many_lines, reason = "it is one table")]
fn malformed_schemas() {
    use ErrorCode::{BadValue, FailedToParse, TypeMismatch};
    for (schema, code, message) in [
        (
            doc! {"x": 1},
            FailedToParse,
            "Unknown $jsonSchema keyword: x",
        ),
        (
            doc! {"$ref": "x"},
            FailedToParse,
            "$jsonSchema keyword '$ref' is not currently supported",
        ),
        (
            doc! {"type": "integer"},
            FailedToParse,
            "$jsonSchema type 'integer' is not currently supported.",
        ),
        (
            doc! {"type": "string", "bsonType": "string"},
            FailedToParse,
            "Cannot specify both $jsonSchema keywords 'type' and 'bsonType'",
        ),
        (
            doc! {"type": "int"},
            BadValue,
            "Unknown type name alias: int",
        ),
        (
            doc! {"required": []},
            FailedToParse,
            "$jsonSchema keyword 'required' cannot be an empty array",
        ),
        (
            doc! {"required": ["a", "a"]},
            FailedToParse,
            "$jsonSchema keyword 'required' array cannot contain duplicate values",
        ),
        (
            doc! {"properties": 1},
            TypeMismatch,
            "$jsonSchema keyword 'properties' must be an object",
        ),
        (
            doc! {"properties": {"a": 1}},
            TypeMismatch,
            "Nested schema for $jsonSchema property 'a' must be an object",
        ),
        (
            doc! {"minimum": "x"},
            TypeMismatch,
            "$jsonSchema keyword 'minimum' must be a number",
        ),
        (
            doc! {"exclusiveMinimum": true},
            FailedToParse,
            "$jsonSchema keyword 'minimum' must be a present if exclusiveMinimum is present",
        ),
        (
            doc! {"multipleOf": 0},
            FailedToParse,
            "$jsonSchema keyword 'multipleOf' must have a positive value",
        ),
        (
            doc! {"anyOf": []},
            BadValue,
            "$jsonSchema keyword 'anyOf' must be a non-empty array",
        ),
        (
            doc! {"enum": [1, 1.0]},
            FailedToParse,
            "$jsonSchema keyword 'enum' array cannot contain duplicate values.",
        ),
        (
            doc! {"title": 1},
            TypeMismatch,
            "$jsonSchema keyword 'title' must be of type string",
        ),
        (
            doc! {"minLength": -1},
            FailedToParse,
            "Expected a non-negative number in: minLength: -1",
        ),
    ] {
        let error = parse(&doc! {"$jsonSchema": schema.clone()}).unwrap_err();
        assert_eq!((error.code(), error.message()), (code, message), "{schema}");
    }
}
