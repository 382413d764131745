//! Many threads at once: what holds of them together.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;

use bson::{Document, doc};

use crate::leftovers::assert_no_leftovers;
use crate::support::Fixture;

const THREADS: i32 = 16;

fn each_thread(run: impl Fn(i32) + Sync) {
    thread::scope(|scope| {
        for number in 0..THREADS {
            let run = &run;
            scope.spawn(move || run(number));
        }
    });
}

#[test]
fn writers_of_one_document_lose_no_update() {
    let bed = Fixture::new();
    bed.run(doc! {"createIndexes": "c", "indexes": [{"key": {"tags": 1}, "name": "tags"}]});
    each_thread(|number| {
        for round in 0..20 {
            bed.run(doc! {"update": "c", "updates": [{
                "q": {"_id": "counter"},
                "u": {"$inc": {"n": 1}, "$push": {"tags": number * 100 + round}},
                "upsert": true,
            }]});
        }
    });
    let found = bed.all(doc! {"find": "c"});
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].get_i32("n").ok(), Some(THREADS * 20));
    assert_eq!(found[0].get_array("tags").map(Vec::len).ok(), Some(320));
    bed.assert_valid("c");
}

#[test]
fn one_of_many_gets_a_unique_key() {
    let bed = Fixture::new();
    bed.run(
        doc! {"createIndexes": "c", "indexes": [{"key": {"k": 1}, "name": "k", "unique": true}]},
    );
    let inserted = AtomicI64::new(0);
    each_thread(|number| {
        for key in 0..20 {
            let document = doc! {"_id": number * 100 + key, "k": key};
            let reply = bed.run(doc! {"insert": "c", "documents": [document]});
            inserted.fetch_add(
                i64::from(reply.get_i32("n").expect("a count")),
                Ordering::Relaxed,
            );
        }
    });
    assert_eq!(inserted.into_inner(), 20);
    assert_eq!(bed.all(doc! {"find": "c"}).len(), 20);
    bed.assert_valid("c");
}

#[test]
fn each_job_is_taken_once() {
    let bed = Fixture::new();
    bed.run(doc! {"createIndexes": "c", "indexes": [{"key": {"done": 1, "n": 1}, "name": "jobs"}]});
    bed.insert(
        "c",
        (0..80)
            .map(|n| doc! {"_id": n, "n": -n, "done": false})
            .collect(),
    );
    let taken = AtomicI64::new(0);
    each_thread(|number| {
        loop {
            let reply = bed.run(doc! {
                "findAndModify": "c", "query": {"done": false}, "sort": {"n": 1},
                "update": {"$set": {"done": true, "by": number}, "$inc": {"times": 1}},
            });
            if reply.get_document("value").is_err() {
                return;
            }
            taken.fetch_add(1, Ordering::Relaxed);
        }
    });
    assert_eq!(taken.into_inner(), 80);
    assert_eq!(
        bed.all(doc! {"find": "c", "filter": {"times": 1, "done": true}})
            .len(),
        80
    );
    bed.assert_valid("c");
}

/// Tries a command of which only certain failures are expected.
fn attempt(bed: &Fixture, command: Document, expected: &[i32]) {
    let text = command.to_string();
    let Err(error) = bed.try_run(command) else {
        return;
    };
    let code = error.code();
    assert!(
        expected.contains(&code.number()),
        "{text}: {code:?} {error}"
    );
}

#[test]
fn indexes_come_and_go_under_writers() {
    let bed = Fixture::new();
    bed.insert(
        "c",
        (0..200).map(|n| doc! {"_id": n, "a": n, "b": n}).collect(),
    );
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..3 {
            let (bed, stop) = (&bed, &stop);
            scope.spawn(move || {
                let mut round = 0;
                while !stop.load(Ordering::Relaxed) {
                    round += 1;
                    let id = (number * 67 + round * 13) % 250;
                    attempt(bed, doc! {"update": "c", "updates": [{
                        "q": {"_id": id}, "u": {"$set": {"a": [round, id], "b": id}}, "upsert": true,
                    }]}, &[]);
                    attempt(bed, doc! {"delete": "c", "deletes": [
                        {"q": {"_id": (id + 7) % 250}, "limit": 1},
                    ]}, &[]);
                    // The index may go, or the plan with it, between two steps of the query.
                    attempt(bed, doc! {"find": "c", "filter": {"a": {"$gte": 100}}, "batchSize": 1000}, &[175]);
                }
            });
        }
        for _ in 0..15 {
            for (key, unique) in [("a", false), ("b", true)] {
                let create = doc! {"createIndexes": "c", "indexes": [
                    {"key": {key: 1}, "name": key, "unique": unique},
                ]};
                attempt(&bed, create, &[]);
                let reply = bed.run(doc! {"validate": "c"});
                assert_eq!(reply.get_bool("valid").ok(), Some(true), "{reply}");
            }
            bed.run(doc! {"dropIndexes": "c", "index": "*"});
        }
        stop.store(true, Ordering::Relaxed);
    });
    bed.assert_valid("c");
    assert_no_leftovers(&bed);
}

#[test]
fn collections_come_go_and_change_names_under_writers() {
    let bed = Fixture::new();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..3 {
            let (bed, stop) = (&bed, &stop);
            scope.spawn(move || {
                let mut round = 0;
                while !stop.load(Ordering::Relaxed) {
                    round += 1;
                    let name = if round % 3 == 0 { "d" } else { "c" };
                    bed.run(doc! {"insert": name, "documents": [
                        {"_id": number * 1_000_000 + round, "a": [round, number]}, {"a": round},
                    ]});
                    attempt(bed, doc! {"update": name, "updates": [
                        {"q": {"a": {"$gt": round - 3}}, "u": {"$inc": {"n": 1}}, "multi": true},
                    ]}, &[175]);
                }
            });
        }
        for _ in 0..25 {
            attempt(
                &bed,
                doc! {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a"}]},
                &[276],
            );
            attempt(
                &bed,
                doc! {"renameCollection": "test.c", "to": "test.d", "dropTarget": true},
                &[26],
            );
            for name in ["c", "d"] {
                if let Ok((reply, _)) = bed.try_run(doc! {"validate": name}) {
                    assert_eq!(reply.get_bool("valid").ok(), Some(true), "{reply}");
                }
            }
            attempt(&bed, doc! {"drop": "d"}, &[]);
            attempt(
                &bed,
                doc! {"create": "c", "capped": true, "size": 4096, "max": 9},
                &[48],
            );
        }
        stop.store(true, Ordering::Relaxed);
    });
    for name in ["c", "d"] {
        bed.run(doc! {"insert": name, "documents": [{}]});
        bed.assert_valid(name);
    }
    assert_no_leftovers(&bed);
}
