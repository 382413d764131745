//! Collections and indexes as such, and what hangs on them.

use std::sync::Arc;

use bson::{Document, RawDocumentBuf, doc};
use millrace_collection::Namespace;
use millrace_command::{CommandRequest, Principal};

use crate::leftovers::assert_no_leftovers;
use crate::support::Fixture;

#[test]
fn what_is_dropped_leaves_no_keys() {
    let bed = Fixture::new();
    for round in 0..3 {
        bed.run(doc! {"create": "log", "capped": true, "size": 100_000, "max": 5});
        bed.insert("log", (0..20).map(|n| doc! {"a": [n, n + 1]}).collect());
        bed.insert(
            "c",
            (0..20).map(|n| doc! {"_id": n, "a": [n, round]}).collect(),
        );
        bed.run(doc! {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a"}]});
        bed.run(doc! {"createIndexes": "log", "indexes": [{"key": {"a": 1}, "name": "a"}]});
        assert_no_leftovers(&bed);
        bed.run(doc! {"renameCollection": "test.c", "to": "test.log", "dropTarget": true});
        assert_no_leftovers(&bed);
        bed.assert_valid("log");
        bed.run(doc! {"drop": "log"});
        assert_no_leftovers(&bed);
    }
    assert!(bed.database.catalog().databases().is_empty());
}

#[test]
fn a_cursor_on_a_dropped_index_ends_with_an_error() {
    let bed = Fixture::new();
    bed.insert("c", (0..50).map(|n| doc! {"_id": n, "a": n}).collect());
    let create = doc! {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a"}]};
    bed.run(create.clone());
    let reply =
        bed.run(doc! {"find": "c", "filter": {"a": {"$gte": 0}}, "hint": "a", "batchSize": 5});
    let id = reply
        .get_document("cursor")
        .and_then(|cursor| cursor.get_i64("id"))
        .expect("an id");
    bed.run(doc! {"dropIndexes": "c", "index": "a"});
    // Another index of the same name is another index.
    bed.run(create);
    assert_eq!(bed.code(doc! {"getMore": id, "collection": "c"}), 175);
    assert_eq!(bed.code(doc! {"getMore": id, "collection": "c"}), 43);
}

#[test]
fn a_cursor_survives_what_does_not_concern_its_index() {
    let bed = Fixture::new();
    bed.insert("c", (0..50).map(|n| doc! {"_id": n, "a": n}).collect());
    bed.run(doc! {"createIndexes": "c", "indexes": [
        {"key": {"a": 1}, "name": "a"}, {"key": {"b": 1}, "name": "b"},
    ]});
    let reply =
        bed.run(doc! {"find": "c", "filter": {"a": {"$gte": 0}}, "hint": "a", "batchSize": 5});
    let id = reply
        .get_document("cursor")
        .and_then(|cursor| cursor.get_i64("id"))
        .expect("an id");
    bed.run(doc! {"dropIndexes": "c", "index": "b"});
    bed.run(doc! {"collMod": "c", "index": {"name": "a", "hidden": true}});
    // Arrays that come after the index was described anew concern the open query, too.
    bed.insert("c", vec![doc! {"_id": 100, "a": [60, 61]}]);
    let reply = bed.run(doc! {"getMore": id, "collection": "c"});
    let batch = reply
        .get_document("cursor")
        .and_then(|cursor| cursor.get_array("nextBatch"));
    assert_eq!(batch.map(Vec::len).ok(), Some(46), "{reply}");
}

/// Runs a command in a session; its reply or the number of its error.
fn run_in(bed: &Fixture, session: Option<&[u8]>, command: &Document) -> Result<Document, i32> {
    let name = command.keys().next().expect("a command has a name");
    let body = RawDocumentBuf::try_from(command).expect("it can be encoded");
    let request = CommandRequest {
        database: "test",
        name,
        body: &body,
        sequences: &[],
        session,
        principal: &Principal::EVERYBODY,
    };
    let mut reply = Vec::new();
    let result = bed.database.run(&request, &bed.operation(), &mut reply);
    result.map_err(|error| error.code().number())?;
    Ok(Document::from_reader(reply.as_slice()).expect("the reply is BSON"))
}

#[test]
fn a_cursor_belongs_to_its_session() {
    let bed = Fixture::new();
    bed.insert("c", (0..50).map(|n| doc! {"_id": n}).collect());
    let open = |session: Option<&[u8]>| {
        let reply =
            run_in(&bed, session, &doc! {"find": "c", "batchSize": 2}).expect("it is opened");
        reply
            .get_document("cursor")
            .and_then(|cursor| cursor.get_i64("id"))
            .expect("an id")
    };
    let go_on = |id: i64, session: Option<&[u8]>| {
        let more = doc! {"getMore": id, "collection": "c", "batchSize": 2};
        run_in(&bed, session, &more).map(|_| ())
    };
    let (one, other) = (Some(&b"one"[..]), Some(&b"other"[..]));
    let id = open(one);
    assert_eq!(go_on(id, None), Err(50737));
    assert_eq!(go_on(id, other), Err(50738));
    assert_eq!(go_on(id, one), Ok(()));
    assert_eq!(go_on(open(None), one), Err(50736));
    bed.database.cursors().kill_session(b"one");
    assert_eq!(go_on(id, one), Err(43));
}

#[test]
fn a_key_that_is_too_long_fails_alone() {
    let bed = Fixture::new();
    bed.run(doc! {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a"}]});
    let long = "x".repeat(70_000);
    let reply = bed.run(doc! {"insert": "c", "ordered": false, "documents": [
        {"_id": 1}, {"_id": 2, "a": &long}, {"_id": 3}, {"_id": &long}, {"_id": 5, "b": &long},
    ]});
    assert_eq!(reply.get_i32("n").ok(), Some(3), "{reply}");
    let errors = reply.get_array("writeErrors").expect("two failed");
    for (error, position) in errors.iter().zip([1, 3]) {
        let error = error.as_document().expect("a document");
        assert_eq!(error.get_i32("index").ok(), Some(position));
        assert_eq!(error.get_i32("code").ok(), Some(17280));
    }
    let set = doc! {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"a": &long}}}]};
    assert!(bed.run(set).contains_key("writeErrors"));
    assert_eq!(
        bed.code(doc! {"createIndexes": "c", "indexes": [{"key": {"b": 1}, "name": "b"}]}),
        17280
    );
    bed.assert_valid("c");
    assert_no_leftovers(&bed);
}

#[test]
fn indexes_are_named_by_their_keys_whatever_type_the_numbers_have() {
    let bed = Fixture::new();
    bed.insert("c", vec![doc! {"_id": 1}]);
    bed.run(doc! {"createIndexes": "c", "indexes": [
        {"key": {"a": 1}, "name": "a"},
        {"key": {"b": 1}, "name": "b"},
        {"key": {"b": 1}, "name": "b_some", "partialFilterExpression": {"b": {"$gt": 1}}},
    ]});
    bed.run(doc! {"dropIndexes": "c", "index": {"a": 1.0}});
    assert_eq!(bed.code(doc! {"dropIndexes": "c", "index": {"a": 1}}), 27);
    assert_eq!(bed.code(doc! {"dropIndexes": "c", "index": {"b": 1}}), 181);
    assert_eq!(bed.code(doc! {"dropIndexes": "c", "index": {"_id": 1}}), 72);
    assert_eq!(bed.code(doc! {"collMod": "c", "index": {"name": "b"}}), 72);
}

#[test]
fn temporary_collections_do_not_outlive_the_server() {
    let bed = Fixture::new();
    let temporary = Namespace::parse("test.tmp.agg_out.x").expect("a namespace");
    bed.database
        .catalog()
        .create(&temporary, doc! {"temp": true}, &*bed.environment)
        .expect("it is created");
    bed.insert("c", vec![doc! {"_id": 1}]);
    bed.run(doc! {"aggregate": "c", "pipeline": [{"$out": "d"}], "cursor": {}});
    let again = Fixture::on(Arc::clone(&bed.engine));
    let names: Vec<_> = again
        .all(doc! {"listCollections": 1})
        .iter()
        .map(|c| {
            (
                c.get_str("name").expect("a name").to_owned(),
                c.get_document("options").ok().cloned(),
            )
        })
        .collect();
    assert_eq!(
        names,
        [
            ("c".to_owned(), Some(doc! {})),
            ("d".to_owned(), Some(doc! {}))
        ]
    );
    assert_no_leftovers(&again);
}

#[test]
fn a_capped_collection_keeps_the_newest_although_some_were_deleted() {
    let bed = Fixture::new();
    bed.run(doc! {"create": "log", "capped": true, "size": 1_000_000, "max": 50});
    bed.insert("log", (0..50).map(|n| doc! {"_id": n}).collect());
    bed.run(
        doc! {"delete": "log", "deletes": [{"q": {"_id": {"$gte": 5, "$lt": 40}}, "limit": 0}]},
    );
    bed.insert("log", (50..90).map(|n| doc! {"_id": n}).collect());
    let expected: Vec<Document> = (40..90).map(|n| doc! {"_id": n}).collect();
    assert_eq!(bed.all(doc! {"find": "log"}), expected);
    // More at once than it holds: some are gone before they were ever committed.
    bed.insert("log", (100..260).map(|n| doc! {"_id": n}).collect());
    let expected: Vec<Document> = (210..260).map(|n| doc! {"_id": n}).collect();
    assert_eq!(bed.all(doc! {"find": "log"}), expected);
    bed.assert_valid("log");
    let again = Fixture::on(Arc::clone(&bed.engine));
    again.insert("log", vec![doc! {"_id": 300}]);
    assert_eq!(
        again.all(doc! {"find": "log"}).last(),
        Some(&doc! {"_id": 300})
    );
    again.assert_valid("log");
    assert_eq!(bed.code(doc! {"collMod": "log", "cappedSize": 0}), 51024);
    assert_no_leftovers(&bed);
}

#[test]
fn a_validator_holds_for_every_way_to_write() {
    let bed = Fixture::new();
    bed.run(doc! {"create": "c", "validator": {"a": {"$exists": true}}});
    let code = |reply: Document| {
        let errors = reply.get_array("writeErrors").ok()?;
        errors[0].as_document()?.get_i32("code").ok()
    };
    assert_eq!(
        code(bed.run(doc! {"insert": "c", "documents": [{"_id": 1}]})),
        Some(121)
    );
    bed.insert("c", vec![doc! {"_id": 1, "a": 1}]);
    let unset =
        doc! {"update": "c", "updates": [{"q": {}, "u": {"$unset": {"a": 1}}, "multi": true}]};
    assert_eq!(code(bed.run(unset.clone())), Some(121));
    let upsert = doc! {"update": "c", "updates": [{"q": {"_id": 2}, "u": {"$set": {"b": 1}}, "upsert": true}]};
    assert_eq!(code(bed.run(upsert)), Some(121));
    bed.insert(
        "source",
        vec![doc! {"_id": 1, "b": 1}, doc! {"_id": 3, "b": 1}],
    );
    for how in ["replace", "keepExisting"] {
        let merge = doc! {"$merge": {"into": "c", "whenMatched": how}};
        assert_eq!(
            bed.code(doc! {"aggregate": "source", "pipeline": [merge], "cursor": {}}),
            121
        );
    }
    // A change of the validator counts at once.
    bed.run(doc! {"collMod": "c", "validator": {}});
    assert_eq!(code(bed.run(unset)), None);
    bed.assert_valid("c");
}

#[test]
fn pipelines_that_write_may_bypass_the_validator() {
    let bed = Fixture::new();
    bed.insert(
        "source",
        vec![doc! {"_id": 1, "b": 1}, doc! {"_id": 3, "b": 1}],
    );
    let stages = [
        doc! {"$merge": {"into": "c", "whenMatched": "replace"}},
        doc! {"$merge": {"into": "c", "whenMatched": [{"$set": {"b": "$$new.b"}}, {"$unset": "a"}]}},
        doc! {"$out": "c"},
    ];
    for stage in stages {
        bed.run(doc! {"create": "c", "validator": {"a": {"$exists": true}}});
        bed.insert("c", vec![doc! {"_id": 1, "a": 1}]);
        let mut aggregate = doc! {"aggregate": "source", "pipeline": [&stage], "cursor": {}};
        assert_eq!(bed.code(aggregate.clone()), 121, "{stage}");
        aggregate.insert("bypassDocumentValidation", true);
        bed.run(aggregate);
        assert_eq!(
            bed.all(doc! {"find": "c", "sort": {"_id": 1}}),
            [doc! {"_id": 1, "b": 1}, doc! {"_id": 3, "b": 1}],
            "{stage}"
        );
        bed.run(doc! {"drop": "c"});
    }
}

#[test]
fn an_update_that_changes_nothing_waits_for_what_it_saw() {
    let bed = Fixture::new();
    bed.insert("c", vec![doc! {"_id": 1, "a": 1}]);
    let set = doc! {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"a": 1}}}]};
    let (reply, effects) = bed.try_run(set).expect("it succeeds");
    assert_eq!(reply.get_i32("nModified").ok(), Some(0));
    assert_eq!(effects.written, Some(bed.engine.last_commit_seq()));
}

#[test]
fn replies_and_commands_stay_within_bounds() {
    let bed = Fixture::new();
    let id = |n: i32| format!("{n}{}", "x".repeat(2000));
    let documents: Vec<Document> = (0..1500).map(|n| doc! {"_id": id(n)}).collect();
    bed.insert("c", documents.clone());
    let reply = bed.run(doc! {"insert": "c", "documents": documents, "ordered": false});
    let errors = reply.get_array("writeErrors").expect("all failed");
    assert_eq!(errors.len(), 1500);
    let text = |error: &bson::Bson| error.as_document()?.get_str("errmsg").ok().map(str::len);
    assert!(text(&errors[0]).is_some_and(|len| len > 2000));
    assert_eq!(text(&errors[1499]), Some(0));
    // Unknown fields are refused at the first one.
    let mut command = doc! {"find": "c"};
    for n in 0..100_000 {
        command.insert(format!("unknown{n}"), 1);
    }
    assert_eq!(bed.code(command), 40415);
}

#[test]
fn large_arrays_in_indexes_are_updated_entry_by_entry() {
    let bed = Fixture::new();
    bed.run(
        doc! {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a", "unique": true}]},
    );
    let many: Vec<i32> = (0..30_000).collect();
    bed.insert(
        "c",
        vec![doc! {"_id": 1, "a": many}, doc! {"_id": 2, "a": -1}],
    );
    let push = |value: i32| {
        let reply = bed.run(
            doc! {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$push": {"a": value}}}]},
        );
        reply.contains_key("writeErrors")
    };
    assert!(!push(30_000));
    // A key that the document has already is no duplicate, that of another document is.
    assert!(!push(7));
    assert!(push(-1));
    bed.assert_valid("c");
}
