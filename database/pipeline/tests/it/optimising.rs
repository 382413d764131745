//! What the optimiser makes of pipelines, and that it keeps their results.

use bson::{Bson, Document, doc};
use millrace_expression::Scope;
use millrace_pipeline::Pipeline;
use millrace_value::Collation;
use proptest::prelude::*;

use crate::database::run;

fn parse(stages: &[Document]) -> Pipeline {
    Pipeline::parse(stages, &Scope::new(Collation::SIMPLE)).expect("a pipeline")
}

#[test]
fn rewrites() {
    let (a, b) = (doc! {"$match": {"a": 1}}, doc! {"$match": {"b": 2}});
    let both = doc! {"$match": {"$and": [{"a": 1}, {"b": 2}]}};
    let (sort, limit, skip) = (
        doc! {"$sort": {"s": 1}},
        doc! {"$limit": 5_i64},
        doc! {"$skip": 3_i64},
    );
    let add = doc! {"$addFields": {"b": "$c"}};
    let include = doc! {"$project": {"a": 1}};
    let unwind = doc! {"$unwind": {"path": "$b"}};
    let lookup = doc! {"$lookup": {"from": "c", "localField": "x", "foreignField": "y", "as": "b"}};
    let cases = [
        (vec![doc! {"$match": {}}, doc! {"$skip": 0}], vec![]),
        (vec![a.clone(), b.clone()], vec![both.clone()]),
        (vec![sort.clone(), a.clone()], vec![a.clone(), sort.clone()]),
        (
            vec![sort.clone(), limit.clone(), a.clone()],
            vec![sort.clone(), limit.clone(), a.clone()],
        ),
        (vec![add.clone(), a.clone()], vec![a.clone(), add.clone()]),
        (vec![add.clone(), b.clone()], vec![add.clone(), b.clone()]),
        (
            vec![add.clone(), both.clone()],
            vec![a.clone(), add.clone(), b.clone()],
        ),
        (
            vec![include.clone(), a.clone()],
            vec![a.clone(), include.clone()],
        ),
        (
            vec![include.clone(), b.clone()],
            vec![include.clone(), b.clone()],
        ),
        (
            vec![unwind.clone(), both.clone()],
            vec![a.clone(), unwind, b.clone()],
        ),
        (vec![lookup.clone(), a.clone()], vec![a.clone(), lookup]),
        (
            vec![add.clone(), limit.clone()],
            vec![limit.clone(), add.clone()],
        ),
        (
            vec![limit.clone(), doc! {"$limit": 2}],
            vec![doc! {"$limit": 2_i64}],
        ),
        (
            vec![skip.clone(), doc! {"$skip": 4}],
            vec![doc! {"$skip": 7_i64}],
        ),
        (
            vec![skip.clone(), limit.clone()],
            vec![doc! {"$limit": 8_i64}, skip.clone()],
        ),
        (
            vec![doc! {"$skip": i64::MAX}, limit.clone()],
            vec![doc! {"$skip": i64::MAX}, limit.clone()],
        ),
        (
            vec![sort.clone(), add.clone(), skip.clone(), limit],
            vec![sort, doc! {"$limit": 8_i64}, skip, add],
        ),
    ];
    for (stages, expected) in cases {
        assert_eq!(parse(&stages).to_bson(), expected, "{stages:?}");
    }
}

#[test]
fn the_beginning_is_told_to_the_planner() {
    let stages = [
        doc! {"$sort": {"s": 1}},
        doc! {"$match": {"a": 1}},
        doc! {"$skip": 3},
        doc! {"$limit": 5},
        doc! {"$group": {"_id": "$k", "n": {"$sum": "$v.w"}}},
    ];
    let pipeline = parse(&stages);
    let prefix = pipeline.prefix();
    assert_eq!(prefix.filter, Some(&doc! {"a": 1}));
    assert_eq!(
        prefix.sort.map(|pattern| pattern.document()),
        Some(&doc! {"s": 1})
    );
    assert_eq!(
        (prefix.skip, prefix.limit, prefix.stages),
        (Some(3), Some(5), 4)
    );
    assert_eq!(
        pipeline.without_prefix(prefix.stages).to_bson(),
        stages[4..]
    );
    assert_eq!(pipeline.leading_match(), Some(&doc! {"a": 1}));
    assert_eq!(pipeline.without_leading_match().leading_match(), None);
    let mut fields: Vec<String> = pipeline
        .required_fields()
        .expect("known")
        .iter()
        .map(ToString::to_string)
        .collect();
    fields.sort();
    assert_eq!(fields, ["a", "k", "s", "v.w"]);
}

#[test]
fn a_limit_that_a_skip_uses_up_stays() {
    let pipeline = parse(&[doc! {"$limit": 3}, doc! {"$skip": 3}]);
    let prefix = pipeline.prefix();
    assert_eq!(
        (prefix.skip, prefix.limit, prefix.stages),
        (None, Some(3), 1)
    );
}

#[test]
fn needed_fields_are_known_or_not() {
    let fields = |stages: &[Document]| {
        parse(stages)
            .required_fields()
            .map(|paths| paths.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    assert_eq!(fields(&[]), None);
    assert_eq!(fields(&[doc! {"$match": {"a": 1}}]), None);
    assert_eq!(fields(&[doc! {"$count": "n"}]), Some(vec![]));
    assert_eq!(
        fields(&[
            doc! {"$match": {"$or": [{"a": 1}, {"b.c": 2}]}},
            doc! {"$count": "n"}
        ]),
        Some(vec!["a".to_owned(), "b.c".to_owned()])
    );
    assert_eq!(fields(&[doc! {"$group": {"_id": "$$ROOT"}}]), None);
    assert_eq!(
        fields(&[doc! {"$match": {"$expr": "$a"}}, doc! {"$count": "n"}]),
        None
    );
    assert_eq!(
        fields(&[
            doc! {"$group": {"_id": "$a.b", "t": {"$top": {"sortBy": {"c": 1}, "output": "$a"}}}}
        ]),
        Some(vec!["a".to_owned(), "c".to_owned()])
    );
}

#[test]
fn writers_are_told() {
    let target = parse(&[doc! {"$merge": {"into": {"db": "d", "coll": "c"}}}]);
    let target = target.writes_to().expect("it writes");
    assert_eq!(
        (target.database, target.collection, target.replaces),
        (Some("d"), "c", false)
    );
    let target = parse(&[doc! {"$out": "c"}]);
    let target = target.writes_to().expect("it writes");
    assert_eq!(
        (target.database, target.collection, target.replaces),
        (None, "c", true)
    );
    assert!(parse(&[doc! {"$limit": 1}]).writes_to().is_none());
}

/// Stages whose neighbours the optimiser rearranges.
fn stage() -> impl Strategy<Value = Document> {
    let field = prop::sample::select(vec!["a", "b", "a.x", "c", "i"]);
    let value = prop::sample::select(vec![Bson::Null, Bson::Int32(1), Bson::Int32(2)]);
    let condition = (field.clone(), value)
        .prop_map(|(field, value)| doc! {field: {"$gte": value}})
        .boxed();
    prop_oneof![
        3 => condition.clone().prop_map(|filter| doc! {"$match": filter}),
        2 => (condition.clone(), condition.clone())
            .prop_map(|(a, b)| doc! {"$match": {"$and": [a, {"$nor": [b]}]}}),
        1 => condition.prop_map(|filter| doc! {"$match": {"$expr": {"$eq": ["$a", 1]}, "$and": [filter]}}),
        1 => (0..4_i32).prop_map(|count| doc! {"$skip": count}),
        1 => (1..6_i32).prop_map(|count| doc! {"$limit": count}),
        1 => field.clone().prop_map(|field| doc! {"$sort": {field: -1}}),
        1 => field.clone().prop_map(|field| doc! {"$project": {field: 1, "n": "$b"}}),
        1 => field.clone().prop_map(|field| doc! {"$project": {"_id": 0, field: 1}}),
        1 => field.clone().prop_map(|field| doc! {"$project": {field: 0}}),
        1 => field.clone().prop_map(|field| doc! {"$addFields": {field: {"$add": ["$b", 1]}}}),
        1 => Just(doc! {"$replaceRoot": {"newRoot": {"a": "$b", "b": "$a", "c": "$$ROOT"}}}),
        1 => field.prop_map(|field| doc! {"$unwind": {"path": format!("${field}"), "includeArrayIndex": "i"}}),
        1 => Just(doc! {"$lookup": {"from": "none", "localField": "a", "foreignField": "a", "as": "c"}}),
        1 => Just(doc! {"$unwind": {"path": "$c", "preserveNullAndEmptyArrays": true}}),
    ]
}

fn document() -> impl Strategy<Value = Document> {
    let leaf = prop_oneof![Just(Bson::Null), (0..4_i32).prop_map(Bson::Int32)];
    let value = prop_oneof![
        2 => leaf.clone(),
        1 => prop::collection::vec(leaf.clone(), 0..3).prop_map(Bson::Array),
        1 => leaf.clone().prop_map(|x| Bson::Document(doc! {"x": x})),
    ];
    (value, leaf, any::<bool>()).prop_map(|(a, b, with_b)| {
        let mut document = doc! {"a": a};
        if with_b {
            document.insert("b", b);
        }
        document
    })
}

proptest! {
    /// The stages one after another, each a pipeline of its own, are what no optimiser has seen.
    #[test]
    fn results_stay_the_same(
        stages in prop::collection::vec(stage(), 0..7),
        documents in prop::collection::vec(document(), 0..8),
    ) {
        // Sums of what is no number fail whether or not a later stage would leave the document out.
        let input: Vec<Document> = (0..)
            .zip(documents)
            .map(|(id, fields)| {
                let mut document = doc! {"_id": id};
                document.extend(fields);
                document
            })
            .collect();
        let one_by_one = stages
            .iter()
            .try_fold(input.clone(), |input, stage| {
                crate::database::Run::default().run(std::slice::from_ref(stage), input)
            });
        if let Ok(expected) = one_by_one {
            prop_assert_eq!(run(&stages, input), expected);
        }
    }
}
