//! Random expressions: each answers a value or an error, and never panics.

use bson::{Bson, Document, bson, doc};
use millrace_value::testing::arbitrary::any_bson;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::RngSeed;

use super::evaluate;
use crate::operators;
use crate::operators::Form;

/// Names of parameters, those of operators that parse their operand by themselves included.
fn parameters() -> Vec<&'static str> {
    let mut names = vec![
        "input",
        "in",
        "as",
        "cond",
        "limit",
        "vars",
        "initialValue",
        "branches",
        "case",
        "then",
        "default",
        "if",
        "else",
        "inputs",
        "defaults",
        "useLongestLength",
        "sortBy",
        "regex",
        "options",
        "field",
        "value",
        "p",
        "method",
        "date",
        "timezone",
    ];
    for operator in operators::all() {
        if let Form::Named { signature, .. } = operator.form {
            names.extend(signature.parameters.iter().map(|parameter| parameter.name));
        }
    }
    names.sort_unstable();
    names.dedup();
    names
}

fn leaf() -> impl Strategy<Value = Bson> {
    let texts = vec![
        "$a",
        "$b",
        "$a.b",
        "$c.d",
        "$$ROOT",
        "$$this",
        "$$value",
        "$$x",
        "$$NOW",
        "$$REMOVE",
        "x",
        "",
        "abc",
        "day",
        "month",
        "week",
        "%Y-%m",
        "UTC",
        "Asia/Tokyo",
        "+05",
        "2024-02-29",
        "int",
        "string",
        "date",
        "1.5",
        "é",
        "(a)?",
        "approximate",
        "monday",
    ];
    prop_oneof![
        4 => select(texts).prop_map(|text| Bson::String(text.to_owned())),
        3 => (-3_i32..30).prop_map(Bson::Int32),
        1 => any::<i64>().prop_map(|ms| Bson::DateTime(bson::DateTime::from_millis(ms))),
        1 => Just(bson!({"$literal": {"a": 1}})),
        3 => any_bson(),
    ]
}

fn expression() -> impl Strategy<Value = Bson> {
    let operators: Vec<&'static str> = operators::all().map(|operator| operator.name).collect();
    leaf().prop_recursive(5, 40, 4, move |inner| {
        let operator = select(operators.clone());
        let named = vec((select(parameters()), inner.clone()), 0..5).prop_map(|fields| {
            Bson::Document(
                fields
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), value))
                    .collect(),
            )
        });
        let list = vec(inner.clone(), 0..4).prop_map(Bson::Array);
        let argument = prop_oneof![3 => list.clone(), 3 => named, 2 => inner.clone()];
        let operands = (inner.clone(), inner.clone())
            .prop_map(|(input, body)| bson!({"input": input, "as": "x", "in": body}));
        prop_oneof![
            6 => (operator, argument).prop_map(|(name, argument)| bson!({name: argument})),
            1 => operands.prop_map(|operands| bson!({"$map": operands})),
            1 => list,
            1 => vec((select(vec!["a", "b", "c"]), inner), 0..3).prop_map(|fields| {
                Bson::Document(fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
            }),
        ]
    })
}

fn document() -> impl Strategy<Value = Document> {
    (any_bson(), any_bson(), -5_i32..5).prop_map(|(a, b, d)| doc! {"a": a, "b": b, "c": {"d": d}})
}

/// Whether a value would be parsed as something else than itself.
fn is_plain(value: &Bson) -> bool {
    match value {
        Bson::String(text) => !text.starts_with('$'),
        Bson::Array(items) => items.iter().all(is_plain),
        Bson::Document(fields) => fields.iter().all(|(name, value)| {
            !name.is_empty() && !name.contains(['$', '.', '\0']) && is_plain(value)
        }),
        _ => true,
    }
}

proptest! {
    // The seed is fixed so that the run is the same everywhere; the fuzz target goes further.
    #![proptest_config(ProptestConfig {
        cases: 4000,
        rng_seed: RngSeed::Fixed(2024),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn expressions_never_panic(expression in expression(), document in document()) {
        // Whether it is an error does not matter here, but an internal one would be a broken invariant.
        if let Err(error) = evaluate(&expression, &document) {
            prop_assert_ne!(error.code().number(), 1, "{} of {}: {}", expression, document, error);
        }
    }

    /// A call with constants, which is computed while it is parsed, answers the same as a call with
    /// fields of these values.
    #[test]
    fn folding_changes_no_result(
        name in select(
            operators::all()
                .map(|operator| operator.name)
                .filter(|name| !["$literal", "$const"].contains(name))
                .collect::<Vec<_>>()
        ),
        a in any_bson().prop_filter("it is no literal", is_plain),
        b in any_bson().prop_filter("it is no literal", is_plain),
    ) {
        let document = doc! {"a": a.clone(), "b": b.clone()};
        for (constants, fields) in [
            (bson!({name: [a.clone()]}), bson!({name: ["$a"]})),
            (bson!({name: [a.clone(), b.clone()]}), bson!({name: ["$a", "$b"]})),
        ] {
            let (folded, evaluated) = (evaluate(&constants, &document), evaluate(&fields, &document));
            match (folded, evaluated) {
                (Ok(folded), Ok(evaluated)) => {
                    prop_assert_eq!(format!("{folded:?}"), format!("{evaluated:?}"));
                }
                (Err(folded), Err(evaluated)) => {
                    prop_assert_eq!(folded.code(), evaluated.code());
                }
                (folded, evaluated) => {
                    prop_assert!(false, "{constants}: {folded:?}, but {evaluated:?}");
                }
            }
        }
    }
}

/// As deep as a client's document may be: parsing and evaluating do not exhaust the stack of a thread.
#[test]
fn the_deepest_expressions_fit_the_stack() {
    for wrap in [
        |inner: Bson| bson!([inner]),
        |inner: Bson| bson!({"a": inner}),
        |inner: Bson| bson!({"$not": inner}),
        |inner: Bson| bson!({"$let": {"vars": {"x": 1}, "in": inner}}),
        |inner: Bson| bson!({"$map": {"input": [1], "in": inner}}),
        |inner: Bson| bson!({"$switch": {"branches": [{"case": true, "then": inner}]}}),
        |inner: Bson| bson!({"$replaceOne": {"input": inner, "find": "x", "replacement": "y"}}),
        |inner: Bson| bson!({"$cond": {"if": true, "then": inner, "else": 1}}),
        |inner: Bson| bson!({"$regexMatch": {"input": {"$toString": inner}, "regex": "a"}}),
    ] {
        let mut expression = bson!("$a");
        for _ in 0..90 {
            expression = wrap(expression);
        }
        let _ = evaluate(&expression, &doc! {"a": "x"}).unwrap();
    }
}
