use bson::{bson, doc};
use proptest::prelude::*;

use super::*;
use crate::identical::identical_documents;

/// Documents with few names and values, so that two random ones have much in common.
pub(crate) fn documents() -> impl Strategy<Value = Document> {
    prop::collection::vec((names(), values()), 0..6).prop_map(Document::from_iter)
}

pub(crate) fn names() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c", "0", "1", "x.y", "$z", ""]).prop_map(str::to_owned)
}

pub(crate) fn values() -> impl Strategy<Value = Bson> {
    let leaf = prop_oneof![
        prop::sample::select(vec![-1, 0, 1, 2]).prop_map(Bson::Int32),
        prop::sample::select(vec![-0.0, 0.0, 1.0, f64::NAN]).prop_map(Bson::Double),
        prop::sample::select(vec!["", "t"]).prop_map(Bson::from),
        Just(Bson::Null),
        Just(Bson::Boolean(true)),
    ];
    leaf.prop_recursive(3, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Bson::Array),
            prop::collection::vec((names(), inner), 0..5)
                .prop_map(|fields| Bson::Document(Document::from_iter(fields))),
        ]
    })
}

proptest! {
    #[test]
    fn a_change_leads_from_one_document_to_the_other(before in documents(), after in documents()) {
        let change = compare_documents(&before, &after);
        let stored = Change::parse(&change.to_document()).unwrap();
        for change in [&change, &stored] {
            let once = change.apply(&before);
            prop_assert!(identical_documents(&once, &after), "{once} instead of {after}");
            let twice = change.apply(&once);
            prop_assert!(identical_documents(&twice, &after), "{twice} instead of {after}");
        }
        prop_assert_eq!(change.is_empty(), identical_documents(&before, &after));
    }

    #[test]
    fn reading_arbitrary_documents_never_panics(stored in documents(), before in documents()) {
        let wrapped = doc! {"$v": 2, "diff": {"sa": stored.clone(), "u": stored}};
        if let Ok(change) = Change::parse(&wrapped) {
            let once = change.apply(&before);
            prop_assert!(identical_documents(&change.apply(&once), &once));
        }
    }
}

#[test]
fn the_stored_form_is_the_documented_one() {
    let before = doc! {
        "_id": 1, "same": 5, "gone": true, "n": 1,
        "inside": {"x": 1, "y": 2, "z": 3},
        "grown": [1, 2, 3],
        "cut": [1, 2, 3, 4],
        "deep": [{"x": 1, "y": 1}, 2, 3],
    };
    let after = doc! {
        "_id": 1, "same": 5, "n": 2,
        "inside": {"x": 1, "z": 4},
        "grown": [1, 2, 3, 4],
        "cut": [1, 2],
        "deep": [{"x": 1, "y": 2}, 2, 3],
        "new": "v",
    };
    let expected = doc! {
        "$v": 2,
        "diff": {
            "d": {"gone": false},
            "u": {"n": 2, "inside": {"x": 1, "z": 4}},
            "i": {"new": "v"},
            "sgrown": {"a": true, "u3": 4},
            "scut": {"a": true, "l": 2},
            "sdeep": {"a": true, "s0": {"u": {"y": 2}}},
        },
    };
    let change = compare_documents(&before, &after);
    assert!(
        identical_documents(&change.to_document(), &expected),
        "{}",
        change.to_document()
    );
}

#[test]
fn another_order_is_a_replacement() {
    let change = compare_documents(&doc! {"a": 1, "b": 2}, &doc! {"b": 2, "a": 1});
    assert!(matches!(change, Change::Replacement(_)));
    assert!(identical_documents(
        &change.to_document(),
        &doc! {"$v": 2, "replacement": {"b": 2, "a": 1}}
    ));
}

#[test]
fn parts_that_do_not_fit_are_skipped() {
    let change = Change::parse(&doc! {
        "$v": 2,
        "diff": {"d": {"x": false}, "sa": {"u": {"b": 1}}, "sc": {"a": true, "u0": 1}},
    })
    .unwrap();
    let document = doc! {"a": 5, "c": {"0": 2}};
    assert!(identical_documents(&change.apply(&document), &document));
}

#[test]
fn malformed_changes_are_refused() {
    for stored in [
        doc! {},
        doc! {"$v": 1, "diff": {}},
        doc! {"$v": 2},
        doc! {"$v": 2, "diff": {}, "replacement": {}},
        doc! {"$v": 2, "diff": 5},
        doc! {"$v": 2, "diff": {"q": {}}},
        doc! {"$v": 2, "diff": {"u": 1}},
        doc! {"$v": 2, "diff": {"sa": {"a": true, "u01": 1}}},
        doc! {"$v": 2, "diff": {"sa": {"a": true, "u2000000": 1}}},
        doc! {"$v": 2, "diff": {"sa": {"a": true, "l": -1}}},
        doc! {"$v": 2, "diff": {"sa": {"a": true, "": -1}}},
    ] {
        let error = Change::parse(&stored).unwrap_err();
        assert_eq!(error.code(), ErrorCode::FailedToParse, "{stored}");
    }
    let mut deep = bson!({});
    for _ in 0..250 {
        deep = bson!({"sa": deep});
    }
    assert!(Change::parse(&doc! {"$v": 2, "diff": deep}).is_err());
}
