//! The matcher on bytes against a naive one on trees, which is written from the documentation.

use std::cmp::Ordering;

use bson::{Bson, Document, bson, doc};
use millrace_value::Collation;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::try_matches;

/// Everything a path leads to; `None` is a missing value.
fn candidates(start: &Document, path: &[&str]) -> Vec<Option<Bson>> {
    let (name, rest) = (path[0], &path[1..]);
    match (start.get(name), rest) {
        (None, _) => vec![None],
        (Some(Bson::Array(items)), []) => {
            let whole = std::iter::once(Some(Bson::Array(items.clone())));
            items.iter().cloned().map(Some).chain(whole).collect()
        }
        (Some(Bson::Array(items)), rest) => in_array(items, rest),
        (Some(found), []) => vec![Some(found.clone())],
        (Some(Bson::Document(inner)), rest) => candidates(inner, rest),
        (Some(_), _) => vec![None],
    }
}

fn in_array(items: &[Bson], path: &[&str]) -> Vec<Option<Bson>> {
    let mut found = Vec::new();
    for (index, item) in items.iter().enumerate() {
        if let Bson::Document(inner) = item {
            found.extend(candidates(inner, path));
        }
        if path[0] == index.to_string() {
            match (item, &path[1..]) {
                (item, []) => found.push(Some(item.clone())),
                (Bson::Document(inner), rest) => found.extend(candidates(inner, rest)),
                (Bson::Array(items), rest) => found.extend(in_array(items, rest)),
                _ => {}
            }
        }
    }
    found
}

/// The types that compare with each other.
fn family(value: &Bson) -> &'static str {
    match value {
        Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) => "number",
        value => millrace_value::type_alias(value),
    }
}

fn is_nan(value: &Bson) -> bool {
    matches!(value, Bson::Double(number) if number.is_nan())
}

fn holds(operator: &str, candidate: Option<&Bson>, operand: &Bson) -> bool {
    let inclusive = matches!(operator, "$eq" | "$lte" | "$gte");
    let Some(candidate) = candidate else {
        return inclusive && *operand == Bson::Null;
    };
    if family(candidate) != family(operand) {
        return false;
    }
    if is_nan(candidate) || is_nan(operand) {
        return inclusive && is_nan(candidate) && is_nan(operand);
    }
    matches!(
        (operator, Collation::SIMPLE.compare_bson(candidate, operand)),
        ("$eq" | "$lte" | "$gte", Ordering::Equal)
            | ("$lt" | "$lte", Ordering::Less)
            | ("$gt" | "$gte", Ordering::Greater)
    )
}

fn naive(document: &Document, path: &str, operator: &str, operand: &Bson) -> bool {
    let path = path.split('.').collect::<Vec<_>>();
    let candidates = candidates(document, &path);
    let some = |operator: &str, operand: &Bson| {
        candidates
            .iter()
            .any(|candidate| holds(operator, candidate.as_ref(), operand))
    };
    let list = operand.as_array().cloned().unwrap_or_default();
    match operator {
        "$ne" => !some("$eq", operand),
        "$in" => list.iter().any(|operand| some("$eq", operand)),
        "$nin" => !list.iter().any(|operand| some("$eq", operand)),
        "$all" => !list.is_empty() && list.iter().all(|operand| some("$eq", operand)),
        "$exists" => candidates.iter().any(Option::is_some) == (*operand == Bson::Boolean(true)),
        operator => some(operator, operand),
    }
}

fn scalar() -> impl Strategy<Value = Bson> {
    select(vec![
        bson!(0),
        bson!(1),
        bson!(2_i64),
        bson!(1.0),
        bson!(1.5),
        bson!(f64::NAN),
        bson!("a"),
        bson!("b"),
        bson!(true),
        Bson::Null,
    ])
}

fn name() -> impl Strategy<Value = &'static str> {
    select(vec!["a", "b", "0", "1"])
}

fn any_value() -> impl Strategy<Value = Bson> {
    scalar().prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Bson::Array),
            vec((name(), inner), 0..3).prop_map(|fields| Bson::Document(document(fields))),
        ]
    })
}

fn document(fields: Vec<(&str, Bson)>) -> Document {
    fields
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

fn any_document() -> impl Strategy<Value = Document> {
    vec((name(), any_value()), 0..4).prop_map(document)
}

fn condition() -> impl Strategy<Value = (&'static str, Bson)> {
    // An operand must not begin with an operator, and these values never do.
    let single = select(vec!["$eq", "$ne", "$lt", "$lte", "$gt", "$gte"]);
    let list = select(vec!["$in", "$nin", "$all"]);
    prop_oneof![
        6 => (single, any_value()),
        3 => (list, vec(any_value(), 0..3).prop_map(Bson::Array)),
        1 => (Just("$exists"), any::<bool>().prop_map(Bson::Boolean)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_matcher_agrees_with_the_naive_one(
        document in any_document(),
        path in vec(name(), 1..4),
        (operator, operand) in condition(),
    ) {
        let path = path.join(".");
        let filter = doc! {&path: {operator: operand.clone()}};
        let expected = naive(&document, &path, operator, &operand);
        prop_assert_eq!(try_matches(&filter, &document).unwrap(), expected, "{} on {}", filter, document);
        let negated = doc! {&path: {"$not": {operator: operand}}};
        prop_assert_eq!(try_matches(&negated, &document).unwrap(), !expected, "{}", negated);
    }
}
