use bson::raw::RawDocumentBuf;
use bson::{Bson, Document, bson, doc};
use millrace_value::Collation;
use millrace_value::key::TypeBitsReader;
use millrace_value::testing::arbitrary::any_bson;
use proptest::prelude::*;

use super::*;

fn spec(document: &Document) -> IndexSpec {
    IndexSpec::parse(document).unwrap()
}

fn keys_of(spec: &IndexSpec, document: &Document) -> Result<IndexKeys> {
    IndexKeys::of(spec, &RawDocumentBuf::try_from(document).unwrap())
}

/// The keys as values, and the multikey mask.
fn keys(key: Document, document: &Document) -> (Vec<Vec<Bson>>, u64) {
    let spec = spec(&doc! {"key": key});
    let keys = keys_of(&spec, document).unwrap();
    (decoded(&spec, &keys), keys.multikey)
}

fn decoded(spec: &IndexSpec, keys: &IndexKeys) -> Vec<Vec<Bson>> {
    let decode = |key: &IndexKey| {
        let (mut rest, mut bits) = (key.fields.as_slice(), TypeBitsReader::new(&key.type_bits));
        let values = spec.fields.iter().map(|field| {
            let descending = field.kind == FieldKind::Descending;
            Bson::try_from(millrace_value::key::decode(&mut rest, &mut bits, descending).unwrap())
                .unwrap()
        });
        values.collect()
    };
    keys.keys.iter().map(decode).collect()
}

#[test]
fn without_arrays() {
    let document = doc! {"a": 1, "b": {"c": "x", "d": 2_i64}};
    assert_eq!(keys(doc! {"a": 1}, &document), (vec![vec![bson!(1)]], 0));
    assert_eq!(
        keys(doc! {"b.c": -1, "a": 1}, &document),
        (vec![vec![bson!("x"), bson!(1)]], 0)
    );
    assert_eq!(
        keys(doc! {"b": 1}, &document),
        (vec![vec![bson!({"c": "x", "d": 2_i64})]], 0)
    );
    assert_eq!(keys(doc! {"z": 1}, &document), (vec![vec![Bson::Null]], 0));
    assert_eq!(
        keys(doc! {"a.z": 1}, &document),
        (vec![vec![Bson::Null]], 0)
    );
}

#[test]
fn arrays_are_expanded_once() {
    let one = |values: Vec<Bson>| values.into_iter().map(|v| vec![v]).collect::<Vec<_>>();
    assert_eq!(
        keys(doc! {"a": 1}, &doc! {"a": [3, 1, 3, 1.0]}),
        (one(vec![bson!(1), bson!(3)]), 1)
    );
    assert_eq!(
        keys(doc! {"a": 1}, &doc! {"a": [[1, 2], 5]}),
        (one(vec![bson!(5), bson!([1, 2])]), 1)
    );
    assert_eq!(
        keys(doc! {"a": 1}, &doc! {"a": []}),
        (one(vec![Bson::Undefined]), 1)
    );
    assert_eq!(
        keys(doc! {"a.b": 1}, &doc! {"a": []}),
        (one(vec![Bson::Null]), 1)
    );
    assert_eq!(
        keys(
            doc! {"a.b": 1},
            &doc! {"a": [{"b": 1}, {"b": [2, 3]}, {}, 7, [{"b": 9}]]}
        ),
        (one(vec![Bson::Null, bson!(1), bson!(2), bson!(3)]), 1)
    );
    assert_eq!(
        keys(doc! {"a.b": 1}, &doc! {"a": [{"b": []}]}),
        (one(vec![Bson::Undefined]), 1)
    );
    // The order is that of the encoded, so descending, keys.
    assert_eq!(
        keys(doc! {"a": -1}, &doc! {"a": [1, 2]}),
        (one(vec![bson!(2), bson!(1)]), 1)
    );
}

#[test]
fn compound_keys_over_one_array() {
    assert_eq!(
        keys(
            doc! {"x": 1, "a.b": 1, "a.c": 1},
            &doc! {"x": 0, "a": [{"b": 1, "c": 2}, {"b": 3}]}
        ),
        (
            vec![
                vec![bson!(0), bson!(1), bson!(2)],
                vec![bson!(0), bson!(3), Bson::Null]
            ],
            0b110
        )
    );
    // The array itself and a field in it.
    assert_eq!(
        keys(doc! {"a": 1, "a.b": 1}, &doc! {"a": [{"b": 1}, 5]}),
        (
            vec![vec![bson!(5), Bson::Null], vec![bson!({"b": 1}), bson!(1)]],
            0b11
        )
    );
}

#[test]
fn parallel_arrays_are_refused() {
    for (key, document) in [
        (doc! {"a": 1, "b": 1}, doc! {"a": [1], "b": [2]}),
        (
            doc! {"x.a": 1, "x.b": 1},
            doc! {"x": [{"a": [1], "b": [2]}]},
        ),
        (doc! {"x.a": 1, "b": 1}, doc! {"x": {"a": []}, "b": []}),
    ] {
        let error = keys_of(&spec(&doc! {"key": key}), &document).unwrap_err();
        assert_eq!(error.code(), ErrorCode::CannotIndexParallelArrays);
        assert_eq!(error.message(), "cannot index parallel arrays [b] [a]");
    }
    // Each element has an array in one of the two fields only.
    let document = doc! {"x": [{"a": [1, 2], "b": 0}, {"a": 0, "b": [3]}]};
    let (found, multikey) = keys(doc! {"x.a": 1, "x.b": 1}, &document);
    assert_eq!((found.len(), multikey), (3, 0b11));
}

#[test]
fn positions() {
    let document = doc! {"a": [{"b": 1}, {"b": [2, 3]}, [8, 9]]};
    assert_eq!(
        keys(doc! {"a.0.b": 1}, &document),
        (vec![vec![bson!(1)]], 0)
    );
    assert_eq!(
        keys(doc! {"a.1.b": 1}, &document),
        (vec![vec![bson!(2)], vec![bson!(3)]], 1)
    );
    assert_eq!(
        keys(doc! {"a.2": 1}, &document),
        (vec![vec![bson!(8)], vec![bson!(9)]], 1)
    );
    assert_eq!(
        keys(doc! {"a.2.1": 1}, &document),
        (vec![vec![bson!(9)]], 0)
    );
    // There is no such position: the component names a field of the elements.
    assert_eq!(
        keys(doc! {"a.7": 1}, &document),
        (vec![vec![Bson::Null]], 1)
    );
    assert_eq!(
        keys(doc! {"a.7": 1}, &doc! {"a": [{"7": 1}]}),
        (vec![vec![bson!(1)]], 1)
    );
    // A position in one field while another field has every element.
    assert_eq!(
        keys(
            doc! {"a.0.b": 1, "a.b": 1},
            &doc! {"a": [{"b": 1}, {"b": 2}]}
        ),
        (
            vec![vec![bson!(1), bson!(1)], vec![bson!(1), bson!(2)]],
            0b10
        )
    );
    let ambiguous = doc! {"a": [{"0": 1}]};
    let error = keys_of(&spec(&doc! {"key": {"a.0": 1}}), &ambiguous).unwrap_err();
    assert_eq!(error.code().number(), 16746);
}

#[test]
fn sparse_leaves_out_what_is_missing() {
    let sparse = spec(&doc! {"key": {"a": 1, "b.c": 1}, "sparse": true});
    for (document, count) in [
        (doc! {}, 0),
        (doc! {"b": 1}, 0),
        (doc! {"a": null}, 1),
        (doc! {"a": 1}, 1),
        (doc! {"b": {"c": 1}}, 1),
        (doc! {"b": [{}, {"c": 1}]}, 1),
        (doc! {"a": []}, 1),
    ] {
        assert_eq!(
            keys_of(&sparse, &document).unwrap().keys.len(),
            count,
            "{document}"
        );
    }
}

#[test]
fn partial_indexes_leave_out_what_their_filter_does_not_match() {
    let partial = spec(&doc! {"key": {"a": 1}, "partialFilterExpression": {"b": {"$gt": 1}}});
    assert_eq!(
        keys_of(&partial, &doc! {"a": [1, 2], "b": 2})
            .unwrap()
            .keys
            .len(),
        2
    );
    let left_out = keys_of(&partial, &doc! {"a": [1, 2], "b": 1}).unwrap();
    assert_eq!(left_out, IndexKeys::default());
}

#[test]
fn hashed_fields() {
    let spec = spec(&doc! {"key": {"a.b": "hashed", "c": 1}});
    let keys = keys_of(&spec, &doc! {"a": {"b": "x"}, "c": [1, 2]}).unwrap();
    let hash =
        Bson::Int64(millrace_value::hashed::hashed_value(&bson!("x"), Collation::SIMPLE).unwrap());
    assert_eq!(
        decoded(&spec, &keys),
        vec![vec![hash.clone(), bson!(1)], vec![hash, bson!(2)]]
    );
    let missing = keys_of(&spec, &doc! {}).unwrap();
    let hash =
        Bson::Int64(millrace_value::hashed::hashed_value(&Bson::Null, Collation::SIMPLE).unwrap());
    assert_eq!(decoded(&spec, &missing), vec![vec![hash, Bson::Null]]);
    for document in [doc! {"a": {"b": [1]}}, doc! {"a": [{"b": 1}]}] {
        assert_eq!(
            keys_of(&spec, &document).unwrap_err().code().number(),
            16766
        );
    }
}

#[test]
fn the_number_and_the_size_of_keys_are_bounded() {
    let spec = spec(&doc! {"key": {"a": 1, "s": 1}});
    let many: Vec<i32> = (0..100_001).collect();
    let error = keys_of(&spec, &doc! {"a": many}).unwrap_err();
    assert_eq!(error.code(), ErrorCode::CannotBuildIndexKeys);
    let some: Vec<i32> = (0..1000).collect();
    let error = keys_of(&spec, &doc! {"a": some, "s": "x".repeat(1 << 20)}).unwrap_err();
    assert_eq!(error.code(), ErrorCode::CannotBuildIndexKeys);
}

/// The values that a path without positions leads to, by the definition: follow each component, an
/// array in between stands for its elements, one at the end for its elements too.
fn values_at(value: Option<&Bson>, path: &[&str], expanded: bool) -> Vec<Bson> {
    match (value, path) {
        (Some(Bson::Array(elements)), rest) if !expanded => match (elements.is_empty(), rest) {
            (true, []) => vec![Bson::Undefined],
            (true, _) => vec![Bson::Null],
            (false, _) => elements
                .iter()
                .flat_map(|e| values_at(Some(e), rest, true))
                .collect(),
        },
        (Some(value), []) => vec![value.clone()],
        (Some(Bson::Document(document)), [first, rest @ ..]) => {
            values_at(document.get(first), rest, false)
        }
        _ => vec![Bson::Null],
    }
}

fn nested() -> impl Strategy<Value = Bson> {
    let leaf = prop_oneof![Just(Bson::Null), (0..4).prop_map(Bson::Int32), any_bson()];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Bson::Array),
            prop::collection::vec((prop::sample::select(vec!["a", "b"]), inner), 0..3).prop_map(
                |fields| Bson::Document(
                    fields
                        .into_iter()
                        .map(|(name, value)| (name.to_owned(), value))
                        .collect()
                )
            ),
        ]
    })
}

proptest! {
    #[test]
    fn single_fields_have_the_keys_of_the_definition(
        value in nested(),
        path in prop::sample::select(vec!["a", "a.b", "a.b.a"]),
    ) {
        let document = doc! {"a": value};
        let (found, _) = keys(doc! {path: 1}, &document);
        let components: Vec<_> = path.split('.').collect();
        let mut expected = values_at(Some(&Bson::Document(document)), &components, false);
        expected.sort_by(|a, b| Collation::SIMPLE.compare_bson(a, b));
        expected.dedup_by(|a, b| Collation::SIMPLE.compare_bson(a, b).is_eq());
        prop_assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(&expected) {
            prop_assert!(Collation::SIMPLE.compare_bson(&found[0], expected).is_eq());
        }
    }

    #[test]
    fn keys_are_ascending_and_distinct(a in nested(), b in nested()) {
        let spec = spec(&doc! {"key": {"x.a": -1, "x.b.a": 1, "y": 1}});
        let document = doc! {"x": {"a": a, "b": b}};
        if let Ok(keys) = keys_of(&spec, &document) {
            prop_assert!(keys.keys.windows(2).all(|pair| pair[0].fields < pair[1].fields));
            prop_assert!(keys.keys.len() <= 1 || keys.multikey != 0);
        }
    }
}
