//! Tests of projections: tables of MongoDB's behaviour, and that bytes and trees agree.

mod agreement;

use bson::{Bson, Document, RawDocumentBuf, doc};
use millrace_expression::{EvaluationContext, Scope, Variables};
use millrace_matcher::{MatchDetails, Matcher};
use millrace_value::testing::operation;
use millrace_value::{Collation, Path, Result};

use super::{AddFields, Mode, Projection};

fn parse(spec: &Document, mode: Mode) -> Result<Projection> {
    Projection::parse(spec, mode, &Scope::new(Collation::SIMPLE))
}

/// Projects through bytes and through trees, which must agree.
fn project(
    projection: &Projection,
    document: &Document,
    matched: Option<&MatchDetails>,
) -> Result<Document> {
    let operation = operation();
    let variables = Variables::new(&operation);
    let context = EvaluationContext::new(&operation, &variables, Collation::SIMPLE);
    let raw = RawDocumentBuf::try_from(document)?;
    let from_tree = projection.apply(document.clone(), matched, &context);
    let from_bytes = projection
        .apply_raw(&raw, matched, &context)
        .and_then(|bytes| {
            // Decoding checks lengths, types and terminators throughout.
            Ok(Document::try_from(&*bytes)?)
        });
    match (from_tree, from_bytes) {
        (Ok(tree), Ok(bytes)) => {
            assert_eq!(tree.to_string(), bytes.to_string(), "of {document}");
            Ok(tree)
        }
        (Err(tree), Err(bytes)) => {
            assert_eq!(tree.message(), bytes.message());
            Err(tree)
        }
        (tree, bytes) => panic!("{tree:?} is not {bytes:?}"),
    }
}

fn check(mode: Mode, spec: &Document, document: &Document, expected: &Document) {
    let projection = parse(spec, mode).unwrap_or_else(|error| panic!("{spec}: {error:?}"));
    let found = project(&projection, document, None).unwrap();
    // The texts also show the order of the fields.
    assert_eq!(
        found.to_string(),
        expected.to_string(),
        "{spec} of {document}"
    );
}

fn check_error(mode: Mode, spec: &Document, code: i32, message: &str) {
    let error = parse(spec, mode)
        .err()
        .unwrap_or_else(|| panic!("{spec} was accepted"));
    assert_eq!(
        (error.code().number(), error.message()),
        (code, message),
        "{spec}"
    );
}

#[test]
fn inclusion_keeps_the_order_of_the_document() {
    let document = doc! {"_id": 1, "a": {"b": 1, "c": [1]}, "d": 2, "e": 3};
    for (spec, expected) in [
        (doc! {"e": 1, "d": true}, doc! {"_id": 1, "d": 2, "e": 3}),
        (doc! {"_id": 0, "d": 1.5}, doc! {"d": 2}),
        (doc! {"_id": 1}, doc! {"_id": 1}),
        (doc! {"x": 1}, doc! {"_id": 1}),
        (doc! {"a.b": 1}, doc! {"_id": 1, "a": {"b": 1}}),
        (doc! {"a": {"c": 1}, "_id": false}, doc! {"a": {"c": [1]}}),
        (
            doc! {"a.b": 1, "a.c": 1, "d.x": 1},
            doc! {"_id": 1, "a": {"b": 1, "c": [1]}},
        ),
        (doc! {}, document.clone()),
    ] {
        check(Mode::Find, &spec, &document, &expected);
    }
}

#[test]
fn exclusion_keeps_the_rest() {
    let document = doc! {"_id": 1, "a": {"b": 1, "c": [1]}, "d": 2};
    for (spec, expected) in [
        (doc! {"d": 0}, doc! {"_id": 1, "a": {"b": 1, "c": [1]}}),
        (doc! {"_id": 0}, doc! {"a": {"b": 1, "c": [1]}, "d": 2}),
        (doc! {"_id": 1, "a": 0}, doc! {"_id": 1, "d": 2}),
        (
            doc! {"a.b": false},
            doc! {"_id": 1, "a": {"c": [1]}, "d": 2},
        ),
        (doc! {"d.x": 0}, document.clone()),
    ] {
        check(Mode::Aggregate, &spec, &document, &expected);
    }
}

#[test]
fn arrays_are_projected_element_by_element() {
    let document = doc! {"a": [{"b": 1, "c": 2}, 5, [{"b": 3}, 6], {"c": 4}]};
    let included = doc! {"a": [{"b": 1}, [{"b": 3}], {}]};
    check(Mode::Find, &doc! {"a.b": 1}, &document, &included);
    let excluded = doc! {"a": [{"c": 2}, 5, [{}, 6], {"c": 4}]};
    check(Mode::Find, &doc! {"a.b": 0}, &document, &excluded);
}

#[test]
fn many_fields_are_found_by_name() {
    let spec: Document = (0..100)
        .rev()
        .map(|n| (format!("f{n}"), Bson::Int32(1)))
        .collect();
    let all: Document = (0..120)
        .map(|n| (format!("f{n}"), Bson::Int32(n)))
        .collect();
    let expected: Document = (0..100)
        .map(|n| (format!("f{n}"), Bson::Int32(n)))
        .collect();
    check(Mode::Find, &spec, &all, &expected);
}

#[test]
fn computed_fields_follow() {
    let document = doc! {"_id": 1, "a": 2, "b": {"c": 3}, "l": [{"m": 1}, 7]};
    for (spec, expected) in [
        (
            doc! {"x": "$a", "b": 1},
            doc! {"_id": 1, "b": {"c": 3}, "x": 2},
        ),
        (doc! {"a": "$b.c"}, doc! {"_id": 1, "a": 3}),
        (doc! {"a": "$none", "b": 1}, doc! {"_id": 1, "b": {"c": 3}}),
        (doc! {"a": "text", "_id": 0}, doc! {"a": "text"}),
        (doc! {"a": {"$literal": 1}}, doc! {"_id": 1, "a": 1}),
        (doc! {"b.x": "$a", "_id": 0}, doc! {"b": {"x": 2}}),
        (
            doc! {"b.x": "$a", "b.c": 1},
            doc! {"_id": 1, "b": {"c": 3, "x": 2}},
        ),
        (doc! {"a.x": "$a", "_id": 0}, doc! {"a": {"x": 2}}),
        (
            doc! {"n.x": {"y": "$a"}, "_id": 0},
            doc! {"n": {"x": {"y": 2}}},
        ),
        (
            doc! {"l.x": "$a", "_id": 0},
            doc! {"l": [{"x": 2}, {"x": 2}]},
        ),
    ] {
        check(Mode::Aggregate, &spec, &document, &expected);
        check(Mode::Find, &spec, &document, &expected);
    }
}

#[test]
fn slice_cuts_arrays() {
    let document =
        doc! {"_id": 1, "a": [1, 2, 3], "b": 5, "c": {"d": [1, 2]}, "e": [{"f": [1, 2]}]};
    for (spec, expected) in [
        (
            doc! {"a": {"$slice": 1}, "e": 0, "c": 0},
            doc! {"_id": 1, "a": [1], "b": 5},
        ),
        (
            doc! {"a": {"$slice": -2}, "_id": 1},
            doc! {"_id": 1, "a": [2, 3]},
        ),
        (
            doc! {"a": {"$slice": [1, 1]}, "b": 1},
            doc! {"_id": 1, "a": [2], "b": 5},
        ),
        (doc! {"b": {"$slice": 1}, "_id": 1}, doc! {"_id": 1, "b": 5}),
        (
            doc! {"c.d": {"$slice": 1}, "b": 1},
            doc! {"_id": 1, "b": 5, "c": {"d": [1]}},
        ),
        (
            doc! {"e.f": {"$slice": -1}, "_id": 1},
            doc! {"_id": 1, "e": [{"f": [2]}]},
        ),
    ] {
        check(Mode::Find, &spec, &document, &expected);
    }
}

#[test]
fn elem_match_takes_the_first_match_and_follows() {
    let document =
        doc! {"_id": 1, "a": [{"b": 1}, {"b": 2, "c": 3}, {"b": 2}], "n": [1, 5, 7], "z": 1};
    for (spec, expected) in [
        (
            doc! {"a": {"$elemMatch": {"b": 2}}},
            doc! {"_id": 1, "a": [{"b": 2, "c": 3}]},
        ),
        (
            doc! {"n": {"$elemMatch": {"$gt": 4}}, "z": 1},
            doc! {"_id": 1, "z": 1, "n": [5]},
        ),
        (doc! {"n": {"$elemMatch": {"$gt": 9}}}, doc! {"_id": 1}),
        (doc! {"z": {"$elemMatch": {"$gt": 0}}}, doc! {"_id": 1}),
    ] {
        check(Mode::Find, &spec, &document, &expected);
    }
}

#[test]
fn the_positional_operator_takes_the_matched_element() {
    let run = |spec: Document, query: Document, document: Document| {
        let operation = operation();
        let variables = Variables::new(&operation);
        let context = EvaluationContext::new(&operation, &variables, Collation::SIMPLE);
        let raw = |document: &Document| RawDocumentBuf::try_from(document).unwrap();
        let matcher = Matcher::parse(&raw(&query), &Scope::new(Collation::SIMPLE)).unwrap();
        let mut details = MatchDetails::default();
        assert!(
            matcher
                .matches_recording(&raw(&document), &context, &mut details)
                .unwrap()
        );
        let projection = parse(&spec, Mode::Find).unwrap();
        assert!(projection.needs_match_details());
        projection.check_positional(matcher.root())?;
        project(&projection, &document, Some(&details))
    };
    let found = run(
        doc! {"a.$": 1},
        doc! {"a": {"$gt": 1}},
        doc! {"a": [1, 2, 3], "b": 1},
    );
    assert_eq!(found.unwrap(), doc! {"a": [2]});
    let nested = doc! {"a": [{"b": [1, 2], "c": 1}, {"b": [3, 4], "c": 2}]};
    let found = run(doc! {"a.b.$": 1}, doc! {"a.b": 3}, nested.clone());
    assert_eq!(
        found.unwrap(),
        doc! {"a": [{"b": [3, 4]}]},
        "the first array on the path is cut"
    );
    let found = run(doc! {"a.$.b": 1}, doc! {"a.c": 2}, nested);
    assert_eq!(found.unwrap(), doc! {"a": [{"b": [3, 4], "c": 2}]});
    let found = run(doc! {"a.$": 1}, doc! {"a": 1}, doc! {"a": 1});
    assert_eq!(found.unwrap(), doc! {"a": 1}, "no array, nothing to cut");
    let error = run(doc! {"a.$": 1}, doc! {"b": 1}, doc! {"b": 1}).unwrap_err();
    assert_eq!(error.code().number(), 31277);
    let both = doc! {"a": [1], "b": [0, 0, 7]};
    let error = run(doc! {"a.$": 1}, doc! {"a": 1, "b": 7}, both).unwrap_err();
    assert_eq!(error.code().number(), 51247);
    let or = doc! {"$or": [{"a": 1}, {"a": 2}]};
    let error = run(doc! {"a.$": 1}, or, doc! {"a": [1]}).unwrap_err();
    assert_eq!(error.code().number(), 51246);
}

#[test]
#[expect(clippy::too_many_lines, reason = "it is one table")]
fn conflicts_have_mongodbs_codes() {
    let twice = "Cannot specify more than one positional projection per query.";
    let exclusive = "Cannot specify positional operator and $elemMatch.";
    for (spec, code, message) in [
        (
            doc! {"a": 1, "b": 0},
            31254,
            "Cannot do exclusion on field b in inclusion projection",
        ),
        (
            doc! {"a": 0, "b": 1},
            31253,
            "Cannot do inclusion on field b in exclusion projection",
        ),
        (
            doc! {"a": 1, "a.b": 1},
            31249,
            "Path collision at a.b remaining portion b",
        ),
        (doc! {"a.b": 1, "a": 1}, 31250, "Path collision at a"),
        (doc! {"a.b": 1, "a": {"c": 1}}, 31250, "Path collision at a"),
        (
            doc! {"a": 0, "b": {"$add": [1, 2]}},
            31252,
            "Cannot use expression other than $meta in exclusion projection",
        ),
        (
            doc! {"a": 0, "b": "x"},
            31310,
            "Cannot use an expression b: \"x\" in an exclusion projection",
        ),
        (doc! {"a.$": 1, "b.$": 1}, 31276, twice),
        (doc! {"a": {"$elemMatch": {}}, "b.$": 1}, 31256, exclusive),
        (doc! {"b.$": 1, "a": {"$elemMatch": {}}}, 31255, exclusive),
        (
            doc! {"a.b": {"$elemMatch": {}}},
            31275,
            "Cannot use $elemMatch projection on a nested field.",
        ),
        (
            doc! {"a": {"$elemMatch": 1}},
            31274,
            "elemMatch: Invalid argument, object required, but got int",
        ),
        (
            doc! {"a.$.$": 1},
            31287,
            "Cannot use positional operator twice: a.$.$",
        ),
        (
            doc! {"a.$": "x"},
            31308,
            "positional projection cannot be used with a literal",
        ),
        (
            doc! {"a.$": {"b": 1}},
            31271,
            "positional projection cannot be used with an expression or sub object",
        ),
        (
            doc! {"a": {}},
            51270,
            "An empty sub-projection is not a valid value. Found empty object at path a",
        ),
        (
            doc! {"a": {"$nonsense": 1}},
            31325,
            "Unknown expression $nonsense",
        ),
        (
            doc! {"": 1},
            40352,
            "FieldPath cannot be constructed with empty string",
        ),
        (doc! {"a.": 1}, 40353, "FieldPath must not end with a '.'."),
        (
            doc! {"a..b": 1},
            15998,
            "FieldPath field names may not be empty strings.",
        ),
        (
            doc! {"$a": 1},
            16410,
            "FieldPath field names may not start with '$'. Consider using $getField or $setField.",
        ),
    ] {
        check_error(Mode::Find, &spec, code, message);
    }
    let positional = "Cannot use positional projection in aggregation projection";
    check_error(Mode::Aggregate, &doc! {"a.$": 1}, 31324, positional);
    let elem_match = doc! {"a": {"$elemMatch": {}}};
    check_error(
        Mode::Aggregate,
        &elem_match,
        168,
        "Cannot use $elemMatch in this context",
    );
    let empty = "projection specification must have at least one field";
    check_error(Mode::Aggregate, &doc! {}, 51272, empty);
}

#[test]
fn covered_plans_learn_what_is_required() {
    let required = |spec: Document| parse(&spec, Mode::Find).unwrap().required_fields();
    let paths = |paths: &[&str]| Some(paths.iter().map(|path| Path::parse(path)).collect());
    assert_eq!(required(doc! {"a": 1, "_id": 0}), paths(&["a"]));
    assert_eq!(
        required(doc! {"a": {"b": 1, "c": 1}}),
        paths(&["a.b", "a.c", "_id"])
    );
    assert_eq!(required(doc! {"a": 0}), None);
    assert_eq!(required(doc! {}), None);
    assert_eq!(required(doc! {"x": "$y.z", "_id": 0}), paths(&["y.z"]));
    assert_eq!(required(doc! {"x": "$$ROOT"}), None);
}

#[test]
fn add_fields_sets_in_place() {
    let document = doc! {"_id": 1, "a": 2, "b": {"c": 3}, "l": [{"m": 1}, 7, [8]]};
    let operation = operation();
    let variables = Variables::new(&operation);
    let context = EvaluationContext::new(&operation, &variables, Collation::SIMPLE);
    for (spec, expected) in [
        (doc! {"a": "$b.c"}, doc! {"_id": 1, "a": 3, "b": {"c": 3}}),
        (
            doc! {"z": "$a", "a": 9},
            doc! {"_id": 1, "a": 9, "b": {"c": 3}, "z": 2},
        ),
        (
            doc! {"b.d": "$a"},
            doc! {"_id": 1, "a": 2, "b": {"c": 3, "d": 2}},
        ),
        (
            doc! {"b": {"c": "$a", "e": 1}},
            doc! {"_id": 1, "a": 2, "b": {"c": 2, "e": 1}},
        ),
        (
            doc! {"a.x": 1},
            doc! {"_id": 1, "a": {"x": 1}, "b": {"c": 3}},
        ),
        (doc! {"a": "$none"}, doc! {"_id": 1, "b": {"c": 3}}),
        // Allowed since MongoDB 6.1.
        (doc! {"a": {}}, doc! {"_id": 1, "a": {}, "b": {"c": 3}}),
        (
            doc! {"b": {"c": {}, "d": 1}},
            doc! {"_id": 1, "a": 2, "b": {"c": {}, "d": 1}},
        ),
    ] {
        let mut document = document.clone();
        document.remove("l");
        let add_fields = AddFields::parse(&spec, &Scope::new(Collation::SIMPLE)).unwrap();
        let found = add_fields.apply(document, &context).unwrap();
        assert_eq!(found.to_string(), expected.to_string(), "{spec}");
    }
    let add_fields = AddFields::parse(&doc! {"l.m": "$a"}, &Scope::new(Collation::SIMPLE)).unwrap();
    let found = add_fields.apply(document, &context).unwrap();
    assert_eq!(
        found.get("l"),
        Some(&bson::bson!([{"m": 2}, {"m": 2}, [{"m": 2}]]))
    );
    assert_eq!(add_fields.assigned_paths(), [Path::parse("l.m")]);
}

#[test]
fn add_fields_refuses_conflicts() {
    for (spec, code) in [
        (doc! {"a": 1, "a.b": 2}, 40176),
        (doc! {"a.b": 1, "a": 2}, 40176),
        (doc! {"a": {"b": 1, "$add": []}}, 16410),
        (doc! {"$a": 1}, 16410),
        (doc! {"": 1}, 40352),
    ] {
        let error = AddFields::parse(&spec, &Scope::new(Collation::SIMPLE)).unwrap_err();
        assert_eq!(error.code().number(), code, "{spec}");
    }
    let error = AddFields::parse(
        &doc! {"x": 1, "a.b": 1, "a": 2},
        &Scope::new(Collation::SIMPLE),
    )
    .unwrap_err();
    let message = "specification contains two conflicting paths. Cannot specify both 'a' and 'a.b'";
    assert_eq!(error.message(), message);
}
