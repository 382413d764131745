//! Commands that read at a fixed view: all that they answer is of one state.

use std::sync::Arc;

use bson::{Bson, Document, doc};
use millrace_collection::Namespace;
use millrace_value::ReadView;

use crate::support::Fixture;

/// The same database, with all reads at its present state.
fn fixed(bed: &Fixture) -> Fixture {
    let latest = ReadView::latest(Arc::clone(&bed.engine));
    let view = latest.fixed().expect("a snapshot");
    Fixture {
        view: Some(view),
        ..bed.clone()
    }
}

/// Two collections that a pipeline joins, indexes, a capped collection and a view.
fn filled() -> Fixture {
    let bed = Fixture::new();
    let documents = (0..20).map(|n| doc! {"_id": n, "a": n % 5, "b": n});
    bed.insert("c", documents.collect());
    bed.insert("other", (0..5).map(|n| doc! {"_id": n, "x": n}).collect());
    bed.insert("renamed", vec![doc! {"_id": 1}]);
    bed.run(doc! {"createIndexes": "c", "indexes": [
        {"key": {"a": 1}, "name": "a"}, {"key": {"b": 1}, "name": "b"},
    ]});
    bed.run(doc! {"create": "log", "capped": true, "size": 100_000});
    bed.insert("log", vec![doc! {"_id": 1}, doc! {"_id": 2}]);
    bed.run(doc! {"create": "low", "viewOn": "c", "pipeline": [{"$match": {"b": {"$lt": 3}}}]});
    bed
}

/// Changes something of every kind that a command can read.
fn change_everything(bed: &Fixture) {
    bed.run(doc! {"update": "c", "updates": [
        {"q": {"_id": {"$lt": 10}}, "u": {"$set": {"a": [7, 8], "late": true}}, "multi": true},
    ]});
    bed.run(doc! {"delete": "c", "deletes": [{"q": {"_id": {"$gte": 15}}, "limit": 0}]});
    bed.insert("c", vec![doc! {"_id": -1, "a": 3, "b": 1}]);
    bed.run(doc! {"dropIndexes": "c", "index": "b"});
    bed.run(doc! {"createIndexes": "c", "indexes": [{"key": {"late": 1}, "name": "late"}]});
    bed.run(doc! {"update": "other", "updates": [
        {"q": {}, "u": {"$set": {"x": 100}}, "multi": true},
    ]});
    bed.run(doc! {"renameCollection": "test.renamed", "to": "test.new_name"});
    bed.insert("log", vec![doc! {"_id": 3}]);
    bed.run(doc! {"collMod": "log", "cappedMax": 2});
    bed.run(doc! {"collMod": "low", "viewOn": "c", "pipeline": []});
    bed.run(doc! {"create": "high", "viewOn": "c", "pipeline": []});
    bed.run(doc! {"create": "empty"});
    bed.run(doc! {"create": "second"});
}

/// Commands of each kind that returns a cursor.
fn cursors() -> Vec<Document> {
    let filter = doc! {"a": {"$gte": 3}};
    let lookup = doc! {"$lookup": {
        "from": "other", "localField": "a", "foreignField": "_id", "as": "found",
    }};
    let statistics = [
        doc! {"$collStats": {"count": {}}},
        doc! {"$project": {"count": 1}},
    ];
    let uses = [doc! {"$indexStats": {}}, doc! {"$project": {"name": 1}}];
    vec![
        doc! {"find": "c", "filter": {"_id": 4}},
        doc! {"find": "log", "filter": {"_id": 3}},
        doc! {"find": "c", "batchSize": 3},
        doc! {"find": "c", "filter": filter, "hint": "a"},
        doc! {"find": "c", "filter": {"b": {"$gt": 17}}},
        doc! {"find": "c", "sort": {"late": 1, "b": -1}},
        doc! {"aggregate": "c", "pipeline": [lookup], "cursor": {"batchSize": 3}},
        doc! {"find": "low"},
        doc! {"find": "high"},
        doc! {"find": "renamed"},
        doc! {"find": "new_name"},
        doc! {"listCollections": 1},
        doc! {"listIndexes": "c"},
        doc! {"aggregate": "c", "pipeline": statistics, "cursor": {}},
        doc! {"aggregate": "c", "pipeline": uses, "cursor": {}},
    ]
}

/// Other commands, and the field of their replies that changes.
fn replies() -> Vec<(Document, &'static str)> {
    let find = doc! {"find": "c", "filter": {"late": 1}};
    vec![
        (doc! {"count": "c"}, "n"),
        (doc! {"count": "c", "query": {"a": {"$gte": 3}}}, "n"),
        (doc! {"count": "low"}, "n"),
        (doc! {"distinct": "c", "key": "a"}, "values"),
        (doc! {"distinct": "low", "key": "b"}, "values"),
        (
            doc! {"explain": find, "verbosity": "queryPlanner"},
            "queryPlanner",
        ),
        (doc! {"collStats": "c"}, "size"),
        (doc! {"collStats": "log"}, "max"),
        (doc! {"dataSize": "test.c"}, "size"),
        (doc! {"dbStats": 1}, "objects"),
        (doc! {"dbStats": 1}, "collections"),
        (doc! {"dbStats": 1}, "views"),
    ]
}

/// What every command answers.
fn answers(bed: &Fixture) -> Vec<(Document, Bson)> {
    let mut answers = Vec::new();
    for command in cursors() {
        let documents = bed.all(command.clone());
        answers.push((command, documents.into()));
    }
    for (command, field) in replies() {
        let reply = bed.run(command.clone());
        answers.push((command, reply.get(field).cloned().unwrap_or(Bson::Null)));
    }
    answers
}

#[test]
fn every_read_of_a_command_is_made_at_its_view() {
    let bed = filled();
    let before = answers(&bed);
    let view = fixed(&bed);
    change_everything(&bed);
    let after = answers(&bed);
    for ((command, seen), (_, after)) in answers(&view).iter().zip(after) {
        assert_ne!(*seen, after, "{command}: the change could have been seen");
    }
    assert_eq!(answers(&view), before);
    bed.run(doc! {"dropDatabase": 1});
    assert_eq!(answers(&view), before, "after the end of the database");
    let databases = |bed: &Fixture| bed.run(doc! {"listDatabases": 1, "nameOnly": true});
    let listed = databases(&view);
    assert_eq!(listed.get_array("databases").map(Vec::len).ok(), Some(1));
    let listed = databases(&bed);
    assert_eq!(listed.get_array("databases").map(Vec::len).ok(), Some(0));
}

#[test]
fn a_cursor_keeps_the_view_of_the_command_that_opened_it() {
    let bed = filled();
    let lookup = doc! {"$lookup": {
        "from": "other", "localField": "a", "foreignField": "_id", "as": "found",
    }};
    for command in [
        doc! {"find": "c", "filter": {"a": {"$gte": 1}}, "hint": "a"},
        doc! {"find": "c"},
        doc! {"aggregate": "c", "pipeline": [lookup]},
        doc! {"find": "low", "sort": {"b": 1}},
    ] {
        let bed = bed.clone();
        let mut opening = command.clone();
        if command.contains_key("find") {
            opening.insert("batchSize", 2);
        } else {
            opening.insert("cursor", doc! {"batchSize": 2});
        }
        let mut whole = command.clone();
        whole.extend(opening.clone());
        let expected = bed.all(whole);
        let reply = fixed(&bed).run(opening);
        let cursor = reply.get_document("cursor").expect("a cursor");
        let mut seen: Vec<_> = batch(cursor, "firstBatch");
        // A later command reads at the latest view, and its cursor does not.
        let changed = doc! {"update": "other", "updates": [{"q": {}, "u": {"$inc": {"x": 1}}, "multi": true}]};
        bed.run(changed);
        bed.run(
            doc! {"update": "c", "updates": [{"q": {}, "u": {"$inc": {"n": 1}}, "multi": true}]},
        );
        let id = cursor.get_i64("id").expect("an id");
        let namespace = cursor.get_str("ns").expect("a namespace");
        let (_, collection) = namespace.split_once('.').expect("a dot");
        let rest = bed.run(doc! {"getMore": id, "collection": collection});
        let cursor = rest.get_document("cursor").expect("a cursor");
        seen.extend(batch(cursor, "nextBatch"));
        assert_eq!(seen, expected, "{command}");
    }
}

fn batch(cursor: &Document, name: &str) -> Vec<Document> {
    let batch = cursor.get_array(name).expect("a batch");
    let documents = batch.iter().filter_map(Bson::as_document);
    documents.cloned().collect()
}

#[test]
fn the_catalog_at_a_view_is_that_of_its_state() {
    let bed = filled();
    let latest = ReadView::latest(Arc::clone(&bed.engine));
    let fixed = latest.fixed().expect("a snapshot");
    let catalog = bed.database.catalog();
    let namespace = |name: &str| Namespace::new("test", name).expect("a name");
    let shape = |view: &ReadView| {
        let at = catalog.at(view);
        let mut lines = Vec::new();
        for collection in at.collections("test").expect("they are read") {
            let again = at.find(&collection.namespace).expect("it is read");
            let again = again.expect("it is there");
            assert_eq!(
                (again.uuid, again.ident),
                (collection.uuid, collection.ident)
            );
            let indexes = collection.indexes.iter();
            let indexes = indexes.map(|index| format!("{}:{}", index.spec.name, index.multikey()));
            let indexes: Vec<_> = indexes.collect();
            lines.push(format!(
                "{} {} {indexes:?}",
                collection.namespace, collection.options
            ));
        }
        for view in at.views("test").expect("they are read") {
            lines.push(format!("{view:?}"));
        }
        lines
    };
    let before = shape(&latest);
    assert_eq!(shape(&fixed), before, "nothing has changed yet");
    change_everything(&bed);
    assert_eq!(shape(&fixed), before);
    assert_ne!(shape(&latest), before);
    bed.run(doc! {"drop": "c"});
    bed.run(doc! {"create": "c", "capped": true, "size": 4096});
    assert_eq!(shape(&fixed), before);
    let at = catalog.at(&fixed);
    let old = at
        .find(&namespace("c"))
        .expect("a read")
        .expect("it was there");
    let new = catalog.find(&namespace("c")).expect("it is there again");
    assert_ne!(old.uuid, new.uuid);
    assert!(!old.is_dropped() && at.find(&namespace("empty")).expect("a read").is_none());
    assert!(at.view(&namespace("high")).expect("a read").is_none());
    assert!(
        at.resolve_view(&namespace("low"))
            .expect("a read")
            .is_some()
    );
    assert_eq!(at.databases().expect("a read").len(), 1);
}

#[test]
fn a_write_that_reads_at_a_view_conflicts_with_later_commits() {
    let bed = filled();
    let view = fixed(&bed);
    bed.run(doc! {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"b": 1}}}]});
    bed.insert("c", vec![doc! {"_id": 100}]);
    let code = |command| {
        let reply = view.run(command);
        let errors = reply.get_array("writeErrors").ok()?;
        errors.first()?.as_document()?.get_i32("code").ok()
    };
    let update =
        |id: i32| doc! {"update": "c", "updates": [{"q": {"_id": id}, "u": {"$inc": {"b": 1}}}]};
    let delete = |id: i32| doc! {"delete": "c", "deletes": [{"q": {"_id": id}, "limit": 1}]};
    assert_eq!(code(update(1)), Some(112), "it was changed");
    assert_eq!(code(delete(1)), Some(112), "it was changed");
    assert_eq!(code(update(2)), None);
    assert_eq!(code(delete(3)), None);
    assert_eq!(
        view.code(doc! {"insert": "c", "documents": [{"_id": 100}]}),
        112
    );
    assert_eq!(
        view.code(doc! {"insert": "log", "documents": [{"_id": 100}]}),
        263
    );
    let out = doc! {"aggregate": "c", "pipeline": [{"$out": "copy"}], "cursor": {}};
    assert_eq!(view.code(out), 263);
    bed.assert_valid("c");
    bed.assert_valid("log");
}
