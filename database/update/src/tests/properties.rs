//! Properties of random updates.

use bson::{Bson, Document, doc};
use proptest::prelude::*;

use super::support::{apply, apply_matched, upsert};
use crate::Change;
use crate::change::tests::{documents, values};
use crate::identical::identical_documents;

/// Paths that often meet fields of [`documents`].
fn paths() -> impl Strategy<Value = String> {
    let component = prop::sample::select(vec![
        "a", "b", "c", "0", "1", "2", "9", "$", "$[]", "$[i]", "_id", "$z",
    ]);
    let plain = prop::sample::select(vec!["a", "b", "c", "0", "1"]);
    prop_oneof![
        plain.prop_map(str::to_owned),
        prop::collection::vec(component, 1..4).prop_map(|components| components.join(".")),
    ]
}

/// An operator and an operand that it accepts.
fn operations() -> impl Strategy<Value = (&'static str, Bson)> {
    let any = |names: Vec<&'static str>| (prop::sample::select(names), values());
    let number = prop::sample::select(vec![
        Bson::Int32(1),
        Bson::Int64(i64::MAX),
        Bson::Double(0.5),
        Bson::Int32(-1),
    ]);
    let each = (
        prop::collection::vec(values(), 0..4),
        prop::option::of(-3..4),
        prop::option::of(-3..4),
        prop::option::of(prop::sample::select(vec![
            Bson::Int32(1),
            Bson::Int32(-1),
            bson::bson!({"a": 1, "b.0": -1}),
        ])),
    );
    prop_oneof![
        4 => any(vec!["$set", "$set", "$unset", "$min", "$max", "$push", "$addToSet", "$pull"]),
        1 => any(vec!["$setOnInsert", "$pullAll", "$bit", "$pop", "$inc", "$rename", "$currentDate"]),
        1 => (prop::sample::select(vec!["$inc", "$mul", "$pop"]), number),
        1 => paths().prop_map(|target| ("$rename", Bson::String(target))),
        1 => prop::sample::select(vec!["and", "or", "xor"])
            .prop_map(|name| ("$bit", Bson::Document(Document::from_iter([(name.to_owned(), Bson::Int32(6))])))),
        1 => prop::collection::vec(values(), 0..7)
            .prop_map(|each| ("$addToSet", bson::bson!({"$each": each}))),
        1 => each.prop_map(|(each, position, slice, sort)| {
            let mut clauses = doc! {"$each": each};
            clauses.extend(position.map(|value| ("$position".to_owned(), Bson::Int32(value))));
            clauses.extend(slice.map(|value| ("$slice".to_owned(), Bson::Int32(value))));
            clauses.extend(sort.map(|value| ("$sort".to_owned(), value)));
            ("$push", Bson::Document(clauses))
        }),
    ]
}

fn updates() -> impl Strategy<Value = Document> {
    prop::collection::vec((operations(), paths()), 1..4).prop_map(|operations| {
        let mut update = Document::new();
        for ((name, operand), path) in operations {
            let fields = update
                .entry(name.to_owned())
                .or_insert_with(|| Bson::Document(Document::new()));
            if let Bson::Document(fields) = fields {
                fields.insert(path, operand);
            }
        }
        update
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// The description of a change tells what the update did, and may be applied again.
    #[test]
    fn changes_tell_what_updates_did(
        before in documents(),
        update in updates(),
        index in prop::option::of(0..3_usize),
    ) {
        let filters: &[Document] =
            if update.to_string().contains("$[i]") { &[doc! {"i": {"$ne": 1}}] } else { &[] };
        let update = Bson::Document(update);
        if let Ok(outcome) = apply_matched(&before, &update, filters, index) {
            let change = Change::parse(&outcome.change.to_document()).unwrap();
            let once = change.apply(&before);
            prop_assert!(
                identical_documents(&once, &outcome.document),
                "{} instead of {}", once, outcome.document
            );
            prop_assert!(identical_documents(&change.apply(&once), &once));
            prop_assert_eq!(
                outcome.modified,
                !identical_documents(&before, &outcome.document)
            );
        }
    }

    /// An update that consists of $set and $unset changes nothing the second time.
    #[test]
    fn setting_twice_is_setting_once(
        before in documents(),
        fields in prop::collection::vec(("[abc](\\.[abc01])?", values()), 0..3),
        gone in "[abc](\\.[abc01])?",
    ) {
        let fields = Document::from_iter(fields);
        let update = Bson::Document(doc! {"$set": fields, "$unset": {gone: 1}});
        if let Ok(once) = apply(&before, &update) {
            let twice = apply(&once.document, &update).unwrap();
            // Only an array's element can be unset again: it is null, not gone.
            prop_assert!(identical_documents(&once.document, &twice.document));
            prop_assert!(!twice.modified);
        }
    }

    /// Whatever comes in, an error or a document comes out.
    #[test]
    fn arbitrary_updates_never_panic(
        before in documents(),
        update in values(),
        query in documents(),
    ) {
        let _ = apply(&before, &update);
        for name in ["$set", "$push", "$pull", "$bit", "$rename", "$currentDate", "$addToSet"] {
            let wrapped = Document::from_iter([(name.to_owned(), update.clone())]);
            let _ = apply(&before, &Bson::Document(wrapped));
        }
        for name in ["$set", "$unset", "$project", "$replaceRoot", "$replaceWith"] {
            let stage = Document::from_iter([(name.to_owned(), update.clone())]);
            let _ = apply(&before, &Bson::Array(vec![Bson::Document(stage)]));
        }
        let _ = upsert(&query, &update);
    }
}
