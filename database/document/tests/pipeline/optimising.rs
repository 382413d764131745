//! What the optimiser makes of pipelines, and that it keeps their results.

use bson::{Document, doc};
use millrace_document::expression::Scope;
use millrace_document::pipeline::Pipeline;

fn parse(stages: &[Document]) -> Pipeline {
    Pipeline::parse(stages, &Scope::default()).expect("a pipeline")
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
