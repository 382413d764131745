//! `$lookup` and `$graphLookup`.

use bson::{Bson, Document, bson, doc};

use crate::database::Run;

/// What `stage` makes of `input` when collection `other` has these documents.
fn join(other: Vec<Document>, stage: Document, input: Vec<Document>) -> Vec<Document> {
    Run::with(&[("other", other)])
        .run(&[stage], input)
        .expect("the join runs")
}

fn joined_ids(document: &Document) -> Vec<i32> {
    let found = document.get_array("r").expect("the joined array is there");
    found
        .iter()
        .map(|found| {
            found
                .as_document()
                .and_then(|found| found.get_i32("_id").ok())
                .expect("an id")
        })
        .collect()
}

#[test]
fn lookup_joins_by_equal_fields() {
    let other = || {
        vec![
            doc! {"_id": 0, "x": 1},
            doc! {"_id": 1, "x": 1.0},
            doc! {"_id": 2, "x": [1, 2]},
            doc! {"_id": 3, "x": null},
            doc! {"_id": 4},
            doc! {"_id": 5, "x": {"y": 2}},
        ]
    };
    let stage =
        doc! {"$lookup": {"from": "other", "localField": "a", "foreignField": "x", "as": "r"}};
    let case = |input: Document, expected: &[i32]| {
        let output = join(other(), stage.clone(), vec![input.clone()]);
        assert_eq!(output.len(), 1);
        assert_eq!(joined_ids(&output[0]), expected, "{input}");
    };
    case(doc! {"a": 1}, &[0, 1, 2]);
    case(doc! {"a": [1, 2]}, &[0, 1, 2]);
    case(doc! {"a": 2_i64}, &[2]);
    case(doc! {"a": null}, &[3, 4]);
    case(doc! {}, &[3, 4]);
    case(doc! {"a": [7, null]}, &[3, 4]);
    case(doc! {"a": {"y": 2}}, &[5]);
    case(doc! {"a": [[1, 2]]}, &[2]);
    case(doc! {"a": "x"}, &[]);
}

#[test]
fn lookup_replaces_and_nests_its_field() {
    let stage =
        doc! {"$lookup": {"from": "other", "localField": "a", "foreignField": "x", "as": "a.b"}};
    let output = join(
        vec![doc! {"_id": 7, "x": 1}],
        stage,
        vec![doc! {"a": 1, "z": 2}],
    );
    assert_eq!(output, [doc! {"a": {"b": [{"_id": 7, "x": 1}]}, "z": 2}]);
}

#[test]
fn lookup_runs_a_pipeline_with_variables() {
    let other = vec![
        doc! {"_id": 0, "x": 1},
        doc! {"_id": 1, "x": 5},
        doc! {"_id": 2, "x": 9},
    ];
    let pipeline = bson!([
        {"$match": {"$expr": {"$gt": ["$x", "$$low"]}}},
        {"$sort": {"x": -1}},
        {"$project": {"_id": 1}},
    ]);
    let stage =
        doc! {"$lookup": {"from": "other", "let": {"low": "$a"}, "pipeline": pipeline, "as": "r"}};
    let output = join(
        other,
        stage,
        vec![doc! {"a": 1}, doc! {"a": 6}, doc! {"a": 9}],
    );
    let found: Vec<Vec<i32>> = output.iter().map(joined_ids).collect();
    assert_eq!(found, [vec![2, 1], vec![2], vec![]]);
}

#[test]
fn lookup_combines_fields_and_pipeline() {
    let other = vec![
        doc! {"_id": 0, "x": 1, "y": 1},
        doc! {"_id": 1, "x": 1, "y": 2},
    ];
    let stage = doc! {"$lookup": {
        "from": "other", "localField": "a", "foreignField": "x",
        "pipeline": [{"$match": {"y": 2}}], "as": "r",
    }};
    let output = join(other, stage, vec![doc! {"a": 1}]);
    assert_eq!(joined_ids(&output[0]), [1]);
}

#[test]
fn outer_variables_reach_inner_pipelines() {
    let other = vec![doc! {"_id": 0, "x": 1}, doc! {"_id": 1, "x": 2}];
    let inner = bson!([{"$match": {"$expr": {"$eq": ["$x", "$$wanted"]}}}]);
    let outer = bson!([
        {"$limit": 1},
        {"$lookup": {"from": "other", "pipeline": inner, "as": "deep"}},
        {"$project": {"n": {"$size": "$deep"}}},
    ]);
    let stage =
        doc! {"$lookup": {"from": "other", "let": {"wanted": "$a"}, "pipeline": outer, "as": "r"}};
    let output = join(other, stage, vec![doc! {"a": 2}, doc! {"a": 5}]);
    assert_eq!(
        output,
        [
            doc! {"a": 2, "r": [{"_id": 0, "n": 1}]},
            doc! {"a": 5, "r": [{"_id": 0, "n": 0}]},
        ]
    );
}

#[test]
fn lookup_asks_the_collection_for_what_it_needs() {
    let asked = |stage: Document, input: Document| {
        let run = Run::with(&[("other", vec![])]);
        run.run(&[stage], vec![input]).expect("the join runs");
        run.database.filters()
    };
    let stage =
        doc! {"$lookup": {"from": "other", "localField": "a", "foreignField": "x", "as": "r"}};
    assert_eq!(
        asked(stage.clone(), doc! {"a": 1}),
        [Some(doc! {"x": {"$eq": 1}})]
    );
    assert_eq!(
        asked(stage, doc! {"a": [1, 2]}),
        [Some(doc! {"x": {"$in": [1, 2]}})]
    );

    let pipeline = bson!([{"$match": {"y": 3, "$expr": {"$and": [
        {"$eq": ["$x", "$$v"]}, {"$gt": ["$z", "$$v"]},
    ]}}}]);
    let stage =
        doc! {"$lookup": {"from": "other", "let": {"v": "$a"}, "pipeline": pipeline, "as": "r"}};
    assert_eq!(
        asked(stage.clone(), doc! {"a": 1}),
        [Some(doc! {"$and": [{"y": 3}, {"x": {"$eq": 1}}]}),]
    );
    // The query language compares null and arrays differently: they are left to the pipeline.
    assert_eq!(
        asked(stage.clone(), doc! {"a": null}),
        [Some(doc! {"y": 3})]
    );
    assert_eq!(asked(stage, doc! {"a": [1]}), [Some(doc! {"y": 3})]);
}

#[test]
fn lookup_followed_by_unwind_gives_one_document_a_match() {
    let other = || vec![doc! {"_id": 0, "x": 1}, doc! {"_id": 1, "x": 1}];
    let lookup =
        doc! {"$lookup": {"from": "other", "localField": "a", "foreignField": "x", "as": "r"}};
    let input = || vec![doc! {"a": 1}, doc! {"a": 2}];
    let case = |unwind: Bson, expected: &[Document]| {
        let output = Run::with(&[("other", other())])
            .run(&[lookup.clone(), doc! {"$unwind": unwind.clone()}], input())
            .expect("the join runs");
        assert_eq!(output, expected, "{unwind}");
    };
    let first = doc! {"a": 1, "r": {"_id": 0, "x": 1}};
    let second = doc! {"a": 1, "r": {"_id": 1, "x": 1}};
    case(bson!("$r"), &[first.clone(), second.clone()]);
    case(
        bson!({"path": "$r", "preserveNullAndEmptyArrays": true}),
        &[first, second, doc! {"a": 2}],
    );
    case(
        bson!({"path": "$r", "includeArrayIndex": "i", "preserveNullAndEmptyArrays": true}),
        &[
            doc! {"a": 1, "r": {"_id": 0, "x": 1}, "i": 0_i64},
            doc! {"a": 1, "r": {"_id": 1, "x": 1}, "i": 1_i64},
            doc! {"a": 2, "i": null},
        ],
    );
}

#[test]
fn lookup_needs_no_collection_when_its_pipeline_makes_documents() {
    let pipeline = bson!([{"$documents": [{"_id": 1}, {"_id": 2}]}]);
    let stage = doc! {"$lookup": {"pipeline": pipeline, "as": "r"}};
    let output = join(vec![], stage, vec![doc! {}]);
    assert_eq!(joined_ids(&output[0]), [1, 2]);
}

#[test]
fn lookup_joins_with_the_documents_that_its_pipeline_makes() {
    let lookup = |more: Bson| {
        let mut pipeline = vec![bson!({"$documents": [
            {"_id": 1, "x": 1}, {"_id": 2, "x": [1, 2]}, {"_id": 3, "x": 3}, {"_id": 4},
        ]})];
        pipeline.extend(more.as_array().expect("stages").iter().cloned());
        doc! {"$lookup": {
            "localField": "a", "foreignField": "x", "pipeline": pipeline, "as": "r",
        }}
    };
    let case = |more: Bson, input: Document, expected: &[i32]| {
        let output = join(vec![], lookup(more.clone()), vec![input.clone()]);
        assert_eq!(joined_ids(&output[0]), expected, "{input} then {more}");
    };
    case(bson!([]), doc! {"a": 1}, &[1, 2]);
    case(bson!([]), doc! {"a": [2, 3]}, &[2, 3]);
    case(bson!([]), doc! {"a": 9}, &[]);
    case(bson!([]), doc! {}, &[4]);
    // The condition comes before the other stages of the pipeline.
    case(bson!([{"$limit": 1}]), doc! {"a": 3}, &[3]);
    case(
        bson!([{"$match": {"_id": {"$gt": 1}}}]),
        doc! {"a": 1},
        &[2],
    );
    case(bson!([{"$unset": "x"}]), doc! {"a": 1}, &[1, 2]);

    let unwound = Run::with(&[])
        .run(
            &[lookup(bson!([])), doc! {"$unwind": "$r"}],
            vec![doc! {"a": 2}, doc! {"a": 9}],
        )
        .expect("the join runs");
    assert_eq!(unwound, [doc! {"a": 2, "r": {"_id": 2, "x": [1, 2]}}]);
}

#[test]
fn graph_lookup_follows_references() {
    let people = || {
        vec![
            doc! {"_id": 0, "name": "dev"},
            doc! {"_id": 1, "name": "eliot", "boss": "dev"},
            doc! {"_id": 2, "name": "ron", "boss": "eliot"},
            doc! {"_id": 3, "name": "loop", "boss": ["loop", "ron"]},
        ]
    };
    let graph = |more: Document| {
        let mut options = doc! {
            "from": "other", "startWith": "$boss", "connectFromField": "boss",
            "connectToField": "name", "as": "r",
        };
        options.extend(more);
        doc! {"$graphLookup": options}
    };
    let case = |more: Document, start: Bson, expected: &[i32]| {
        let output = join(
            people(),
            graph(more.clone()),
            vec![doc! {"boss": start.clone()}],
        );
        assert_eq!(joined_ids(&output[0]), expected, "{more} from {start}");
    };
    case(doc! {}, bson!("ron"), &[2, 1, 0]);
    case(doc! {}, bson!("loop"), &[3, 2, 1, 0]);
    case(doc! {}, bson!(["dev", "ron"]), &[0, 2, 1]);
    case(doc! {"maxDepth": 0}, bson!("ron"), &[2]);
    case(doc! {"maxDepth": 1}, bson!("ron"), &[2, 1]);
    case(
        doc! {"restrictSearchWithMatch": {"_id": {"$ne": 1}}},
        bson!("ron"),
        &[2],
    );
    let output = join(
        people(),
        graph(doc! {"depthField": "d"}),
        vec![doc! {"boss": "eliot"}],
    );
    assert_eq!(
        output[0].get_array("r").expect("an array"),
        &[
            bson!({"_id": 1, "name": "eliot", "boss": "dev", "d": 0_i64}),
            bson!({"_id": 0, "name": "dev", "d": 1_i64}),
        ]
    );
}
