//! Sort keys and the external sort.

use std::cmp::Ordering;

use bson::{Bson, Document, RawDocumentBuf, bson, doc};
use millrace_expression::sort::{SortPattern, Sorter};
use millrace_value::{Collation, ErrorCode, Result};
use proptest::prelude::*;

use crate::environment::{operation, scratch};

const UNLIMITED: usize = usize::MAX;

fn sorted(
    documents: &[Document],
    pattern: &Document,
    limit: Option<usize>,
    memory: usize,
) -> Result<Vec<Document>> {
    let operation = operation(memory);
    let pattern = SortPattern::parse(pattern, Collation::SIMPLE)?;
    let mut sorter = Sorter::new(pattern, limit, Box::new(scratch), true);
    for document in documents {
        sorter.push(&operation, document.clone())?;
    }
    let mut sorted = sorter.finish(&operation)?;
    std::iter::from_fn(|| sorted.next(&operation).transpose()).collect()
}

fn ids(documents: &[Document]) -> Vec<i32> {
    documents
        .iter()
        .map(|document| document.get_i32("_id").expect("an id"))
        .collect()
}

/// Documents `{_id: position, ..}` of the given fields, sorted; the ids in their new order.
fn order(pattern: &Document, fields: Vec<Document>) -> Vec<i32> {
    let documents: Vec<Document> = (0..)
        .zip(fields)
        .map(|(id, fields)| {
            let mut document = doc! {"_id": id};
            document.extend(fields);
            document
        })
        .collect();
    ids(&sorted(&documents, pattern, None, UNLIMITED).expect("the documents can be sorted"))
}

#[test]
fn types_follow_mongodbs_order() {
    let values = vec![
        doc! {"a": Bson::MaxKey},
        doc! {"a": true},
        doc! {"a": "x"},
        doc! {"a": 2_i64},
        doc! {},
        doc! {"a": {"b": 1}},
        doc! {"a": 1.5},
        doc! {"a": Bson::MinKey},
        doc! {"a": null},
    ];
    assert_eq!(
        order(&doc! {"a": 1}, values.clone()),
        [7, 4, 8, 6, 3, 2, 5, 1, 0]
    );
    assert_eq!(order(&doc! {"a": -1}, values), [0, 1, 5, 2, 3, 6, 4, 8, 7]);
}

#[test]
fn arrays_stand_for_their_least_or_greatest_element() {
    let values = vec![
        doc! {"a": [5, 1]},
        doc! {"a": 2},
        doc! {"a": [3, 4]},
        doc! {"a": []},
    ];
    assert_eq!(order(&doc! {"a": 1}, values.clone()), [3, 0, 1, 2]);
    assert_eq!(order(&doc! {"a": -1}, values), [0, 2, 1, 3]);
}

#[test]
fn arrays_of_documents_are_looked_into() {
    let values = vec![
        doc! {"a": [{"b": 3}, {"b": 9}]},
        doc! {"a": {"b": 5}},
        doc! {"a": [{"b": [7, 4]}]},
        doc! {"a": [{"c": 1}, {"b": 1}]},
        doc! {"a": [8]},
    ];
    assert_eq!(order(&doc! {"a.b": 1}, values.clone()), [3, 4, 0, 2, 1]);
    assert_eq!(order(&doc! {"a.b": -1}, values), [0, 2, 1, 3, 4]);
}

#[test]
fn one_element_is_chosen_for_all_fields_of_an_array() {
    // By a.x the first element of document 0 is least; its a.y then counts, not the least a.y.
    let values = vec![
        doc! {"a": [{"x": 1, "y": 9}, {"x": 2, "y": 0}]},
        doc! {"a": [{"x": 1, "y": 5}]},
    ];
    assert_eq!(order(&doc! {"a.x": 1, "a.y": 1}, values), [1, 0]);
}

#[test]
fn positions_name_elements() {
    let values = vec![doc! {"a": [5, 1]}, doc! {"a": [3, 2]}, doc! {"a": [4]}];
    assert_eq!(order(&doc! {"a.0": 1}, values.clone()), [1, 2, 0]);
    assert_eq!(order(&doc! {"a.1": 1}, values), [2, 0, 1]);
}

#[test]
fn parallel_arrays_are_refused() {
    let documents = [doc! {"_id": 0, "a": [1], "b": [2]}];
    let error = sorted(&documents, &doc! {"a": 1, "b": 1}, None, UNLIMITED)
        .expect_err("the key is ambiguous");
    assert_eq!(error.code(), ErrorCode::BadValue);
    assert_eq!(
        error.message(),
        "cannot sort with keys that are parallel arrays"
    );
}

#[test]
fn malformed_patterns_have_mongodbs_codes() {
    for (pattern, code) in [
        (doc! {"a": "x"}, 15974),
        (doc! {"a": 2}, 15975),
        (doc! {"a": 0.5}, 15975),
        (doc! {"": 1}, 40352),
        (doc! {"a.": 1}, 40353),
        (doc! {"a..b": 1}, 15998),
        (doc! {"$a": 1}, 16410),
        (doc! {"a": {"$meta": "textScore"}}, 40218),
        (doc! {"a": {"b": 1}}, 17312),
    ] {
        let error =
            SortPattern::parse(&pattern, Collation::SIMPLE).expect_err("the pattern is malformed");
        assert_eq!(error.code().number(), code, "{pattern}");
    }
    for direction in [bson!(1), bson!(1_i64), bson!(1.0), bson!(-1)] {
        SortPattern::parse(&doc! {"a": direction}, Collation::SIMPLE)
            .expect("the pattern is well formed");
    }
}

#[test]
fn without_disk_the_limit_is_an_error() {
    let operation = operation(1000);
    let pattern = SortPattern::parse(&doc! {"a": 1}, Collation::SIMPLE).expect("a pattern");
    let mut sorter = Sorter::new(pattern, None, Box::new(scratch), false);
    let pushed = (0..100).try_for_each(|a| sorter.push(&operation, doc! {"a": a}));
    let error = pushed.expect_err("100 documents take more than 1000 bytes");
    assert_eq!(
        error.code(),
        ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed
    );
    assert_eq!(
        error.message(),
        "Sort exceeded memory limit of 1000 bytes, but did not opt in to external sorting."
    );
}

#[test]
fn a_limited_sort_of_many_needs_no_disk() {
    let operation = operation(10_000);
    let pattern = SortPattern::parse(&doc! {"a": -1}, Collation::SIMPLE).expect("a pattern");
    let mut sorter = Sorter::new(pattern, Some(3), Box::new(scratch), false);
    for a in 0..10_000 {
        sorter
            .push(&operation, doc! {"_id": a, "a": a % 1000})
            .expect("three documents fit");
        assert!(sorter.memory_bytes() <= 10_000);
    }
    let mut sorted = sorter.finish(&operation).expect("sorts");
    let mut ids = Vec::new();
    while let Some(document) = sorted.next(&operation).expect("reads") {
        ids.push(document.get_i32("_id").expect("an id"));
    }
    assert_eq!(ids, [999, 1999, 2999]);
}

/// Entries larger than a chunk of scratch space come back whole.
#[test]
fn large_documents_survive_spilling() {
    let text = |length: usize, last: char| format!("{}{last}", "x".repeat(length));
    let documents: Vec<Document> = (0..4)
        .map(|id| doc! {"_id": id, "a": text(3_000_000, ['d', 'b', 'c', 'a'][id as usize])})
        .collect();
    let sorted = sorted(&documents, &doc! {"a": 1}, None, 1000).expect("sorts");
    assert_eq!(ids(&sorted), [3, 1, 2, 0]);
    assert_eq!(sorted[0], documents[3]);
}

fn value() -> impl Strategy<Value = Bson> {
    let leaf = prop_oneof![
        Just(Bson::Null),
        (-3..4_i32).prop_map(Bson::Int32),
        (-3..4_i64).prop_map(Bson::Int64),
        (-6..7_i32).prop_map(|half| Bson::Double(f64::from(half) / 2.0)),
        "[ab]{0,2}".prop_map(Bson::String),
        any::<bool>().prop_map(Bson::Boolean),
    ];
    prop_oneof![
        4 => leaf.clone(),
        1 => prop::collection::vec(leaf.clone(), 0..3).prop_map(Bson::Array),
        1 => leaf.prop_map(|value| Bson::Document(doc! {"b": value})),
    ]
}

/// What an array counts as, or the value itself: written down again from the documentation.
fn representative(value: Option<&Bson>, descending: bool) -> Bson {
    match value {
        None => Bson::Null,
        Some(Bson::Array(values)) => {
            let least = values
                .iter()
                .min_by(|a, b| Collation::SIMPLE.compare_bson(a, b));
            let greatest = values
                .iter()
                .max_by(|a, b| Collation::SIMPLE.compare_bson(a, b));
            let chosen = if descending { greatest } else { least };
            chosen.cloned().unwrap_or(Bson::Undefined)
        }
        Some(value) => value.clone(),
    }
}

fn by_documentation(a: &Document, b: &Document, pattern: &Document) -> Ordering {
    for (field, direction) in pattern {
        let descending = *direction == Bson::Int32(-1);
        let (x, y) = (
            representative(a.get(field), descending),
            representative(b.get(field), descending),
        );
        let order = Collation::SIMPLE.compare_bson(&x, &y);
        if order != Ordering::Equal {
            return if descending { order.reverse() } else { order };
        }
    }
    Ordering::Equal
}

proptest! {
    #[test]
    fn external_sort_is_a_stable_sort(
        values in prop::collection::vec((prop::option::of(value()), -2..3_i32), 0..60),
        first_descending: bool,
        second_descending: bool,
        memory in 0..4000_usize,
        limit in prop::option::of(0..70_usize),
    ) {
        let documents: Vec<Document> = (0..)
            .zip(values)
            .map(|(id, (a, c))| {
                let mut document = doc! {"_id": id, "c": c};
                if let Some(a) = a {
                    document.insert("a", a);
                }
                document
            })
            .collect();
        let direction = |descending| if descending { -1 } else { 1 };
        let pattern = doc! {"a": direction(first_descending), "c": direction(second_descending)};
        let mut expected = documents.clone();
        expected.sort_by(|a, b| by_documentation(a, b, &pattern));
        if let Some(limit) = limit {
            expected.truncate(limit);
        }
        let found = sorted(&documents, &pattern, limit, memory).expect("the documents can be sorted");
        prop_assert_eq!(ids(&found), ids(&expected));
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn raw_documents_have_the_same_keys(a in value(), b in value(), descending: bool) {
        let document = doc! {"a": a, "d": {"b": b}};
        let raw = RawDocumentBuf::try_from(&document).expect("the document encodes");
        let direction = if descending { -1 } else { 1 };
        for pattern in [doc! {"a.b": direction}, doc! {"a": direction, "d.b": 1}, doc! {"a.1": direction}] {
            let pattern = SortPattern::parse(&pattern, Collation::SIMPLE).expect("a pattern");
            match (pattern.key(&document), pattern.key(&raw)) {
                (Ok(tree), Ok(bytes)) => prop_assert_eq!(tree, bytes),
                (Err(tree), Err(bytes)) => prop_assert_eq!(tree.code(), bytes.code()),
                (tree, bytes) => panic!("{tree:?} against {bytes:?}"),
            }
        }
    }
}
