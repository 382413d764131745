//! Commands that read at a fixed view: all that they answer is of one state.

use std::sync::Arc;

use bson::{Bson, Document, doc};
use millrace_document::ReadView;
use millrace_document::catalog::Namespace;

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

fn names(bed: &Fixture, command: Document) -> Vec<Document> {
    let mut list = bed.all(command);
    for description in &mut list {
        description.remove("info");
    }
    list
}

/// What one command of each kind that reads answers.
fn answers(bed: &Fixture) -> Vec<(&'static str, Bson)> {
    let documents = |command| Bson::from(bed.all(command));
    let field = |command, name: &str| bed.run(command).get(name).cloned().unwrap_or(Bson::Null);
    let filter = doc! {"a": {"$gte": 3}};
    let lookup = doc! {"$lookup": {
        "from": "other", "localField": "a", "foreignField": "_id", "as": "found",
    }};
    vec![
        (
            "look-up",
            documents(doc! {"find": "c", "filter": {"_id": 4}}),
        ),
        (
            "capped look-up",
            documents(doc! {"find": "log", "filter": {"_id": 3}}),
        ),
        ("scan", documents(doc! {"find": "c", "batchSize": 3})),
        (
            "by index",
            documents(doc! {"find": "c", "filter": &filter, "hint": "a"}),
        ),
        (
            "by the other index",
            documents(doc! {"find": "c", "filter": {"b": {"$gt": 17}}}),
        ),
        (
            "sorted",
            documents(doc! {"find": "c", "sort": {"late": 1, "b": -1}}),
        ),
        ("count", field(doc! {"count": "c"}, "n")),
        (
            "count of some",
            field(doc! {"count": "c", "query": &filter}, "n"),
        ),
        (
            "distinct",
            field(doc! {"distinct": "c", "key": "a"}, "values"),
        ),
        (
            "join",
            documents(doc! {"aggregate": "c", "pipeline": [lookup], "cursor": {"batchSize": 3}}),
        ),
        ("view", documents(doc! {"find": "low"})),
        ("count of a view", field(doc! {"count": "low"}, "n")),
        (
            "distinct of a view",
            field(doc! {"distinct": "low", "key": "b"}, "values"),
        ),
        ("a new view", documents(doc! {"find": "high"})),
        ("renamed", documents(doc! {"find": "renamed"})),
        ("new name", documents(doc! {"find": "new_name"})),
        (
            "plan",
            field(
                doc! {"explain": {"find": "c", "filter": {"late": 1}}, "verbosity": "queryPlanner"},
                "queryPlanner",
            ),
        ),
        (
            "listCollections",
            names(bed, doc! {"listCollections": 1}).into(),
        ),
        ("listIndexes", documents(doc! {"listIndexes": "c"})),
        ("collStats", field(doc! {"collStats": "c"}, "size")),
        (
            "collStats of indexes",
            field(doc! {"collStats": "c"}, "nindexes")
                .as_i32()
                .map(|n| doc! {"n": n, "late": indexed(bed)})
                .into(),
        ),
        (
            "$collStats",
            documents(
                doc! {"aggregate": "c", "pipeline": [{"$collStats": {"count": {}}}, {"$project": {"count": 1}}], "cursor": {}},
            ),
        ),
        (
            "$indexStats",
            documents(
                doc! {"aggregate": "c", "pipeline": [{"$indexStats": {}}, {"$project": {"name": 1}}], "cursor": {}},
            ),
        ),
        ("dataSize", field(doc! {"dataSize": "test.c"}, "size")),
        ("dbStats", field(doc! {"dbStats": 1}, "objects")),
        (
            "dbStats of names",
            field(doc! {"dbStats": 1}, "collections"),
        ),
    ]
}

/// Whether the index that comes later is in the statistics of the collection.
fn indexed(bed: &Fixture) -> bool {
    let statistics = bed.run(doc! {"collStats": "c"});
    let sizes = statistics.get_document("indexSizes");
    sizes.is_ok_and(|sizes| sizes.contains_key("late"))
}

#[test]
fn every_read_of_a_command_is_made_at_its_view() {
    let bed = filled();
    let before = answers(&bed);
    let view = fixed(&bed);
    change_everything(&bed);
    let after = answers(&bed);
    for (((name, before), (_, seen)), (_, after)) in before.iter().zip(answers(&view)).zip(after) {
        assert_eq!(seen, *before, "{name} at the view");
        assert_ne!(seen, after, "{name}: the change could have been seen");
    }
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
