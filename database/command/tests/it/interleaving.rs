//! What one command must survive that another does in the middle of it, step by step.

use std::sync::Arc;

use bson::{Document, doc};
use millrace_engine::MemoryEngine;

use crate::interposed::{Appointments, Interposed, Moment};
use crate::leftovers::assert_no_leftovers;
use crate::support::Fixture;

fn bed() -> (Arc<Interposed>, Fixture) {
    let engine = Arc::new(Interposed::new(
        MemoryEngine::new(),
        Appointments::default(),
    ));
    let bed = Fixture::on(Arc::clone(&engine) as _);
    (engine, bed)
}

fn index(key: Document, name: &str, unique: bool) -> Document {
    doc! {"createIndexes": "c", "indexes": [{"key": key, "name": name, "unique": unique}]}
}

/// The cursor with which a build begins; the one before it looks whether the collection is empty.
const BUILD_BEGINS: u64 = 1;

#[test]
fn an_index_remembers_its_arrays_although_the_first_commit_of_one_was_refused() {
    let (engine, bed) = bed();
    bed.run(index(doc! {"a": 1}, "a", false));
    bed.insert("c", vec![doc! {"_id": 1, "a": 1}]);
    let other = bed.clone();
    engine.hooks().at(Moment::BeforeCommit, 0, move || {
        other.run(doc! {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}]});
    });
    bed.run(doc! {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"a": [1, 5]}}}]});
    engine.hooks().assert_acted();
    bed.assert_valid("c");
    // A server that starts anew knows only what was stored.
    let again = Fixture::on(engine);
    let find = doc! {"find": "c", "filter": {"a": {"$gt": 4, "$lt": 2}}, "hint": "a"};
    assert_eq!(again.all(find).len(), 1);
    assert_eq!(
        again
            .all(doc! {"find": "c", "filter": {"a": {"$gt": 0}}, "hint": "a"})
            .len(),
        1
    );
}

#[test]
fn no_update_is_lost() {
    let (engine, bed) = bed();
    bed.insert("c", vec![doc! {"_id": 1, "n": 0}]);
    let increment = doc! {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}]};
    let (other, same) = (bed.clone(), increment.clone());
    engine.hooks().at(Moment::BeforeCommit, 0, move || {
        other.run(same);
    });
    bed.run(increment);
    engine.hooks().assert_acted();
    assert_eq!(bed.all(doc! {"find": "c"}), [doc! {"_id": 1, "n": 2}]);
}

#[test]
fn an_upsert_that_comes_too_late_updates() {
    let (engine, bed) = bed();
    bed.run(index(doc! {"k": 1}, "k", true));
    let upsert = doc! {"update": "c", "updates": [
        {"q": {"k": 7}, "u": {"$inc": {"n": 1}}, "upsert": true},
    ]};
    let (other, same) = (bed.clone(), upsert.clone());
    engine.hooks().at(Moment::BeforeCommit, 0, move || {
        other.run(same);
    });
    let reply = bed.run(upsert);
    engine.hooks().assert_acted();
    assert!(!reply.contains_key("upserted"), "{reply}");
    let found = bed.all(doc! {"find": "c", "projection": {"_id": 0}});
    assert_eq!(found, [doc! {"k": 7, "n": 2}]);
    bed.assert_valid("c");
}

#[test]
fn a_document_deleted_during_a_unique_build_takes_no_key_of_another_along() {
    let (engine, bed) = bed();
    // Two documents with the same key, so far apart that they are entered by different commits.
    let key = |n: i32| if n == 200 { 0 } else { n };
    bed.insert(
        "c",
        (0..256).map(|n| doc! {"_id": n, "a": key(n)}).collect(),
    );
    let other = bed.clone();
    // The first commit adds the index, the second enters document 0.
    engine.hooks().at(Moment::AfterCommit, 1, move || {
        other.run(doc! {"delete": "c", "deletes": [{"q": {"_id": 200}, "limit": 1}]});
    });
    bed.run(index(doc! {"a": 1}, "a", true));
    engine.hooks().assert_acted();
    bed.assert_valid("c");
    assert_no_leftovers(&bed);
    assert_eq!(
        bed.all(doc! {"find": "c", "filter": {"a": 0}, "hint": "a"})
            .len(),
        1
    );
}

#[test]
fn a_document_changed_during_a_unique_build_takes_no_key_of_another_along() {
    let (engine, bed) = bed();
    let key = |n: i32| if n == 200 { 0 } else { n };
    bed.insert(
        "c",
        (0..256).map(|n| doc! {"_id": n, "a": key(n)}).collect(),
    );
    let other = bed.clone();
    engine.hooks().at(Moment::AfterCommit, 1, move || {
        for update in [doc! {"$set": {"b": 1}}, doc! {"$set": {"a": 1000}}] {
            other.run(doc! {"update": "c", "updates": [{"q": {"_id": 200}, "u": update}]});
        }
    });
    bed.run(index(doc! {"a": 1}, "a", true));
    engine.hooks().assert_acted();
    bed.assert_valid("c");
    assert_eq!(
        bed.all(doc! {"find": "c", "filter": {"a": 0}, "hint": "a"})
            .len(),
        1
    );
}

#[test]
fn an_index_dropped_during_its_build_leaves_no_entries() {
    let (engine, bed) = bed();
    bed.insert("c", (0..300).map(|n| doc! {"_id": n, "a": n}).collect());
    let other = bed.clone();
    engine.hooks().at(Moment::Cursor, BUILD_BEGINS, move || {
        other.run(doc! {"dropIndexes": "c", "index": "a"});
    });
    assert_eq!(bed.code(index(doc! {"a": 1}, "a", false)), 276);
    engine.hooks().assert_acted();
    bed.assert_valid("c");
    assert_no_leftovers(&bed);
}

#[test]
fn a_collection_dropped_during_a_build_leaves_nothing() {
    let (engine, bed) = bed();
    bed.insert("c", (0..300).map(|n| doc! {"_id": n, "a": n}).collect());
    let other = bed.clone();
    engine.hooks().at(Moment::Cursor, BUILD_BEGINS, move || {
        other.run(doc! {"drop": "c"});
        other.insert("c", vec![doc! {"_id": 1, "a": 1}]);
    });
    assert_eq!(bed.code(index(doc! {"a": 1}, "a", false)), 276);
    engine.hooks().assert_acted();
    bed.assert_valid("c");
    assert_no_leftovers(&bed);
}

#[test]
fn a_collection_is_not_renamed_while_an_index_is_built() {
    let (engine, bed) = bed();
    bed.insert("c", (0..300).map(|n| doc! {"_id": n, "a": n}).collect());
    let other = bed.clone();
    engine.hooks().at(Moment::Cursor, BUILD_BEGINS, move || {
        assert_eq!(
            other.code(doc! {"renameCollection": "test.c", "to": "test.d"}),
            12587
        );
    });
    bed.run(index(doc! {"a": 1}, "a", false));
    engine.hooks().assert_acted();
    bed.run(doc! {"renameCollection": "test.c", "to": "test.d"});
    bed.assert_valid("d");
}

#[test]
fn who_wants_an_index_that_is_being_built_has_it_in_the_end() {
    let (engine, bed) = bed();
    bed.insert(
        "c",
        (0..300).map(|n| doc! {"_id": n, "a": [n, n + 1]}).collect(),
    );
    let other = bed.clone();
    engine.hooks().at(Moment::Cursor, BUILD_BEGINS, move || {
        other.run(index(doc! {"a": 1}, "a", false));
        assert_eq!(
            other
                .all(doc! {"find": "c", "filter": {"a": 7}, "hint": "a"})
                .len(),
            2
        );
    });
    bed.run(index(doc! {"a": 1}, "a", false));
    engine.hooks().assert_acted();
    assert_eq!(bed.all(doc! {"listIndexes": "c"}).len(), 2);
    bed.assert_valid("c");
    assert_no_leftovers(&bed);
}

#[test]
fn an_index_changed_during_its_build_stays_changed() {
    let (engine, bed) = bed();
    bed.insert(
        "c",
        (0..300).map(|n| doc! {"_id": n, "a": [n, n + 1]}).collect(),
    );
    let other = bed.clone();
    engine.hooks().at(Moment::Cursor, BUILD_BEGINS, move || {
        other.run(doc! {"collMod": "c", "index": {"name": "a", "hidden": true}});
    });
    bed.run(index(doc! {"a": 1}, "a", false));
    engine.hooks().assert_acted();
    let indexes = bed.all(doc! {"listIndexes": "c"});
    assert_eq!(
        indexes[1].get_bool("hidden").ok(),
        Some(true),
        "{indexes:?}"
    );
    bed.run(doc! {"collMod": "c", "index": {"name": "a", "hidden": false}});
    let find = doc! {"find": "c", "filter": {"a": {"$gt": 7, "$lt": 8}}, "hint": "a"};
    assert_eq!(bed.all(find).len(), 1);
    let find = doc! {"find": "c", "filter": {"a": {"$gte": 7, "$lt": 8}}, "hint": "a"};
    assert_eq!(bed.all(find).len(), 2);
    bed.assert_valid("c");
}

#[test]
fn deleting_everything_ends_although_others_insert() {
    let (engine, bed) = bed();
    bed.run(index(doc! {"a": 1}, "a", false));
    bed.insert(
        "c",
        (0..600).map(|n| doc! {"_id": n, "a": [n, -n]}).collect(),
    );
    let other = bed.clone();
    engine.hooks().at(Moment::AfterCommit, 0, move || {
        other.insert("c", vec![doc! {"_id": 9000, "a": 1}]);
    });
    let reply = bed.run(doc! {"delete": "c", "deletes": [{"q": {}, "limit": 0}]});
    engine.hooks().assert_acted();
    assert_eq!(reply.get_i32("n").ok(), Some(600));
    assert_eq!(bed.all(doc! {"find": "c"}), [doc! {"_id": 9000, "a": 1}]);
    bed.assert_valid("c");
    assert_no_leftovers(&bed);
}

#[test]
fn an_update_of_many_touches_each_document_once() {
    // Each update moves the document forward in the index that is being scanned.
    let (_, bed) = bed();
    bed.run(index(doc! {"a": 1}, "a", false));
    bed.insert(
        "c",
        (0..400).map(|n| doc! {"_id": n, "a": n, "n": 0}).collect(),
    );
    let reply = bed.run(doc! {"update": "c", "updates": [
        {"q": {"a": {"$gte": 0}}, "u": {"$inc": {"a": 500, "n": 1}}, "multi": true, "hint": "a"},
    ]});
    assert_eq!(reply.get_i32("nModified").ok(), Some(400));
    assert_eq!(
        bed.all(doc! {"find": "c", "filter": {"n": {"$ne": 1}}}),
        [] as [Document; 0]
    );
    bed.assert_valid("c");
}
