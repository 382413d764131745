//! What `explain` says.

use std::time::Duration;

use bson::{Document, doc};
use millrace_collection::RecordKind;

use super::fixture::{Fixture, operation, projection, query};
use crate::executor::{Verbosity, explain};
use crate::planner::{Hint, Query};

fn bed() -> Fixture {
    let indexes = [
        doc! { "v": 2, "key": { "a": 1, "b": -1 }, "name": "a_1_b_-1" },
        doc! { "v": 2, "key": { "c": 1 }, "name": "c_1" },
    ];
    let mut bed = Fixture::new(RecordKind::Clustered, &indexes);
    for id in 0..50 {
        bed.insert(&doc! { "_id": id, "a": id % 5, "b": id, "c": id % 2, "x": id })
            .expect("an insert");
    }
    bed
}

fn winning(bed: &Fixture, query: &Query) -> Document {
    let planned = bed.plan(query).expect("a plan");
    let shown = explain(
        &planned,
        None,
        query,
        &bed.collection,
        Verbosity::QueryPlanner,
        Duration::ZERO,
    )
    .expect("an explanation");
    let plan = shown
        .get_document("queryPlanner")
        .and_then(|p| p.get_document("winningPlan"));
    let mut plan = plan.expect("a winning plan").clone();
    assert_eq!(plan.remove("isCached"), Some(false.into()));
    plan
}

/// The stages from the top down, those with several inputs followed by their number.
fn stages(mut plan: &Document) -> Vec<String> {
    let mut names = Vec::new();
    loop {
        let name = plan.get_str("stage").expect("a stage");
        if let Ok(inputs) = plan.get_array("inputStages") {
            names.push(format!("{name} {}", inputs.len()));
            plan = inputs[0].as_document().expect("a stage");
            continue;
        }
        names.push(name.to_owned());
        match plan.get_document("inputStage") {
            Ok(input) => plan = input,
            Err(_) => return names,
        }
    }
}

#[test]
fn a_scan_of_an_index_is_shown_in_full() {
    let query = query(&doc! { "a": 3, "b": { "$gte": 10, "$lt": 40 }, "x": { "$ne": 13 } });
    assert_eq!(
        winning(&bed(), &query),
        doc! {
            "stage": "FETCH",
            "filter": { "x": { "$not": { "$eq": 13 } } },
            "inputStage": {
                "stage": "IXSCAN",
                "keyPattern": { "a": 1, "b": -1 },
                "indexName": "a_1_b_-1",
                "isMultiKey": false,
                "multiKeyPaths": { "a": [], "b": [] },
                "isUnique": false,
                "isSparse": false,
                "isPartial": false,
                "indexVersion": 2,
                "direction": "forward",
                "indexBounds": { "a": ["[3, 3]"], "b": ["(40, 10]"] },
            },
        }
    );
}

#[test]
fn plans_have_mongodbs_stages() {
    let bed = bed();
    let base = |filter: &Document| query(filter);
    let sorted = |filter: &Document, sort: Document| Query {
        sort: Some(sort),
        ..query(filter)
    };
    for (query, expected) in [
        (base(&doc! {}), vec!["COLLSCAN"]),
        (base(&doc! { "_id": 5 }), vec!["IDHACK"]),
        (base(&doc! { "_id": { "$gt": 5 } }), vec!["FETCH", "IXSCAN"]),
        (base(&doc! { "x": 5 }), vec!["COLLSCAN"]),
        (base(&doc! { "c": 1 }), vec!["FETCH", "IXSCAN"]),
        (base(&doc! { "$alwaysFalse": 1 }), vec!["EOF"]),
        (
            base(&doc! { "$or": [{ "a": 1 }, { "c": 0 }] }),
            vec!["SUBPLAN", "FETCH", "OR 2", "IXSCAN"],
        ),
        (
            base(&doc! { "$or": [{ "a": 1 }, { "x": 0 }] }),
            vec!["COLLSCAN"],
        ),
        (
            sorted(&doc! {}, doc! { "_id": -1 }),
            vec!["FETCH", "IXSCAN"],
        ),
        (
            sorted(&doc! {}, doc! { "a": -1, "b": 1 }),
            vec!["FETCH", "IXSCAN"],
        ),
        (
            sorted(&doc! { "a": 2 }, doc! { "b": 1 }),
            vec!["FETCH", "IXSCAN"],
        ),
        (sorted(&doc! {}, doc! { "b": 1 }), vec!["SORT", "COLLSCAN"]),
        (
            sorted(&doc! { "a": { "$in": [1, 2, 3] } }, doc! { "b": 1 }),
            vec!["FETCH", "SORT_MERGE 3", "IXSCAN"],
        ),
        (
            Query {
                skip: 2,
                limit: Some(3),
                ..base(&doc! { "c": 1 })
            },
            vec!["LIMIT", "SKIP", "FETCH", "IXSCAN"],
        ),
        (
            Query {
                projection: Some(projection(&doc! { "x": 1 })),
                ..base(&doc! { "c": 1 })
            },
            vec!["PROJECTION_SIMPLE", "FETCH", "IXSCAN"],
        ),
        (
            Query {
                projection: Some(projection(&doc! { "_id": 0, "b": 1 })),
                ..base(&doc! { "a": 1 })
            },
            vec!["PROJECTION_COVERED", "IXSCAN"],
        ),
        (
            Query {
                hint: Some(Hint::Natural(-1)),
                ..base(&doc! { "a": 1 })
            },
            vec!["COLLSCAN"],
        ),
    ] {
        assert_eq!(
            stages(&winning(&bed, &query)),
            expected,
            "{:?}",
            query.filter_document
        );
    }
}

#[test]
fn the_scan_with_less_work_wins() {
    let bed = bed();
    // Both indexes can be used; half of the documents have this c, only one has this a and b.
    let query = query(&doc! { "a": 3, "b": { "$gt": 47 }, "c": 0 });
    let planned = bed.plan(&query).expect("a plan");
    let shown = explain(
        &planned,
        None,
        &query,
        &bed.collection,
        Verbosity::QueryPlanner,
        Duration::ZERO,
    )
    .expect("an explanation");
    let planner = shown.get_document("queryPlanner").expect("a planner");
    let name = |plan: &Document| {
        let keys = plan.get_document("inputStage").expect("an index scan");
        keys.get_str("indexName").expect("a name").to_owned()
    };
    assert_eq!(
        name(planner.get_document("winningPlan").expect("a plan")),
        "a_1_b_-1"
    );
    let rejected = planner.get_array("rejectedPlans").expect("a list");
    assert_eq!(rejected.len(), 1);
    assert_eq!(name(rejected[0].as_document().expect("a plan")), "c_1");
}

#[test]
fn work_is_counted() {
    let bed = bed();
    for (query, keys, documents, returned) in [
        (query(&doc! { "a": 3 }), 10, 10, 10),
        (query(&doc! { "a": 3, "x": 13 }), 10, 10, 1),
        (query(&doc! { "x": { "$lt": 7 } }), 0, 50, 7),
        (query(&doc! { "_id": 7 }), 1, 1, 1),
        (
            Query {
                projection: Some(projection(&doc! { "_id": 0, "b": 1 })),
                ..query(&doc! { "a": 1 })
            },
            10,
            0,
            10,
        ),
    ] {
        let mut executor = bed.executor(&query).expect("a plan");
        while executor
            .next(&operation())
            .expect("a document or the end")
            .is_some()
        {}
        let planned = bed.plan(&query).expect("a plan");
        let verbosity = Verbosity::ExecutionStats;
        let shown = explain(
            &planned,
            Some(&executor),
            &query,
            &bed.collection,
            verbosity,
            Duration::ZERO,
        )
        .expect("an explanation");
        let execution = shown.get_document("executionStats").expect("statistics");
        let count = |name| execution.get_i32(name).expect("a count");
        assert_eq!(
            count("totalKeysExamined"),
            keys,
            "{:?}",
            query.filter_document
        );
        assert_eq!(
            count("totalDocsExamined"),
            documents,
            "{:?}",
            query.filter_document
        );
        assert_eq!(count("nReturned"), returned, "{:?}", query.filter_document);
    }
}
