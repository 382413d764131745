//! Views against the in-memory engine.

use std::sync::Arc;

use bson::{Bson, Document, doc};

use crate::support::Fixture;

/// `src` with ten documents, `other` with three, `v` of the sources with `g: 1`, and `w` above `v`.
fn bed() -> Fixture {
    let bed = Fixture::new();
    let source = |n: i32| doc! {"_id": n, "g": n % 3, "v": n * 10, "tags": [n, n + 1]};
    bed.insert("src", (0..10).map(source).collect());
    bed.insert("other", (0..3).map(|n| doc! {"_id": n, "g": n}).collect());
    bed.run(doc! {"create": "v", "viewOn": "src", "pipeline": [{"$match": {"g": 1}}]});
    bed.run(doc! {"create": "w", "viewOn": "v", "pipeline": [{"$project": {"v": 1, "g": 1}}]});
    bed
}

fn ids(documents: &[Document]) -> Vec<i32> {
    documents
        .iter()
        .map(|document| document.get_i32("_id").expect("an _id"))
        .collect()
}

fn message(bed: &Fixture, command: &Document) -> String {
    match bed.try_run(command.clone()) {
        Ok((reply, _)) => panic!("{command} succeeded: {reply}"),
        Err(error) => error.message().to_owned(),
    }
}

#[test]
fn a_view_is_found_through() {
    let bed = bed();
    assert_eq!(ids(&bed.all(doc! {"find": "v"})), [1, 4, 7]);
    assert_eq!(
        bed.all(doc! {"find": "w", "filter": {"v": {"$gt": 10}}, "sort": {"v": -1}, "limit": 1}),
        [doc! {"_id": 7, "g": 1, "v": 70}]
    );
    assert_eq!(
        bed.all(doc! {"find": "v", "skip": 1, "projection": {"_id": 0, "v": 1}}),
        [doc! {"v": 40}, doc! {"v": 70}]
    );
    // By `_id`, which has a short path for collections.
    assert_eq!(ids(&bed.all(doc! {"find": "v", "filter": {"_id": 4}})), [4]);
    assert!(bed.all(doc! {"find": "v", "filter": {"_id": 5}}).is_empty());
    assert_eq!(
        ids(&bed.all(doc! {"find": "v", "sort": {"$natural": -1}})),
        [7, 4, 1]
    );
    let by_let = doc! {"find": "v", "filter": {"$expr": {"$eq": ["$v", "$$x"]}}, "let": {"x": 40}};
    assert_eq!(ids(&bed.all(by_let)), [4]);
    let reply = bed.run(doc! {"find": "v", "batchSize": 1});
    let cursor = reply.get_document("cursor").expect("a cursor");
    assert_eq!(cursor.get_str("ns").ok(), Some("test.v"));
    assert_eq!(ids(&bed.all(doc! {"find": "v", "batchSize": 1})), [1, 4, 7]);
}

#[test]
fn a_view_is_counted_and_aggregated() {
    let bed = bed();
    let count = |command: Document| bed.run(command).get_i32("n").expect("a count");
    assert_eq!(count(doc! {"count": "v"}), 3);
    assert_eq!(count(doc! {"count": "w", "query": {"v": {"$gt": 10}}}), 2);
    assert_eq!(count(doc! {"count": "v", "skip": 1, "limit": 1}), 1);
    let distinct = |command: Document| {
        bed.run(command)
            .get_array("values")
            .expect("values")
            .clone()
    };
    assert_eq!(
        distinct(doc! {"distinct": "v", "key": "tags", "query": {"_id": {"$lt": 7}}}),
        [1, 2, 4, 5].map(Bson::Int32)
    );
    assert_eq!(distinct(doc! {"distinct": "w", "key": "tags"}), []);
    let sum = doc! {"aggregate": "w", "cursor": {}, "pipeline": [
        {"$group": {"_id": null, "sum": {"$sum": "$v"}}},
    ]};
    assert_eq!(bed.all(sum), [doc! {"_id": null, "sum": 120}]);
}

#[test]
fn a_view_is_joined_with() {
    let bed = bed();
    let sizes = |stage: Document| {
        let pipeline = [stage, doc! {"$project": {"n": {"$size": "$m"}}}];
        bed.all(doc! {"aggregate": "other", "cursor": {}, "pipeline": pipeline.to_vec()})
            .iter()
            .map(|document| document.get_i32("n").expect("a size"))
            .collect::<Vec<_>>()
    };
    let by_fields = doc! {"from": "w", "localField": "g", "foreignField": "g", "as": "m"};
    assert_eq!(sizes(doc! {"$lookup": by_fields}), [0, 3, 0]);
    let by_pipeline = doc! {"from": "v", "as": "m", "let": {"g": "$g"}, "pipeline": [
        {"$match": {"$expr": {"$eq": ["$g", "$$g"]}, "v": {"$gte": 40}}},
    ]};
    assert_eq!(sizes(doc! {"$lookup": by_pipeline}), [0, 2, 0]);
    let graph = doc! {"from": "v", "startWith": "$g", "connectFromField": "g",
    "connectToField": "g", "as": "m"};
    assert_eq!(sizes(doc! {"$graphLookup": graph}), [0, 3, 0]);
    let union = doc! {"$unionWith": {"coll": "v", "pipeline": [{"$match": {"v": 10}}]}};
    let found = bed.all(doc! {"aggregate": "other", "cursor": {}, "pipeline": [union]});
    assert_eq!(ids(&found), [0, 1, 2, 1]);
    // The pipeline of a view may join as well.
    bed.run(doc! {"create": "joined", "viewOn": "other", "pipeline": [
        {"$lookup": {"from": "v", "localField": "g", "foreignField": "g", "as": "m"}},
    ]});
    let found = bed.all(doc! {"find": "joined", "filter": {"m.v": 40}});
    assert_eq!(ids(&found), [1]);
}

#[test]
fn a_filter_reaches_the_index_below_the_views() {
    let bed = bed();
    bed.run(doc! {"createIndexes": "src", "indexes": [{"key": {"v": 1}, "name": "byv"}]});
    for command in [
        doc! {"find": "w", "filter": {"v": 40}},
        doc! {"count": "w", "query": {"v": 40}},
        doc! {"distinct": "w", "key": "g", "query": {"v": 40}},
        doc! {"aggregate": "w", "pipeline": [{"$match": {"v": 40}}], "cursor": {}},
    ] {
        let plan = bed.run(doc! {"explain": command.clone(), "verbosity": "executionStats"});
        let text = plan.to_string();
        assert!(
            text.contains("IXSCAN") && text.contains("byv"),
            "{command}: {plan}"
        );
        assert!(text.contains("test.src"), "{command}: {plan}");
    }
    let hinted = bed.all(doc! {"find": "w", "hint": "byv", "filter": {"v": {"$gt": 10}}});
    assert_eq!(ids(&hinted), [4, 7]);
    assert_eq!(bed.code(doc! {"find": "w", "hint": "nope"}), 2);
}

#[test]
fn what_writes_or_describes_a_collection_is_refused() {
    let bed = bed();
    let refused = "Namespace test.v is a view, not a collection";
    for (command, reported) in [
        (
            doc! {"insert": "v", "documents": [{"_id": 100}, {"_id": 101}]},
            1,
        ),
        (
            doc! {"insert": "v", "documents": [{"_id": 100}, {"_id": 101}], "ordered": false},
            2,
        ),
        (
            doc! {"update": "v", "updates": [{"q": {}, "u": {"$set": {"a": 1}}}]},
            1,
        ),
        (
            doc! {"update": "v", "updates": [{"q": {"_id": 9}, "u": {"a": 1}, "upsert": true}]},
            1,
        ),
        (
            doc! {"delete": "v", "ordered": false, "deletes": [
                {"q": {}, "limit": 1}, {"q": {}, "limit": 0},
            ]},
            2,
        ),
    ] {
        let reply = bed.run(command.clone());
        assert_eq!(reply.get_i32("n").ok(), Some(0), "{command}: {reply}");
        let errors = reply.get_array("writeErrors").expect("it was refused");
        assert_eq!(errors.len(), reported, "{command}: {reply}");
        for error in errors.iter().filter_map(Bson::as_document) {
            assert_eq!(error.get_i32("code").ok(), Some(166), "{command}");
            assert_eq!(error.get_str("errmsg").ok(), Some(refused), "{command}");
        }
    }
    for command in [
        doc! {"findAndModify": "v", "query": {}, "remove": true},
        doc! {"findAndModify": "v", "query": {}, "update": {"$set": {"a": 1}}},
        doc! {"createIndexes": "v", "indexes": [{"key": {"v": 1}, "name": "v_1"}]},
        doc! {"listIndexes": "v"},
        doc! {"dropIndexes": "v", "index": "*"},
        doc! {"collStats": "v"},
        doc! {"aggregate": "v", "pipeline": [{"$collStats": {"count": {}}}], "cursor": {}},
        doc! {"aggregate": "v", "pipeline": [{"$indexStats": {}}], "cursor": {}},
        doc! {"aggregate": "other", "pipeline": [{"$out": "v"}], "cursor": {}},
        doc! {"aggregate": "other", "pipeline": [{"$merge": {"into": "v"}}], "cursor": {}},
        doc! {"explain": {"delete": "v", "deletes": [{"q": {}, "limit": 0}]}},
    ] {
        assert_eq!(bed.code(command.clone()), 166, "{command}");
        assert!(message(&bed, &command).contains(refused), "{command}");
    }
    assert_eq!(
        message(&bed, &doc! {"validate": "v"}),
        "Cannot validate a view"
    );
    let rename = doc! {"renameCollection": "test.v", "to": "test.x"};
    assert_eq!(bed.code(rename.clone()), 166);
    assert_eq!(message(&bed, &rename), "cannot rename view: test.v");
    let onto = doc! {"renameCollection": "test.other", "to": "test.v", "dropTarget": true};
    assert_eq!(bed.code(onto), 48);
    for option in ["tailable", "returnKey", "showRecordId"] {
        assert_eq!(bed.code(doc! {"find": "v", option: true}), 168, "{option}");
    }
    assert_eq!(
        bed.code(doc! {"find": "v", "min": {"v": 1}, "hint": {"v": 1}}),
        168
    );
    assert_eq!(ids(&bed.all(doc! {"find": "v"})), [1, 4, 7]);
    assert_eq!(bed.all(doc! {"find": "other"}).len(), 3);
}

#[test]
fn a_definition_is_checked() {
    let bed = bed();
    for (options, code, message_part) in [
        (doc! {"pipeline": []}, 72, "'pipeline' requires 'viewOn'"),
        (
            doc! {"viewOn": "src", "pipeline": [{"$nope": 1}]},
            40324,
            "'$nope'",
        ),
        (
            doc! {"viewOn": "src", "pipeline": [{"$limit": 1}, {"$out": "x"}]},
            167,
            "$out in location 1",
        ),
        (
            doc! {"viewOn": "src", "pipeline": [{"$merge": {"into": "x"}}]},
            167,
            "writes to disk",
        ),
        (
            doc! {"viewOn": "src", "pipeline": [{"$changeStream": {}}]},
            167,
            "$changeStream",
        ),
        (
            doc! {"viewOn": "src", "pipeline": [{"$documents": []}]},
            73,
            "'$documents' cannot",
        ),
        (
            doc! {"viewOn": "src", "pipeline": {"$match": {}}},
            14,
            "pipeline",
        ),
        (doc! {"viewOn": 5}, 14, "viewOn"),
        (doc! {"viewOn": ""}, 2, "'viewOn' cannot be empty"),
        (
            doc! {"viewOn": "bad"},
            5,
            "View cycle detected: test.bad => test.bad => test.bad",
        ),
        (
            doc! {"viewOn": "src", "capped": true, "size": 5},
            72,
            "capped",
        ),
    ] {
        let mut command = doc! {"create": "bad"};
        command.extend(options);
        assert_eq!(bed.code(command.clone()), code, "{command}");
        let text = message(&bed, &command);
        assert!(text.contains(message_part), "{command}: {text}");
    }
    assert_eq!(bed.code(doc! {"create": "src", "viewOn": "other"}), 48);
    assert_eq!(bed.code(doc! {"create": "v"}), 48);
    assert_eq!(bed.code(doc! {"create": "v", "viewOn": "other"}), 48);
    bed.run(doc! {"create": "v", "viewOn": "src", "pipeline": [{"$match": {"g": 1}}]});
    bed.run(doc! {"create": "later", "viewOn": "nosuch"});
    assert!(bed.all(doc! {"find": "later"}).is_empty());
    assert_eq!(bed.run(doc! {"count": "later"}).get_i32("n").ok(), Some(0));
}

#[test]
fn a_view_is_changed_and_dropped() {
    let bed = bed();
    bed.run(doc! {"collMod": "v", "pipeline": [{"$match": {"g": 2}}]});
    assert_eq!(ids(&bed.all(doc! {"find": "v"})), [2, 5, 8]);
    bed.run(doc! {"collMod": "v", "viewOn": "other"});
    assert_eq!(ids(&bed.all(doc! {"find": "v"})), [2]);
    for (command, code) in [
        (doc! {"collMod": "src", "viewOn": "other"}, 72),
        (doc! {"collMod": "v", "validator": {"a": 1}}, 72),
        (
            doc! {"collMod": "v", "index": {"name": "x", "hidden": true}},
            72,
        ),
        (doc! {"collMod": "v", "viewOn": "w", "pipeline": []}, 5),
        (
            doc! {"collMod": "v", "viewOn": "src", "pipeline": [{"$unionWith": "w"}]},
            5,
        ),
        (
            doc! {"collMod": "v", "viewOn": "src", "pipeline": [{"$nope": 1}]},
            40324,
        ),
    ] {
        assert_eq!(bed.code(command.clone()), code, "{command}");
    }
    assert_eq!(
        ids(&bed.all(doc! {"find": "v"})),
        [2],
        "a refused change changes nothing"
    );
    assert_eq!(
        bed.run(doc! {"drop": "v"}),
        doc! {"ns": "test.v", "ok": 1.0}
    );
    assert!(bed.all(doc! {"find": "v"}).is_empty());
    assert!(bed.all(doc! {"find": "w"}).is_empty());
    bed.insert("v", vec![doc! {"_id": 1, "v": 5}]);
    assert_eq!(bed.all(doc! {"find": "w"}), [doc! {"_id": 1, "v": 5}]);
}

#[test]
fn views_are_listed_kept_and_dropped_with_their_database() {
    let bed = bed();
    let listed = bed.all(doc! {"listCollections": 1, "filter": {"type": "view", "name": "v"}});
    assert_eq!(
        listed,
        [doc! {
            "name": "v", "type": "view",
            "options": {"viewOn": "src", "pipeline": [{"$match": {"g": 1}}]},
            "info": {"readOnly": true},
        }]
    );
    let names = |bed: &Fixture| bed.all(doc! {"listCollections": 1, "nameOnly": true});
    let expected = [
        doc! {"name": "other", "type": "collection"},
        doc! {"name": "src", "type": "collection"},
        doc! {"name": "system.views", "type": "collection"},
        doc! {"name": "v", "type": "view"},
        doc! {"name": "w", "type": "view"},
    ];
    assert_eq!(names(&bed), expected);
    assert_eq!(bed.run(doc! {"dbStats": 1}).get_i32("views").ok(), Some(2));
    assert_eq!(
        bed.all(doc! {"find": "system.views", "filter": {"_id": "test.w"}}),
        [doc! {"_id": "test.w", "viewOn": "v", "pipeline": [{"$project": {"v": 1, "g": 1}}]}]
    );
    bed.run(doc! {"collMod": "v", "pipeline": [{"$match": {"g": 0}}]});
    bed.assert_valid("system.views");
    let reopened = Fixture::on(Arc::clone(&bed.engine));
    assert_eq!(names(&reopened), expected);
    assert_eq!(ids(&reopened.all(doc! {"find": "w"})), [0, 3, 6, 9]);
    reopened.run(doc! {"drop": "w"});
    reopened.assert_valid("system.views");
    let twin = Fixture::on(Arc::clone(&bed.engine));
    twin.run(doc! {"drop": "system.views"});
    assert!(
        twin.all(doc! {"find": "v"}).is_empty(),
        "the views are gone with their collection"
    );
    let reopened = Fixture::on(Arc::clone(&bed.engine));
    reopened.run(doc! {"create": "v", "viewOn": "src"});
    assert_eq!(reopened.all(doc! {"find": "v"}).len(), 10);
    reopened.run(doc! {"dropDatabase": 1});
    assert!(names(&reopened).is_empty());
    assert!(reopened.all(doc! {"find": "v"}).is_empty());
    reopened.run(doc! {"create": "v"});
    let out = doc! {"aggregate": "v", "pipeline": [{"$out": "system.views"}], "cursor": {}};
    assert_eq!(reopened.code(out), 73);
}

#[test]
fn views_lie_above_each_other_up_to_a_limit() {
    let bed = Fixture::new();
    bed.insert("v0", vec![doc! {"_id": 1}]);
    for n in 1..=20 {
        bed.run(doc! {"create": format!("v{n}"), "viewOn": format!("v{}", n - 1)});
    }
    assert_eq!(bed.all(doc! {"find": "v20"}).len(), 1);
    assert_eq!(bed.code(doc! {"create": "v21", "viewOn": "v20"}), 165);
    // A view in the middle counts with what lies above it.
    bed.run(doc! {"create": "low", "viewOn": "v0"});
    assert_eq!(bed.code(doc! {"collMod": "v1", "viewOn": "low"}), 165);
    assert_eq!(bed.code(doc! {"create": "v0", "viewOn": "low"}), 48);
    // Many ways to the same views do not take long: each view is looked at once.
    let bed = Fixture::new();
    for n in 1..=20 {
        let below: Vec<_> = (0..n)
            .map(|other| doc! {"$unionWith": format!("u{other}")})
            .collect();
        bed.run(doc! {"create": format!("u{n}"), "viewOn": "u0", "pipeline": below});
    }
    assert_eq!(bed.code(doc! {"create": "u21", "viewOn": "u20"}), 165);
}
