//! What the commands on documents answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bson::{Bson, DateTime, Document, doc};

use crate::support::Fixture;

#[test]
fn documents_are_inserted_found_changed_and_deleted() {
    let bed = Fixture::new();
    bed.insert(
        "c",
        vec![
            doc! {"_id": 1, "a": 1},
            doc! {"_id": 2, "a": 2},
            doc! {"a": 3},
        ],
    );
    assert_eq!(
        bed.all(doc! {"find": "c", "filter": {"_id": 2}}),
        [doc! {"_id": 2, "a": 2}]
    );
    assert_eq!(
        bed.all(doc! {"find": "c", "filter": {"a": {"$gte": 2}}, "sort": {"a": -1}, "projection": {"_id": 0}}),
        [doc! {"a": 3}, doc! {"a": 2}]
    );
    let reply = bed.run(doc! {"update": "c", "updates": [
        {"q": {"a": {"$lt": 3}}, "u": {"$inc": {"a": 10}}, "multi": true},
        {"q": {"_id": 9}, "u": {"$set": {"new": true}}, "upsert": true},
    ]});
    assert_eq!(
        (reply.get_i32("n").ok(), reply.get_i32("nModified").ok()),
        (Some(3), Some(2)),
        "{reply}"
    );
    assert_eq!(
        reply.get_array("upserted").expect("one was upserted"),
        &[Bson::Document(doc! {"index": 1, "_id": 9})]
    );
    let reply = bed.run(doc! {"delete": "c", "deletes": [{"q": {"a": {"$gt": 10}}, "limit": 1}]});
    assert_eq!(reply.get_i32("n").ok(), Some(1));
    assert_eq!(bed.run(doc! {"count": "c"}).get_i32("n").ok(), Some(3));
    assert_eq!(
        bed.run(doc! {"count": "c", "query": {"a": {"$exists": true}}})
            .get_i32("n")
            .ok(),
        Some(2)
    );
    let reply = bed.run(doc! {"delete": "c", "deletes": [{"q": {}, "limit": 0}]});
    assert_eq!(reply.get_i32("n").ok(), Some(3));
    bed.assert_valid("c");
}

#[test]
fn a_batch_goes_on_after_a_failure_unless_it_is_ordered() {
    let bed = Fixture::new();
    let documents = vec![doc! {"_id": 1}, doc! {"_id": 1}, doc! {"_id": 2}];
    let reply = bed.run(doc! {"insert": "c", "documents": documents.clone()});
    assert_eq!(reply.get_i32("n").ok(), Some(1));
    let reply = bed.run(doc! {"insert": "c", "documents": documents, "ordered": false});
    assert_eq!(reply.get_i32("n").ok(), Some(1));
    let errors = reply.get_array("writeErrors").expect("two failed");
    let first = errors[0].as_document().expect("a document");
    assert_eq!(first.get_i32("code").ok(), Some(11000));
    assert_eq!(first.get_document("keyValue").ok(), Some(&doc! {"_id": 1}));
    assert_eq!(errors.len(), 2);
}

#[test]
fn indexes_are_built_kept_and_dropped() {
    let bed = Fixture::new();
    bed.insert(
        "c",
        (0..300)
            .map(|n| doc! {"_id": n, "a": n % 10, "tags": [n % 3, n % 5]})
            .collect(),
    );
    let reply = bed.run(doc! {"createIndexes": "c", "indexes": [
        {"key": {"a": 1, "_id": -1}, "name": "a"}, {"key": {"tags": 1}, "name": "tags"},
    ]});
    assert_eq!(reply.get_i32("numIndexesAfter").ok(), Some(3), "{reply}");
    bed.assert_valid("c");
    let plan =
        bed.run(doc! {"explain": {"find": "c", "filter": {"a": 4}}, "verbosity": "executionStats"});
    assert!(plan.to_string().contains("IXSCAN"), "{plan}");
    let statistics = plan.get_document("executionStats").expect("it was run");
    assert_eq!(
        statistics.get_i32("totalDocsExamined").ok(),
        Some(30),
        "{plan}"
    );
    let found = bed.all(doc! {"find": "c", "filter": {"tags": 4}, "hint": "tags"});
    assert_eq!(found.len(), 60);
    bed.run(doc! {"update": "c", "updates": [{"q": {"a": 4}, "u": {"$set": {"a": 40, "tags": 7}}, "multi": true}]});
    bed.assert_valid("c");
    assert_eq!(
        bed.all(doc! {"find": "c", "filter": {"a": 40}, "hint": "a"})
            .len(),
        30
    );
    bed.run(doc! {"delete": "c", "deletes": [{"q": {"a": {"$gte": 5}}, "limit": 0}]});
    bed.assert_valid("c");
    bed.run(doc! {"dropIndexes": "c", "index": "a"});
    assert_eq!(bed.all(doc! {"listIndexes": "c"}).len(), 2);
    assert_eq!(bed.code(doc! {"dropIndexes": "c", "index": "_id_"}), 72);
    assert_eq!(bed.code(doc! {"dropIndexes": "c", "index": "nope"}), 27);
}

#[test]
fn a_unique_index_that_cannot_be_built_leaves_nothing_behind() {
    let bed = Fixture::new();
    bed.insert("c", vec![doc! {"_id": 1, "a": 1}, doc! {"_id": 2, "a": 1}]);
    let create =
        doc! {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a", "unique": true}]};
    assert_eq!(bed.code(create.clone()), 11000);
    assert_eq!(bed.all(doc! {"listIndexes": "c"}).len(), 1);
    bed.run(doc! {"delete": "c", "deletes": [{"q": {"_id": 2}, "limit": 1}]});
    bed.run(create);
    let reply = bed.run(doc! {"insert": "c", "documents": [{"_id": 3, "a": 1}]});
    assert!(reply.contains_key("writeErrors"), "{reply}");
    bed.assert_valid("c");
}

#[test]
fn an_unfinished_index_is_removed_when_the_database_is_opened() {
    let bed = Fixture::new();
    bed.insert("c", vec![doc! {"_id": 1, "a": 1}]);
    let namespace = millrace_collection::Namespace::parse("test.c").expect("a namespace");
    let spec =
        millrace_collection::index::IndexSpec::parse(&doc! {"key": {"a": 1}, "name": "a", "v": 2});
    bed.database
        .catalog()
        .add_indexes(&namespace, |_| Ok(vec![spec.expect("a specification")]))
        .expect("added");
    let reopened = Fixture::on(Arc::clone(&bed.engine));
    assert_eq!(reopened.all(doc! {"listIndexes": "c"}).len(), 1);
    reopened.assert_valid("c");
}

#[test]
fn cursors_return_batches_and_can_be_killed() {
    let bed = Fixture::new();
    bed.insert("c", (0..250).map(|n| doc! {"_id": n}).collect());
    assert_eq!(bed.all(doc! {"find": "c"}).len(), 250);
    assert_eq!(
        bed.all(doc! {"find": "c", "skip": 5, "limit": 200, "batchSize": 3})
            .len(),
        200
    );
    let reply = bed.run(doc! {"find": "c", "batchSize": 2});
    let id = reply
        .get_document("cursor")
        .and_then(|cursor| cursor.get_i64("id"))
        .expect("an id");
    let reply = bed.run(doc! {"killCursors": "c", "cursors": [id, 5_i64]});
    assert_eq!(
        reply.get_array("cursorsKilled").ok(),
        Some(&vec![Bson::Int64(id)])
    );
    assert_eq!(
        reply.get_array("cursorsNotFound").ok(),
        Some(&vec![Bson::Int64(5)])
    );
    assert_eq!(bed.code(doc! {"getMore": id, "collection": "c"}), 43);
}

#[test]
fn a_cursor_ends_when_its_collection_is_dropped() {
    let bed = Fixture::new();
    bed.insert("c", (0..50).map(|n| doc! {"_id": n}).collect());
    let reply = bed.run(doc! {"find": "c", "batchSize": 2});
    let id = reply
        .get_document("cursor")
        .and_then(|cursor| cursor.get_i64("id"))
        .expect("an id");
    bed.run(doc! {"drop": "c"});
    assert_eq!(bed.code(doc! {"getMore": id, "collection": "c"}), 175);
}

#[test]
fn the_longest_unused_cursors_make_room() {
    const CURSORS: u64 = 1000;
    let bed = Fixture::new();
    bed.insert("c", (0..5).map(|n| doc! {"_id": n}).collect());
    let open = || {
        bed.environment.wall_ms.fetch_add(1, Ordering::Relaxed);
        let reply = bed.run(doc! {"find": "c", "batchSize": 1, "noCursorTimeout": true});
        let cursor = reply.get_document("cursor").expect("a cursor");
        cursor.get_i64("id").expect("an id")
    };
    let first = open();
    for _ in 1..CURSORS {
        open();
    }
    let statistics = bed.database.cursors().statistics();
    assert_eq!(statistics.open + statistics.timed_out_total, CURSORS);
    assert!((1..=256).contains(&statistics.open), "{statistics:?}");
    assert_eq!(bed.code(doc! {"getMore": first, "collection": "c"}), 43);
    let last = open();
    bed.run(doc! {"getMore": last, "collection": "c"});
}

#[test]
fn idle_cursors_are_closed() {
    let bed = Fixture::new();
    bed.insert("c", (0..50).map(|n| doc! {"_id": n}).collect());
    bed.run(doc! {"find": "c", "batchSize": 2});
    bed.run(doc! {"find": "c", "batchSize": 2, "noCursorTimeout": true});
    bed.environment
        .wall_ms
        .fetch_add(11 * 60 * 1000, Ordering::Relaxed);
    let now = bed.operation().environment().monotonic();
    bed.database.close_idle_cursors(now);
    let statistics = bed.database.cursors().statistics();
    assert_eq!((statistics.open, statistics.timed_out_total), (1, 1));
}

#[test]
fn capped_collections_keep_the_youngest_in_order() {
    let bed = Fixture::new();
    bed.run(doc! {"create": "log", "capped": true, "size": 100_000, "max": 10});
    bed.insert("log", (0..25).map(|n| doc! {"n": n}).collect());
    bed.insert("log", vec![doc! {"n": 25}]);
    let numbers: Vec<_> = bed
        .all(doc! {"find": "log"})
        .iter()
        .map(|document| document.get_i32("n").expect("a number"))
        .collect();
    assert_eq!(numbers, (16..26).collect::<Vec<_>>());
    bed.assert_valid("log");
    let reopened = Fixture::on(Arc::clone(&bed.engine));
    reopened.insert("log", vec![doc! {"n": 26}]);
    assert_eq!(reopened.all(doc! {"find": "log"}).len(), 10);
    reopened.assert_valid("log");
}

#[test]
fn a_tailable_cursor_waits_and_goes_on() {
    let bed = Fixture::new();
    bed.run(doc! {"create": "log", "capped": true, "size": 100_000});
    bed.insert("log", vec![doc! {"_id": 1}]);
    let reply = bed.run(doc! {"find": "log", "tailable": true, "awaitData": true});
    let id = reply
        .get_document("cursor")
        .and_then(|cursor| cursor.get_i64("id"))
        .expect("an id");
    assert_ne!(id, 0);
    let more = doc! {"getMore": id, "collection": "log"};
    let (_, effects) = bed.try_run(more.clone()).expect("nothing yet");
    let wait = effects.wait.expect("it waits");
    assert!(!wait.is_over());
    bed.insert("log", vec![doc! {"_id": 2}]);
    assert!(wait.is_over());
    let reply = bed.run(more);
    let batch = reply
        .get_document("cursor")
        .and_then(|cursor| cursor.get_array("nextBatch"));
    assert_eq!(batch.ok(), Some(&vec![Bson::Document(doc! {"_id": 2})]));
    assert_eq!(bed.code(doc! {"find": "c", "tailable": true}), 2);
}

#[test]
fn documents_past_their_time_are_deleted() {
    let bed = Fixture::new();
    let now = bed.environment.wall_ms.load(Ordering::Relaxed);
    bed.insert(
        "c",
        vec![
            doc! {"_id": 1, "at": DateTime::from_millis(now - 61_000)},
            doc! {"_id": 2, "at": DateTime::from_millis(now - 59_000)},
            doc! {"_id": 3, "at": "no date"},
            doc! {"_id": 4},
        ],
    );
    bed.run(doc! {"createIndexes": "c", "indexes": [{"key": {"at": 1}, "name": "at", "expireAfterSeconds": 60}]});
    let deleted = bed.database.delete_expired(&bed.operation());
    deleted.expect("nothing fails");
    assert_eq!(bed.run(doc! {"count": "c"}).get_i32("n").ok(), Some(3));
    assert_eq!(bed.database.expired_documents(), 1);
    // A hidden index is out of the planner's sight, not out of work; a client cannot name it.
    bed.run(doc! {"collMod": "c", "index": {"name": "at", "hidden": true}});
    assert_eq!(bed.code(doc! {"find": "c", "hint": "at"}), 2);
    bed.environment.wall_ms.fetch_add(2_000, Ordering::Relaxed);
    let deleted = bed.database.delete_expired(&bed.operation());
    deleted.expect("nothing fails");
    assert_eq!(bed.run(doc! {"count": "c"}).get_i32("n").ok(), Some(2));
    assert_eq!(bed.database.expired_documents(), 2);
}

#[test]
fn find_and_modify_returns_one_version() {
    let bed = Fixture::new();
    bed.insert("c", vec![doc! {"_id": 1, "a": 1}, doc! {"_id": 2, "a": 2}]);
    let reply = bed.run(doc! {"findAndModify": "c", "query": {}, "sort": {"a": -1}, "update": {"$inc": {"a": 5}}, "new": true});
    assert_eq!(
        reply.get_document("value").ok(),
        Some(&doc! {"_id": 2, "a": 7})
    );
    let reply = bed.run(
        doc! {"findAndModify": "c", "query": {"_id": 1}, "remove": true, "fields": {"_id": 0}},
    );
    assert_eq!(reply.get_document("value").ok(), Some(&doc! {"a": 1}));
    let reply = bed.run(doc! {"findAndModify": "c", "query": {"_id": 8}, "update": {"$set": {"x": 1}}, "upsert": true});
    assert_eq!(reply.get("value"), Some(&Bson::Null));
    assert_eq!(
        reply.get_document("lastErrorObject").ok(),
        Some(&doc! {"n": 1, "updatedExisting": false, "upserted": 8})
    );
}

#[test]
fn pipelines_group_join_and_write() {
    let bed = Fixture::new();
    bed.insert("c", (0..30).map(|n| doc! {"_id": n, "g": n % 3}).collect());
    bed.insert(
        "names",
        (0..3)
            .map(|n| doc! {"_id": n, "name": format!("g{n}")})
            .collect(),
    );
    let found = bed.all(doc! {"aggregate": "c", "cursor": {}, "pipeline": [
        {"$match": {"_id": {"$gte": 3}}},
        {"$group": {"_id": "$g", "n": {"$sum": 1}}},
        {"$lookup": {"from": "names", "localField": "_id", "foreignField": "_id", "as": "names"}},
        {"$project": {"n": 1, "name": {"$first": "$names.name"}}},
        {"$sort": {"_id": 1}},
    ]});
    let expected: Vec<Document> = (0..3)
        .map(|g| doc! {"_id": g, "n": 9, "name": format!("g{g}")})
        .collect();
    assert_eq!(found, expected);
    bed.insert("out", vec![doc! {"_id": "old"}]);
    bed.run(doc! {"createIndexes": "out", "indexes": [{"key": {"g": 1}, "name": "g"}]});
    bed.all(
        doc! {"aggregate": "c", "cursor": {}, "pipeline": [{"$match": {"g": 1}}, {"$out": "out"}]},
    );
    assert_eq!(bed.run(doc! {"count": "out"}).get_i32("n").ok(), Some(10));
    assert_eq!(bed.all(doc! {"listIndexes": "out"}).len(), 2);
    bed.assert_valid("out");
    bed.all(doc! {"aggregate": "c", "cursor": {}, "pipeline": [
        {"$match": {"g": {"$gte": 1}}},
        {"$merge": {"into": "out", "whenMatched": [{"$set": {"seen": true}}], "whenNotMatched": "insert"}},
    ]});
    assert_eq!(bed.run(doc! {"count": "out"}).get_i32("n").ok(), Some(20));
    assert_eq!(
        bed.run(doc! {"count": "out", "query": {"seen": true}})
            .get_i32("n")
            .ok(),
        Some(10)
    );
    assert!(
        bed.all(doc! {"listCollections": 1})
            .iter()
            .all(|c| !c.to_string().contains("tmp."))
    );
}

#[test]
fn a_sort_or_group_over_its_limit_spills_or_fails() {
    let mut bed = Fixture::new();
    bed.limits.stage_memory_bytes = 20_000;
    bed.insert(
        "c",
        (0..2000)
            .map(|n| doc! {"_id": n, "k": (n * 7919) % 2000, "pad": "x".repeat(40)})
            .collect(),
    );
    let sorted = bed.all(doc! {"find": "c", "sort": {"k": 1}});
    let keys: Vec<_> = sorted
        .iter()
        .map(|d| d.get_i32("k").expect("a number"))
        .collect();
    assert_eq!(keys, (0..2000).collect::<Vec<_>>());
    assert_eq!(
        bed.code(doc! {"find": "c", "sort": {"k": 1}, "allowDiskUse": false}),
        292
    );
    let group = |allowed: bool| {
        doc! {"aggregate": "c", "cursor": {}, "allowDiskUse": allowed,
        "pipeline": [{"$group": {"_id": "$k", "n": {"$sum": 1}, "p": {"$push": "$pad"}}}]}
    };
    assert_eq!(bed.all(group(true)).len(), 2000);
    assert_eq!(bed.code(group(false)), 292);
}

#[test]
fn collections_are_created_renamed_changed_and_dropped() {
    let bed = Fixture::new();
    bed.run(doc! {"create": "a", "validator": {"n": {"$type": "int"}}});
    bed.run(doc! {"create": "a", "validator": {"n": {"$type": "int"}}});
    assert_eq!(bed.code(doc! {"create": "a"}), 48);
    let reply = bed.run(doc! {"insert": "a", "documents": [{"n": "x"}]});
    assert_eq!(
        reply.get_array("writeErrors").map(Vec::len).ok(),
        Some(1),
        "{reply}"
    );
    bed.run(doc! {"collMod": "a", "validationLevel": "off"});
    bed.insert("a", vec![doc! {"n": "x"}]);
    bed.insert("b", vec![doc! {"_id": 1}]);
    assert_eq!(
        bed.code(doc! {"renameCollection": "test.a", "to": "test.b"}),
        48
    );
    bed.run(doc! {"renameCollection": "test.a", "to": "test.b", "dropTarget": true});
    assert_eq!(bed.run(doc! {"count": "b"}).get_i32("n").ok(), Some(1));
    let names = bed.all(doc! {"listCollections": 1, "nameOnly": true});
    assert_eq!(names, [doc! {"name": "b", "type": "collection"}]);
    bed.run(doc! {"dropDatabase": 1});
    assert!(bed.all(doc! {"listCollections": 1}).is_empty());
    bed.run(doc! {"drop": "b"});
}

#[test]
fn a_bulk_write_touches_several_collections() {
    let bed = Fixture::new();
    let reply = bed.run(doc! {"bulkWrite": 1,
    "ops": [
        {"insert": 0, "document": {"_id": 1, "a": 1}},
        {"insert": 1, "document": {"_id": 1}},
        {"insert": 0, "document": {"_id": 1}},
        {"update": 0, "filter": {"_id": 1}, "updateMods": {"$set": {"a": 2}}},
        {"delete": 1, "filter": {}, "multi": true},
    ],
    "nsInfo": [{"ns": "test.a"}, {"ns": "test.b"}], "ordered": false});
    assert_eq!(reply.get_i32("nErrors").ok(), Some(1), "{reply}");
    assert_eq!(reply.get_i32("nInserted").ok(), Some(2));
    assert_eq!(reply.get_i32("nModified").ok(), Some(1));
    assert_eq!(reply.get_i32("nDeleted").ok(), Some(1));
    let results = reply
        .get_document("cursor")
        .and_then(|cursor| cursor.get_array("firstBatch"));
    assert_eq!(results.map(Vec::len).ok(), Some(5));
}

#[test]
fn an_update_with_an_unknown_stage_runs_no_statement() {
    let bed = Fixture::new();
    bed.insert("c", vec![doc! {"_id": 1}]);
    let update = |stage: Document| {
        doc! {"update": "c", "updates": [
            {"q": {}, "u": {"$inc": {"a": 1}}},
            {"q": {}, "u": [stage]},
        ]}
    };
    assert_eq!(bed.code(update(doc! {"$nope": true})), 40324);
    assert_eq!(bed.all(doc! {"find": "c"}), [doc! {"_id": 1}]);
    let reply = bed.run(update(doc! {"$match": {}}));
    let errors = reply.get_array("writeErrors").expect("one failed");
    assert_eq!(errors.len(), 1);
    assert_eq!(bed.all(doc! {"find": "c"}), [doc! {"_id": 1, "a": 1}]);
}

#[test]
fn a_clustered_collection_shows_its_index() {
    let bed = Fixture::new();
    let index = |unique: bool| doc! {"key": {"_id": 1}, "unique": unique, "name": "own"};
    assert_eq!(
        bed.code(doc! {"create": "c", "clusteredIndex": index(false)}),
        5_979_700
    );
    let other = doc! {"key": {"a": 1}, "unique": true};
    assert_eq!(bed.code(doc! {"create": "c", "clusteredIndex": other}), 197);
    bed.run(doc! {"create": "c", "clusteredIndex": index(true)});
    assert_eq!(
        bed.all(doc! {"listIndexes": "c"}),
        [doc! {"v": 2, "key": {"_id": 1}, "name": "own", "unique": true, "clustered": true}]
    );
    let listed = bed.all(doc! {"listCollections": 1, "filter": {"name": "c"}});
    assert_eq!(
        listed[0].get_document("options").ok(),
        Some(&doc! {"clusteredIndex": {"v": 2, "key": {"_id": 1}, "name": "own", "unique": true}})
    );
}

#[test]
fn wrong_commands_are_refused_with_mongodbs_codes() {
    let bed = Fixture::new();
    bed.insert("c", vec![doc! {"_id": 1}]);
    for (command, code) in [
        (doc! {"find": "c", "surprise": 1}, 40415),
        (doc! {"find": "c", "filter": 5}, 14),
        (doc! {"find": "c", "filter": {"$foo": 1}}, 2),
        (doc! {"find": "c", "limit": -1}, 51024),
        (doc! {"find": "c", "hint": "nope"}, 2),
        (doc! {"find": ""}, 73),
        (doc! {"find": 5}, 73),
        (doc! {"insert": "c"}, 40414),
        (doc! {"insert": "c", "documents": []}, 16),
        (doc! {"insert": "system.x", "documents": [{}]}, 73),
        (doc! {"aggregate": "c", "pipeline": []}, 9),
        (
            doc! {"aggregate": "c", "pipeline": [{"$nope": 1}], "cursor": {}},
            40324,
        ),
        (doc! {"findAndModify": "c"}, 9),
        (doc! {"create": "x", "capped": true}, 72),
        (doc! {"create": "x", "timeseries": {"timeField": "t"}}, 115),
        (doc! {"createIndexes": "c", "indexes": []}, 2),
        (doc! {"listIndexes": "nope"}, 26),
        (doc! {"find": "c", "collation": {"locale": "fr"}}, 2),
        (doc! {"nosuchcommand": 1}, 59),
    ] {
        assert_eq!(bed.code(command.clone()), code, "{command}");
    }
}

#[test]
fn insertions_check_documents() {
    let bed = Fixture::new();
    let reason = |document: Document| {
        let reply = bed.run(doc! {"insert": "c", "documents": [document]});
        let errors = reply.get_array("writeErrors").expect("it failed").clone();
        errors[0]
            .as_document()
            .expect("a document")
            .get_i32("code")
            .expect("a code")
    };
    assert_eq!(reason(doc! {"_id": [1]}), 53);
    assert_eq!(reason(doc! {"_id": {"$a": 1}}), 52);
    assert_eq!(
        reason(doc! {"_id": 1, "big": "x".repeat(16 * 1024 * 1024)}),
        10334
    );
    let mut deep = doc! {};
    for _ in 0..190 {
        deep = doc! {"d": deep};
    }
    assert_eq!(reason(doc! {"_id": 1, "deep": deep}), 15);
}

#[test]
fn sixteen_writers_lose_no_update_and_make_no_duplicate() {
    let bed = Fixture::new();
    bed.insert("c", vec![doc! {"_id": 1, "n": 0}]);
    bed.run(doc! {"createIndexes": "c", "indexes": [{"key": {"u": 1}, "name": "u", "unique": true, "sparse": true}]});
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for round in 0..20 {
                    bed.run(doc! {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}]});
                    bed.run(doc! {"update": "c", "updates": [
                        {"q": {"u": round}, "u": {"$inc": {"n": 1}}, "upsert": true},
                    ]});
                }
            });
        }
    });
    let found = bed.all(doc! {"find": "c", "filter": {"_id": 1}});
    assert_eq!(found[0].get_i32("n").ok(), Some(320));
    let upserted = bed.all(doc! {"find": "c", "filter": {"u": {"$exists": true}}});
    assert_eq!(upserted.len(), 20);
    assert!(
        upserted
            .iter()
            .all(|document| document.get_i32("n").ok() == Some(16)),
        "{upserted:?}"
    );
    bed.assert_valid("c");
}
