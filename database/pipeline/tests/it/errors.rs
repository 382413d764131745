//! What MongoDB refuses, with its codes.

use bson::{Bson, Document, bson, doc};
use millrace_expression::Scope;
use millrace_pipeline::Pipeline;
use millrace_value::Collation;

use crate::database::failure;

/// Checks the codes that stages fail with.
fn check(cases: &[(Document, i32)]) {
    for (stage, code) in cases {
        assert_eq!(
            failure(std::slice::from_ref(stage), vec![]).0,
            *code,
            "{stage}"
        );
    }
}

#[test]
fn malformed_stages() {
    check(&[
        (doc! {}, 40323),
        (doc! {"$match": {}, "$limit": 1}, 40323),
        (doc! {"$foo": 1}, 40324),
        (doc! {"match": {}}, 40324),
        (doc! {"$match": 1}, 15959),
        (doc! {"$match": {"$foo": 1}}, 2),
        (doc! {"$project": 1}, 15969),
        (doc! {"$project": {}}, 51272),
        (doc! {"$addFields": 1}, 40272),
        (doc! {"$unset": 1}, 31002),
        (doc! {"$unset": []}, 31119),
        (doc! {"$unset": [1]}, 31120),
        (doc! {"$group": 1}, 15947),
        (doc! {"$group": {}}, 15955),
        (doc! {"$group": {"_id": 1, "a.b": {"$sum": 1}}}, 40235),
        (doc! {"$group": {"_id": 1, "$a": {"$sum": 1}}}, 40236),
        (doc! {"$sort": 1}, 15973),
        (doc! {"$sort": {}}, 15976),
        (doc! {"$limit": "x"}, 5_107_201),
        (doc! {"$limit": -1}, 5_107_201),
        (doc! {"$limit": 1.5}, 5_107_201),
        (doc! {"$limit": 0}, 15958),
        (doc! {"$skip": -1}, 5_107_200),
        (doc! {"$unwind": 1}, 15981),
        (doc! {"$unwind": ""}, 28812),
        (doc! {"$unwind": "a"}, 28818),
        (doc! {"$unwind": {"path": 1}}, 28808),
        (
            doc! {"$unwind": {"path": "$a", "preserveNullAndEmptyArrays": 1}},
            28809,
        ),
        (
            doc! {"$unwind": {"path": "$a", "includeArrayIndex": ""}},
            28810,
        ),
        (doc! {"$unwind": {"path": "$a", "x": 1}}, 28811),
        (
            doc! {"$unwind": {"path": "$a", "includeArrayIndex": "$i"}},
            28822,
        ),
    ]);
}

#[test]
fn more_malformed_stages() {
    check(&[
        (doc! {"$count": 1}, 40156),
        (doc! {"$count": ""}, 40157),
        (doc! {"$count": "$a"}, 40158),
        (doc! {"$count": "a.b"}, 40160),
        (doc! {"$sortByCount": 1}, 40149),
        (doc! {"$sortByCount": "a"}, 40148),
        (doc! {"$sortByCount": {"a": 1}}, 40147),
        (doc! {"$facet": {}}, 40169),
        (doc! {"$facet": {"a": 1}}, 40170),
        (doc! {"$facet": {"a": [1]}}, 40171),
        (doc! {"$facet": {"a": [{"$out": "x"}]}}, 40600),
        (doc! {"$facet": {"a": [{"$facet": {"b": []}}]}}, 40600),
        (doc! {"$facet": {"a": [{"$indexStats": {}}]}}, 40600),
        (doc! {"$replaceRoot": 1}, 40229),
        (doc! {"$replaceRoot": {"x": 1}}, 40230),
        (doc! {"$replaceRoot": {}}, 40231),
        (doc! {"$sample": 1}, 28745),
        (doc! {"$sample": {"size": "x"}}, 28746),
        (doc! {"$sample": {"size": -1}}, 28747),
        (doc! {"$sample": {"x": 1}}, 28748),
        (doc! {"$sample": {}}, 28749),
        (doc! {"$unionWith": 1}, 9),
        (doc! {"$unionWith": {"coll": "c", "x": 1}}, 40415),
        (
            doc! {"$unionWith": {"coll": "c", "pipeline": [{"$out": "x"}]}},
            31441,
        ),
        (doc! {"$out": 1}, 16990),
        (doc! {"$out": ""}, 73),
        (doc! {"$out": {"db": "d"}}, 40414),
        (doc! {"$merge": 1}, 51182),
        (doc! {"$merge": {"into": 1}}, 51178),
        (doc! {"$indexStats": {"a": 1}}, 28803),
        (doc! {"$collStats": 1}, 5_447_000),
        (doc! {"$collStats": {"x": {}}}, 40415),
        (doc! {"$changeStream": {}}, 40573),
        (doc! {"$geoNear": {}}, 115),
    ]);
}

#[test]
fn malformed_joins() {
    let lookup = |options: Document| failure(&[doc! {"$lookup": options}], vec![]);
    assert_eq!(
        lookup(doc! {"from": "c", "localField": "a", "foreignField": "b"}).0,
        9
    );
    assert_eq!(
        lookup(doc! {"from": "c", "localField": "a", "as": "x"}).0,
        9
    );
    assert_eq!(lookup(doc! {"from": "c", "as": "x"}).0, 9);
    assert_eq!(lookup(doc! {"from": 1, "as": "x"}).0, 9);
    assert_eq!(
        lookup(doc! {"from": "c", "pipeline": [], "as": "x", "y": 1}).0,
        9
    );
    assert_eq!(
        lookup(doc! {"from": "c", "pipeline": [{"$out": "x"}], "as": "x"}).0,
        51047
    );
    let graph = |options: Document| failure(&[doc! {"$graphLookup": options}], vec![]).0;
    assert_eq!(graph(doc! {}), 40105);
    assert_eq!(graph(doc! {"x": 1}), 40104);
    assert_eq!(graph(doc! {"as": 1}), 40103);
    assert_eq!(graph(doc! {"maxDepth": -1}), 40101);
    assert_eq!(graph(doc! {"maxDepth": "x"}), 40100);
    assert_eq!(graph(doc! {"restrictSearchWithMatch": 1}), 40185);
}

#[test]
fn malformed_buckets() {
    let bucket = |options: Bson| failure(&[doc! {"$bucket": options}], vec![]).0;
    assert_eq!(bucket(bson!(1)), 40201);
    assert_eq!(bucket(bson!({"groupBy": "a", "boundaries": [1, 2]})), 40202);
    assert_eq!(bucket(bson!({"groupBy": "$a", "boundaries": 1})), 40200);
    assert_eq!(bucket(bson!({"groupBy": "$a", "boundaries": [1]})), 40192);
    assert_eq!(
        bucket(bson!({"groupBy": "$a", "boundaries": [1, "$b"]})),
        40191
    );
    assert_eq!(
        bucket(bson!({"groupBy": "$a", "boundaries": [1, "b"]})),
        40193
    );
    assert_eq!(
        bucket(bson!({"groupBy": "$a", "boundaries": [2, 1]})),
        40194
    );
    assert_eq!(
        bucket(bson!({"groupBy": "$a", "boundaries": [1, 3], "default": 2})),
        40199
    );
    assert_eq!(
        bucket(bson!({"groupBy": "$a", "boundaries": [1, 3], "default": "$x"})),
        40195
    );
    assert_eq!(
        bucket(bson!({"groupBy": "$a", "boundaries": [1, 3], "output": 2})),
        40196
    );
    assert_eq!(bucket(bson!({"x": 1})), 40197);
    assert_eq!(bucket(bson!({"groupBy": "$a"})), 40198);
    let auto = |options: Bson| failure(&[doc! {"$bucketAuto": options}], vec![]).0;
    assert_eq!(auto(bson!(1)), 40240);
    assert_eq!(auto(bson!({"groupBy": 1})), 40239);
    assert_eq!(auto(bson!({"groupBy": "$a", "buckets": "x"})), 40241);
    assert_eq!(auto(bson!({"groupBy": "$a", "buckets": 1.5})), 40242);
    assert_eq!(auto(bson!({"groupBy": "$a", "buckets": 0})), 40243);
    assert_eq!(
        auto(bson!({"groupBy": "$a", "buckets": 1, "output": 1})),
        40244
    );
    assert_eq!(auto(bson!({"x": 1})), 40245);
    assert_eq!(auto(bson!({"buckets": 1})), 40246);
    assert_eq!(
        auto(bson!({"groupBy": "$a", "buckets": 1, "granularity": "X"})),
        40257
    );
    assert_eq!(
        auto(bson!({"groupBy": "$a", "buckets": 1, "granularity": 1})),
        40261
    );
}

#[test]
fn stages_out_of_place() {
    let match_all = || doc! {"$match": {"a": 1}};
    let cases = [
        (vec![doc! {"$out": "x"}, match_all()], 40601),
        (vec![doc! {"$merge": "x"}, match_all()], 40601),
        (vec![match_all(), doc! {"$collStats": {}}], 40602),
        (vec![match_all(), doc! {"$documents": []}], 40602),
        (vec![match_all(); 1001], 7_749_501),
    ];
    for (stages, code) in cases {
        assert_eq!(failure(&stages, vec![]).0, code);
    }
}

#[test]
fn pipelines_are_nested_to_a_limit() {
    let nested = |depth: usize| {
        let mut stages: Vec<Document> = Vec::new();
        for _ in 0..depth {
            stages = vec![doc! {"$unionWith": {"coll": "c", "pipeline": stages}}];
        }
        Pipeline::parse(&stages, &Scope::new(Collation::SIMPLE))
    };
    assert!(nested(20).is_ok());
    assert_eq!(nested(21).expect_err("too deep").code().number(), 232);
}

#[test]
fn values_that_cannot_be_processed() {
    let (code, message) = failure(
        &[doc! {"$replaceRoot": {"newRoot": "$a"}}],
        vec![doc! {"a": 5}],
    );
    assert_eq!(code, 40228);
    assert_eq!(
        message,
        "'newRoot' expression must evaluate to an object, but resulting value was: 5. Type of \
         resulting value: 'int'. Input document: { a: 5 }"
    );
    assert_eq!(failure(&[doc! {"$redact": "x"}], vec![doc! {}]).0, 17053);
    let bucket = doc! {"$bucket": {"groupBy": "$a", "boundaries": [1, 2]}};
    assert_eq!(failure(&[bucket], vec![doc! {"a": 5}]).0, 40066);
    let rounded = doc! {"$bucketAuto": {"groupBy": "$a", "buckets": 1, "granularity": "R5"}};
    assert_eq!(
        failure(std::slice::from_ref(&rounded), vec![doc! {"a": "x"}]).0,
        40258
    );
    assert_eq!(
        failure(std::slice::from_ref(&rounded), vec![doc! {"a": f64::NAN}]).0,
        40259
    );
    assert_eq!(failure(&[rounded], vec![doc! {"a": -1}]).0, 40260);
}

#[test]
fn namespaces_are_checked() {
    let check = |stages: &[Document], has_collection: bool| {
        let pipeline = Pipeline::parse(stages, &Scope::new(Collation::SIMPLE)).expect("a pipeline");
        pipeline
            .check_namespace(has_collection)
            .map_err(|error| error.message().to_owned())
    };
    assert!(check(&[doc! {"$match": {"a": 1}}], true).is_ok());
    assert!(check(&[doc! {"$documents": []}], false).is_ok());
    assert!(check(&[doc! {"$documents": []}], true).is_err());
    assert_eq!(
        check(&[doc! {"$match": {"a": 1}}], false),
        Err("{aggregate: 1} is not valid for '$match'; a collection is required.".to_owned())
    );
}
