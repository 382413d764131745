//! Random projections of random documents: bytes and trees agree (see [`project`]), and neither
//! specifications nor documents make them panic.

use bson::{Bson, Document, bson};
use millrace_matcher::MatchDetails;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::{parse, project};
use crate::projection::Mode;

fn name() -> impl Strategy<Value = String> {
    select(["a", "b", "c", "_id"].map(String::from).to_vec())
}

/// A document, in which a name occurs once.
fn document(fields: Vec<(String, Bson)>) -> Document {
    fields.into_iter().collect()
}

fn any_document() -> impl Strategy<Value = Document> {
    let scalar = select(vec![bson!(0), bson!("x"), Bson::Null, bson!(1.5)]);
    let value = scalar.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Bson::Array),
            vec((name(), inner), 0..4).prop_map(|fields| Bson::Document(document(fields))),
        ]
    });
    vec((name(), value), 0..5).prop_map(document)
}

fn path() -> impl Strategy<Value = String> {
    let step = select(["a", "b", "c", "_id", "$"].map(String::from).to_vec());
    (name(), vec(step, 0..3)).prop_map(|(first, rest)| {
        std::iter::once(first)
            .chain(rest)
            .collect::<Vec<_>>()
            .join(".")
    })
}

fn any_specification() -> impl Strategy<Value = Document> {
    let operand = select(vec![
        bson!(1),
        bson!(1),
        bson!(0),
        bson!(true),
        bson!({"$slice": 1}),
        bson!({"$slice": [-2, 1]}),
        bson!({"$elemMatch": {"a": 0}}),
        bson!({"$elemMatch": {"$gte": 0}}),
        bson!("$a.b"),
        bson!("$none"),
        bson!({"b": 1, "c": 1}),
        bson!({"b": 0}),
        bson!({"c": "$a"}),
        bson!([1, "$b"]),
    ]);
    vec((path(), operand), 1..4).prop_map(document)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn bytes_and_trees_agree(
        specification in any_specification(),
        document in any_document(),
        index in proptest::option::of(0_usize..3),
    ) {
        for mode in [Mode::Find, Mode::Aggregate] {
            if let Ok(projection) = parse(&specification, mode) {
                let details = MatchDetails { array_index: index };
                // An error is fine as long as both report it.
                drop(project(&projection, &document, Some(&details)));
            }
        }
    }
}
