//! Stages that look at one document at a time, and those that make their own.

use bson::{Bson, Document, bson, doc};

use crate::database::{Run, run};

#[test]
fn stages_give_what_mongodb_gives() {
    let input = || {
        vec![
            doc! {"_id": 1, "a": 5, "b": {"c": "x"}},
            doc! {"_id": 2, "a": 7},
        ]
    };
    let case = |stages: &[Document], expected: &[Document]| {
        assert_eq!(run(stages, input()), expected, "{stages:?}");
    };
    case(&[], &input());
    case(
        &[doc! {"$match": {"a": {"$gt": 5}}}],
        &[doc! {"_id": 2, "a": 7}],
    );
    case(
        &[
            doc! {"$match": {"$expr": {"$eq": ["$a", 5]}}},
            doc! {"$project": {"a": 1}},
        ],
        &[doc! {"_id": 1, "a": 5}],
    );
    case(
        &[doc! {"$project": {"_id": 0, "s": {"$add": ["$a", 1]}}}],
        &[doc! {"s": 6}, doc! {"s": 8}],
    );
    case(
        &[doc! {"$unset": "b"}],
        &[doc! {"_id": 1, "a": 5}, doc! {"_id": 2, "a": 7}],
    );
    case(
        &[doc! {"$unset": ["b.c", "a"]}],
        &[doc! {"_id": 1, "b": {}}, doc! {"_id": 2}],
    );
    case(
        &[doc! {"$addFields": {"b.d": "$a"}}, doc! {"$limit": 1}],
        &[doc! {"_id": 1, "a": 5, "b": {"c": "x", "d": 5}}],
    );
    case(
        &[doc! {"$set": {"a": "$$REMOVE"}}, doc! {"$skip": 1}],
        &[doc! {"_id": 2}],
    );
    case(&[doc! {"$limit": 1}, doc! {"$skip": 1}], &[]);
    case(&[doc! {"$count": "n"}], &[doc! {"n": 2}]);
    case(&[doc! {"$match": {"a": 0}}, doc! {"$count": "n"}], &[]);
    case(
        &[
            doc! {"$match": {"_id": 1}},
            doc! {"$replaceRoot": {"newRoot": "$b"}},
        ],
        &[doc! {"c": "x"}],
    );
    case(
        &[doc! {"$replaceWith": {"x": "$a"}}],
        &[doc! {"x": 5}, doc! {"x": 7}],
    );
    case(
        &[doc! {"$sort": {"a": -1}}, doc! {"$limit": 1}],
        &[doc! {"_id": 2, "a": 7}],
    );
    case(
        &[
            doc! {"$sort": {"a": -1}},
            doc! {"$skip": 1},
            doc! {"$limit": 1},
        ],
        &input()[..1],
    );
}

#[test]
fn unwind_repeats_documents() {
    let input = || {
        vec![
            doc! {"_id": 1, "a": [10, 20]},
            doc! {"_id": 2, "a": []},
            doc! {"_id": 3, "a": null},
            doc! {"_id": 4},
            doc! {"_id": 5, "a": 30},
        ]
    };
    assert_eq!(
        run(&[doc! {"$unwind": "$a"}], input()),
        [
            doc! {"_id": 1, "a": 10},
            doc! {"_id": 1, "a": 20},
            doc! {"_id": 5, "a": 30},
        ]
    );
    let options = doc! {"path": "$a", "preserveNullAndEmptyArrays": true, "includeArrayIndex": "i"};
    assert_eq!(
        run(&[doc! {"$unwind": options}], input()),
        [
            doc! {"_id": 1, "a": 10, "i": 0_i64},
            doc! {"_id": 1, "a": 20, "i": 1_i64},
            doc! {"_id": 2, "i": null},
            doc! {"_id": 3, "a": null, "i": null},
            doc! {"_id": 4, "i": null},
            doc! {"_id": 5, "a": 30, "i": null},
        ]
    );
}

#[test]
fn unwind_keeps_the_place_of_nested_fields() {
    let input = vec![doc! {"a": {"b": [1, [2, 3]], "c": 0}, "z": 9}];
    assert_eq!(
        run(&[doc! {"$unwind": "$a.b"}], input),
        [
            doc! {"a": {"b": 1, "c": 0}, "z": 9},
            doc! {"a": {"b": [2, 3], "c": 0}, "z": 9},
        ]
    );
    // A path through an array leads nowhere.
    assert_eq!(
        run(&[doc! {"$unwind": "$a.b"}], vec![doc! {"a": [{"b": [1]}]}]),
        Vec::<Document>::new()
    );
}

#[test]
fn redact_decides_level_by_level() {
    let condition = doc! {
        "$cond": [{"$lte": [{"$ifNull": ["$level", 0]}, 3]}, "$$DESCEND", "$$PRUNE"]
    };
    let input = vec![
        doc! {"_id": 1, "level": 1, "in": {"level": 5, "x": 1}, "list": [{"level": 2}, {"level": 4}, 7]},
        doc! {"_id": 2, "level": 9},
    ];
    assert_eq!(
        run(&[doc! {"$redact": condition}], input.clone()),
        [doc! {"_id": 1, "level": 1, "list": [{"level": 2}, 7]},]
    );
    assert_eq!(run(&[doc! {"$redact": "$$KEEP"}], input.clone()), input);
}

#[test]
fn redact_sees_the_whole_document_at_every_level() {
    let redact = |condition: Bson, input: Document| {
        let argument = doc! {"$cond": [condition, "$$DESCEND", "$$PRUNE"]};
        run(&[doc! {"$redact": argument}], vec![input])
    };
    let input = || doc! {"_id": 1, "owner": "a", "in": {"x": 1, "owner": "b"}, "list": [{"owner": "a", "deep": {"y": 1}}]};
    // The owner of the whole document decides, whatever its parts say.
    for whole in ["$$ROOT.owner", "$$ROOT"] {
        let owner = bson!({"$getField": {"field": "owner", "input": "$$ROOT"}});
        let owner = if whole == "$$ROOT" {
            owner
        } else {
            bson!(whole)
        };
        assert_eq!(
            redact(bson!({"$eq": [owner, "a"]}), input()),
            [input()],
            "{whole}"
        );
    }
    // Each level decides for itself; a field without a variable is one of the level.
    let expected = [doc! {"_id": 1, "owner": "a", "list": [{"owner": "a"}]}];
    for level in [
        bson!("$owner"),
        bson!("$$CURRENT.owner"),
        bson!({"$getField": "owner"}),
        bson!({"$let": {"vars": {"o": "$owner"}, "in": "$$o"}}),
    ] {
        assert_eq!(
            redact(bson!({"$eq": [level.clone(), "a"]}), input()),
            expected,
            "{level}"
        );
    }
    // Both in one condition.
    let condition = bson!({"$lte": [{"$ifNull": ["$level", 0]}, "$$ROOT.clearance"]});
    let input = doc! {"clearance": 2, "a": {"level": 3}, "b": [{"level": 2, "c": {"level": 3}}, [{"level": 9}]]};
    assert_eq!(
        redact(condition, input),
        [doc! {"clearance": 2, "b": [{"level": 2}, []]}]
    );
}

#[test]
fn sample_gives_different_documents_of_the_input() {
    let input: Vec<Document> = (0..100).map(|id| doc! {"_id": id}).collect();
    let sample = run(&[doc! {"$sample": {"size": 10}}], input.clone());
    assert_eq!(sample.len(), 10);
    assert!(sample.iter().all(|document| input.contains(document)));
    assert!((1..10).all(|index| !sample[..index].contains(&sample[index])));
    assert_eq!(run(&[doc! {"$sample": {"size": 1000}}], input).len(), 100);
}

#[test]
fn facets_see_the_same_documents() {
    let input: Vec<Document> = (0..10).map(|a| doc! {"a": a}).collect();
    let facet = doc! {"$facet": {
        "count": [{"$count": "n"}],
        "first": [{"$limit": 1}],
        "none": [{"$match": {"a": 99}}],
        "all": [],
    }};
    let whole = Run::default();
    let spilling = Run {
        memory: 400,
        ..Run::default()
    };
    for run in [whole, spilling] {
        let output = run
            .run(std::slice::from_ref(&facet), input.clone())
            .expect("the facets run");
        let all: Vec<Bson> = input.iter().cloned().map(Bson::Document).collect();
        assert_eq!(
            output,
            [doc! {
                "count": [{"n": 10}], "first": [{"a": 0}], "none": [], "all": all,
            }]
        );
    }
    let refused = Run {
        memory: 400,
        allow_disk_use: false,
        ..Run::default()
    }
    .run(&[facet], input);
    assert_eq!(
        refused.expect_err("the facets do not fit").code().number(),
        292
    );
}

#[test]
fn union_appends_another_collection() {
    let database = Run::with(&[("other", vec![doc! {"x": 1}, doc! {"x": 2}])]);
    let case = |argument: Bson, expected: &[Document]| {
        let output = database.run(&[doc! {"$unionWith": argument}], vec![doc! {"a": 0}]);
        assert_eq!(output.expect("the union runs"), expected);
    };
    case(
        bson!("other"),
        &[doc! {"a": 0}, doc! {"x": 1}, doc! {"x": 2}],
    );
    case(
        bson!({"coll": "other", "pipeline": [{"$match": {"x": 2}}]}),
        &[doc! {"a": 0}, doc! {"x": 2}],
    );
    case(
        bson!({"pipeline": [{"$documents": [{"y": 3}]}]}),
        &[doc! {"a": 0}, doc! {"y": 3}],
    );
    case(bson!("missing"), &[doc! {"a": 0}]);
}

#[test]
fn some_stages_make_their_own_documents() {
    assert_eq!(
        run(
            &[doc! {"$documents": [{"a": {"$add": [1, 2]}}, {"a": 4}]}],
            vec![]
        ),
        [doc! {"a": 3}, doc! {"a": 4},]
    );
    assert_eq!(
        run(
            &[doc! {"$collStats": {"count": {}}}],
            vec![doc! {"ignored": 1}]
        ),
        [doc! {"ns": "db.source", "asked": {"count": {}}},]
    );
    assert_eq!(
        run(&[doc! {"$indexStats": {}}], vec![]),
        [doc! {"name": "_id_", "of": "source"}]
    );
    assert_eq!(
        run(
            &[
                doc! {"$currentOp": {"allUsers": true}},
                doc! {"$project": {"opid": 1}}
            ],
            vec![]
        ),
        [doc! {"opid": 1},]
    );
}
