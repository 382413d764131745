//! What observers learn of commits.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

use bson::{Document, RawDocument, RawDocumentBuf, Uuid, doc};
use millrace_collection::committer::{CommitObserver, Detail, LogicalChange};
use millrace_collection::{Collection, Namespace, WriteSet, clustered_record_id};
use millrace_engine::conformance::hooked::{Hooked, Hooks};
use millrace_engine::{CommitSeq, Engine, Error, ErrorKind, MemoryEngine};
use millrace_value::Collation;

use crate::support::Fixture;

/// One change as a document, UUIDs left out.
type Line = Document;

/// Keeps the commits it observes, and the engine's last position at that time.
#[derive(Debug)]
struct Recorder {
    detail: Option<Detail>,
    engine: Arc<dyn Engine>,
    lines: Mutex<Vec<(u64, Vec<Line>)>>,
}

impl Recorder {
    fn new(detail: Option<Detail>, engine: &Arc<dyn Engine>) -> Arc<Self> {
        Arc::new(Self {
            detail,
            engine: Arc::clone(engine),
            lines: Mutex::default(),
        })
    }

    fn take(&self) -> Vec<(u64, Vec<Line>)> {
        std::mem::take(&mut self.lines.lock().expect("no holder panics"))
    }

    /// The changes since the last call, each at the position after the one before it.
    fn changes(&self, next: &mut u64) -> Vec<Vec<Line>> {
        let mut all = Vec::new();
        for (position, lines) in self.take() {
            assert_eq!(position, *next, "{lines:?}");
            *next += 1;
            all.push(lines);
        }
        all
    }
}

impl CommitObserver for Recorder {
    fn detail(&self, _: &Collection) -> Option<Detail> {
        self.detail
    }

    fn committed(&self, position: CommitSeq, changes: &[LogicalChange<'_>]) {
        assert!(self.engine.last_commit_seq() >= position, "it is visible");
        let lines = changes.iter().map(line).collect();
        let mut all = self.lines.lock().expect("no holder panics");
        all.push((position.get(), lines));
    }
}

fn line(change: &LogicalChange<'_>) -> Line {
    let document = |raw: &RawDocument| Document::try_from(raw).expect("a document");
    match *change {
        LogicalChange::Insert {
            namespace,
            document: inserted,
            ..
        } => doc! {"insert": namespace.as_str(), "document": document(inserted)},
        LogicalChange::Update {
            namespace,
            before,
            after,
            ..
        } => {
            let mut line = doc! {"update": namespace.as_str(), "after": document(after)};
            if let Some(before) = before {
                line.insert("before", document(before));
            }
            line
        }
        LogicalChange::Delete {
            namespace,
            key,
            before,
            ..
        } => {
            let mut line = doc! {"delete": namespace.as_str(), "key": document(key)};
            if let Some(before) = before {
                line.insert("before", document(before));
            }
            line
        }
        LogicalChange::Command {
            database,
            document: command,
            ..
        } => {
            let mut command = command.clone();
            if command.contains_key("dropTarget") {
                command.insert("dropTarget", true);
            }
            doc! {"command": database, "is": command}
        }
    }
}

fn command(is: Document) -> Line {
    doc! {"command": "test", "is": is}
}

/// A database in memory with one observer.
fn observed(detail: Option<Detail>) -> (Fixture, Arc<Recorder>) {
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
    let recorder = Recorder::new(detail, &engine);
    let bed = Fixture::observed(engine, vec![Arc::clone(&recorder) as _]);
    (bed, recorder)
}

fn id_index() -> Document {
    doc! {"v": 2, "key": {"_id": 1}, "name": "_id_"}
}

fn create(name: &str) -> Vec<Line> {
    vec![command(doc! {"create": name, "idIndex": id_index()})]
}

#[test]
fn writes_of_documents_are_announced_in_their_order() {
    let (bed, recorder) = observed(Some(Detail::Images));
    let mut next = 1;
    let mut check = |expected: Vec<Vec<Line>>| assert_eq!(recorder.changes(&mut next), expected);
    bed.insert("c", vec![doc! {"_id": 1, "a": 1}, doc! {"_id": 2, "a": 2}]);
    check(vec![
        create("c"),
        vec![
            doc! {"insert": "test.c", "document": {"_id": 1, "a": 1}},
            doc! {"insert": "test.c", "document": {"_id": 2, "a": 2}},
        ],
    ]);
    bed.run(doc! {"update": "c", "updates": [
        {"q": {"_id": 1}, "u": {"$inc": {"a": 5}}},
        {"q": {"_id": 2}, "u": {"$set": {"a": 2}}},
        {"q": {"_id": 3}, "u": {"$set": {"a": 3}}, "upsert": true},
    ]});
    check(vec![
        vec![doc! {"update": "test.c", "after": {"_id": 1, "a": 6}, "before": {"_id": 1, "a": 1}}],
        vec![doc! {"insert": "test.c", "document": {"_id": 3, "a": 3}}],
    ]);
    bed.run(doc! {"findAndModify": "c", "query": {"_id": 3}, "update": {"b": 1}});
    bed.run(doc! {"delete": "c", "deletes": [{"q": {"_id": 2}, "limit": 1}]});
    bed.run(doc! {"delete": "c", "deletes": [{"q": {}, "limit": 0}]});
    check(vec![
        vec![doc! {"update": "test.c", "after": {"_id": 3, "b": 1}, "before": {"_id": 3, "a": 3}}],
        vec![doc! {"delete": "test.c", "key": {"_id": 2}, "before": {"_id": 2, "a": 2}}],
        vec![
            doc! {"delete": "test.c", "key": {"_id": 1}, "before": {"_id": 1, "a": 6}},
            doc! {"delete": "test.c", "key": {"_id": 3}, "before": {"_id": 3, "b": 1}},
        ],
    ]);
    bed.run(doc! {"create": "log", "capped": true, "size": 4096, "max": 1});
    bed.insert("log", vec![doc! {"_id": 7}, doc! {"_id": 8}]);
    check(vec![
        vec![command(doc! {
            "create": "log", "idIndex": id_index(), "capped": true, "size": 4096, "max": 1,
        })],
        vec![
            doc! {"insert": "test.log", "document": {"_id": 7}},
            doc! {"insert": "test.log", "document": {"_id": 8}},
            doc! {"delete": "test.log", "key": {"_id": 7}, "before": {"_id": 7}},
        ],
    ]);
    // What reads, or changes nothing, commits nothing.
    bed.run(doc! {"find": "c"});
    bed.run(doc! {"update": "c", "updates": [{"q": {"_id": 99}, "u": {"$set": {"a": 1}}}]});
    bed.run(doc! {"create": "log", "capped": true, "size": 4096, "max": 1});
    check(vec![]);
    assert_eq!(bed.engine.last_commit_seq().next().get(), next);
}

#[test]
fn changes_of_the_catalog_are_announced_as_commands() {
    let (bed, recorder) = observed(None);
    let mut next = 1;
    let mut check = |expected: Vec<Vec<Line>>| assert_eq!(recorder.changes(&mut next), expected);
    let index = |name: &str| doc! {"v": 2, "key": {name: 1}, "name": name};
    let with = |name: &str, rest: Document| {
        let mut is = doc! {name: "c"};
        is.extend(rest);
        command(is)
    };
    bed.run(doc! {"createIndexes": "c", "indexes": [index("a"), index("b")]});
    bed.insert("c", vec![doc! {"_id": 1}]);
    bed.run(doc! {"createIndexes": "c", "indexes": [index("d")]});
    check(vec![
        create("c"),
        vec![
            with("createIndexes", index("a")),
            with("createIndexes", index("b")),
        ],
        vec![],
        vec![with("startIndexBuild", doc! {"indexes": [index("d")]})],
        vec![],
        vec![with("commitIndexBuild", doc! {"indexes": [index("d")]})],
    ]);
    let unique = doc! {"key": {"u": 1}, "name": "u", "unique": true};
    bed.insert("c", vec![doc! {"_id": 2}]);
    assert_eq!(
        bed.code(doc! {"createIndexes": "c", "indexes": [unique]}),
        11000
    );
    let started = doc! {"v": 2, "key": {"u": 1}, "name": "u", "unique": true};
    check(vec![
        vec![],
        vec![with("startIndexBuild", doc! {"indexes": [started]})],
        vec![with("abortIndexBuild", doc! {"indexes": [{"name": "u"}]})],
    ]);
    bed.run(
        doc! {"collMod": "c", "validationLevel": "off", "index": {"name": "a", "hidden": true}},
    );
    bed.run(doc! {"dropIndexes": "c", "index": ["a", "d"]});
    check(vec![
        vec![with("collMod", doc! {"validationLevel": "off"})],
        vec![with(
            "collMod",
            doc! {"index": {"name": "a", "hidden": true}},
        )],
        vec![
            with("dropIndexes", doc! {"index": "a"}),
            with("dropIndexes", doc! {"index": "d"}),
        ],
    ]);
    bed.run(doc! {"create": "old"});
    bed.run(doc! {"renameCollection": "test.c", "to": "test.old", "dropTarget": true});
    bed.run(doc! {"renameCollection": "test.old", "to": "test.c"});
    bed.run(doc! {"drop": "c"});
    bed.run(doc! {"drop": "c"});
    let renamed = doc! {"renameCollection": "test.c", "to": "test.old", "stayTemp": false, "dropTarget": true};
    let back = doc! {"renameCollection": "test.old", "to": "test.c", "stayTemp": false};
    check(vec![
        create("old"),
        vec![command(renamed)],
        vec![command(back)],
        vec![command(doc! {"drop": "c"})],
    ]);
    bed.run(doc! {"create": "x"});
    bed.run(doc! {"create": "y"});
    bed.run(doc! {"dropDatabase": 1});
    check(vec![
        create("x"),
        create("y"),
        vec![command(doc! {"drop": "x"})],
        vec![command(doc! {"drop": "y"})],
    ]);
}

#[test]
fn an_observer_gets_the_detail_that_it_wants() {
    let writes = |bed: &Fixture| {
        bed.insert("c", vec![doc! {"_id": 1}]);
        bed.run(doc! {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"a": 1}}]});
        bed.run(doc! {"delete": "c", "deletes": [{"q": {"_id": 1}, "limit": 1}]});
    };
    let (bed, recorder) = observed(None);
    writes(&bed);
    let expected = vec![create("c"), vec![], vec![], vec![]];
    assert_eq!(recorder.changes(&mut 1), expected);
    let (bed, recorder) = observed(Some(Detail::Documents));
    writes(&bed);
    let expected = vec![
        create("c"),
        vec![doc! {"insert": "test.c", "document": {"_id": 1}}],
        vec![doc! {"update": "test.c", "after": {"_id": 1, "a": 1}}],
        vec![doc! {"delete": "test.c", "key": {"_id": 1}}],
    ];
    assert_eq!(recorder.changes(&mut 1), expected);
}

/// Hooks that make commits fail while a flag is set.
#[derive(Debug, Default)]
struct Failing(AtomicBool);

impl Hooks for Failing {
    fn refuse_commit(&self) -> Result<(), Error> {
        if self.0.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Io, "the disk is gone"));
        }
        Ok(())
    }
}

#[test]
fn a_commit_that_fails_is_not_announced() {
    let hooked = Arc::new(Hooked::new(MemoryEngine::new(), Failing::default()));
    let failing = hooked.hooks();
    let engine: Arc<dyn Engine> = Arc::clone(&hooked) as _;
    let recorder = Recorder::new(Some(Detail::Images), &engine);
    let bed = Fixture::observed(engine, vec![Arc::clone(&recorder) as _]);
    bed.run(doc! {"create": "log", "capped": true, "size": 4096});
    bed.insert("c", vec![doc! {"_id": 1}]);
    recorder.take();
    failing.0.store(true, Ordering::Relaxed);
    for command in [
        doc! {"insert": "c", "documents": [{"_id": 2}]},
        doc! {"insert": "log", "documents": [{"_id": 2}]},
        doc! {"insert": "new", "documents": [{"_id": 2}]},
        doc! {"delete": "c", "deletes": [{"q": {"_id": 1}, "limit": 1}]},
        doc! {"collMod": "c", "validationLevel": "off"},
        doc! {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a"}]},
        doc! {"renameCollection": "test.c", "to": "test.d"},
        doc! {"drop": "c"},
    ] {
        assert!(bed.try_run(command.clone()).is_err(), "{command}");
    }
    assert_eq!(recorder.take(), []);
    failing.0.store(false, Ordering::Relaxed);
    // A duplicate key keeps the commit from being made.
    bed.run(doc! {"insert": "c", "documents": [{"_id": 1}]});
    assert_eq!(recorder.take(), []);
    // Nothing of what failed is left behind in memory.
    bed.insert("log", vec![doc! {"_id": 2}]);
    bed.insert("c", vec![doc! {"_id": 2}]);
    assert_eq!(recorder.take().len(), 2);
    bed.assert_valid("c");
    bed.assert_valid("log");
}

#[test]
fn a_commit_of_several_collections_is_one() {
    let (bed, recorder) = observed(Some(Detail::Images));
    bed.insert("a", vec![doc! {"_id": 1, "n": 10}]);
    bed.run(
        doc! {"createIndexes": "b", "indexes": [{"key": {"n": 1}, "name": "n", "unique": true}]},
    );
    recorder.take();
    let catalog = bed.database.catalog();
    let share = |name: &str| {
        let namespace = Namespace::new("test", name).expect("a name");
        catalog.share(&namespace).expect("it is there")
    };
    let raw = |document: Document| RawDocumentBuf::try_from(&document).expect("a document");
    let id = |number: i32| {
        clustered_record_id(bson::RawBsonRef::Int32(number), Collation::SIMPLE).expect("a key")
    };
    let (a, b) = (share("a"), share("b"));
    // Moves the document 1 from one collection to the other, and back comes another one.
    let transfer = |move_on: &dyn Fn()| {
        let mut set = WriteSet::new(catalog.committer(), catalog.latest(), a.collection());
        let read = set.read(&id(1)).expect("a read").expect("it is there");
        let document = RawDocumentBuf::from_bytes(read).expect("a document");
        set.delete(&id(1), &document).expect("a deletion");
        set.select(b.collection());
        set.insert(&id(1), &document).expect("an insertion");
        set.select(a.collection());
        set.insert(&id(2), &raw(doc! {"_id": 2}))
            .expect("an insertion");
        move_on();
        set.commit()
    };
    // Another commit changes what was read in the first collection: nothing of the second is committed.
    let refused = transfer(&|| {
        bed.run(doc! {"update": "a", "updates": [{"q": {"_id": 1}, "u": {"$set": {"n": 11}}}]});
        recorder.take();
    });
    assert_eq!(refused.expect_err("a conflict").code().number(), 112);
    assert_eq!(recorder.take(), []);
    assert_eq!(bed.all(doc! {"find": "b"}), []);
    let position = transfer(&|| {}).expect("a commit").expect("a position");
    let expected = vec![
        doc! {"delete": "test.a", "key": {"_id": 1}, "before": {"_id": 1, "n": 11}},
        doc! {"insert": "test.b", "document": {"_id": 1, "n": 11}},
        doc! {"insert": "test.a", "document": {"_id": 2}},
    ];
    assert_eq!(recorder.take(), [(position.get(), expected)]);
    drop((a, b));
    assert_eq!(bed.all(doc! {"find": "a"}), [doc! {"_id": 2}]);
    assert_eq!(
        bed.all(doc! {"find": "b", "hint": "n"}),
        [doc! {"_id": 1, "n": 11}]
    );
    for (name, count) in [("a", 1), ("b", 1)] {
        let reply = bed.run(doc! {"count": name});
        assert_eq!(reply.get_i32("n").ok(), Some(count));
        bed.assert_valid(name);
    }
}

/// How often something had been inserted into a collection by its own count, at each announcement.
#[derive(Debug, Default)]
struct Counts {
    collection: OnceLock<Arc<Collection>>,
    seen: Mutex<Vec<u64>>,
}

impl CommitObserver for Counts {
    fn detail(&self, _: &Collection) -> Option<Detail> {
        None
    }

    fn committed(&self, _: CommitSeq, _: &[LogicalChange<'_>]) {
        if let Some(collection) = self.collection.get() {
            let mut seen = self.seen.lock().expect("no holder panics");
            seen.push(collection.inserts());
        }
    }
}

#[test]
fn what_a_waiting_cursor_compares_is_published_before_observers_are_told() {
    let counts = Arc::new(Counts::default());
    let engine = Arc::new(MemoryEngine::new());
    let bed = Fixture::observed(engine, vec![Arc::clone(&counts) as _]);
    bed.run(doc! {"create": "log", "capped": true, "size": 4096});
    let namespace = Namespace::new("test", "log").expect("a name");
    let log = bed.database.catalog().find(&namespace);
    counts.collection.get_or_init(|| log.expect("it is there"));
    bed.insert("log", vec![doc! {"_id": 1}]);
    bed.run(
        doc! {"update": "log", "updates": [{"q": {"_id": 2}, "u": {"_id": 2}, "upsert": true}]},
    );
    assert_eq!(*counts.seen.lock().expect("no holder panics"), [1, 2]);
}

/// The UUID of the collection of every change, by namespace.
#[derive(Debug, Default)]
struct Identities(Mutex<BTreeMap<String, Uuid>>);

impl CommitObserver for Identities {
    fn detail(&self, collection: &Collection) -> Option<Detail> {
        (collection.namespace.collection() == "seen").then_some(Detail::Documents)
    }

    fn committed(&self, _: CommitSeq, changes: &[LogicalChange<'_>]) {
        let mut identities = self.0.lock().expect("no holder panics");
        for change in changes {
            if let LogicalChange::Insert {
                namespace, uuid, ..
            } = change
            {
                identities.insert(namespace.to_string(), *uuid);
            }
        }
    }
}

#[test]
fn every_position_is_announced_once_whatever_the_threads() {
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
    let recorder = Recorder::new(None, &engine);
    let identities = Arc::new(Identities::default());
    let observers: Vec<Arc<dyn CommitObserver>> =
        vec![Arc::clone(&recorder) as _, Arc::clone(&identities) as _];
    let bed = Fixture::observed(engine, observers);
    bed.run(doc! {"create": "log", "capped": true, "size": 100_000});
    thread::scope(|scope| {
        for number in 0..4 {
            let bed = &bed;
            scope.spawn(move || {
                for round in 0..25 {
                    let id = number * 100 + round;
                    bed.insert("seen", vec![doc! {"_id": id}]);
                    bed.insert("unseen", vec![doc! {"_id": id}]);
                    bed.insert("log", vec![doc! {"_id": id}]);
                }
            });
        }
    });
    let mut positions: Vec<u64> = recorder.take().into_iter().map(|(at, _)| at).collect();
    positions.sort_unstable();
    let last = bed.engine.last_commit_seq().get();
    assert!(positions.into_iter().eq(1..=last));
    let seen = bed
        .database
        .catalog()
        .find(&Namespace::new("test", "seen").expect("a name"));
    let seen = seen.expect("it is there");
    let identities = identities.0.lock().expect("no holder panics");
    let expected = BTreeMap::from([("test.seen".to_owned(), seen.uuid)]);
    assert_eq!(*identities, expected);
}
