//! Commands on a device that fails, or loses power, at any of its operations.
//!
//! A recorded history of commands runs on the RocksDB engine over a file system that forgets what was not
//! synced, once for each operation of that file system (or for a sample of them), with a fault there.
//! Then the folder is opened again, as after a power cut. What is found must be the history up to some
//! commit: not one that is earlier than what was acknowledged, and with every index, counter and
//! document in agreement. A model in plain maps says what the history makes.

#[path = "crash/model.rs"]
mod model;
#[path = "crash/restless.rs"]
mod restless;
#[path = "crash/workload.rs"]
mod workload;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bson::{Document, RawDocumentBuf, doc};
use millrace_document::catalog::{Ident, Namespace};
use millrace_document::command::{CommandRequest, Database, Surroundings};
use millrace_document::operation::Limits;
use millrace_document::{Environment, Error, ErrorCode, Interrupt, Operation, Result};
use millrace_engine::{Engine, KeyRange, Optime};
use millrace_rocksdb::{Fault, FileSystem, ForgetfulFileSystem, Options, RocksEngine};

use model::{Answer, Contents, Model};
use restless::{OtherClient, Restless};
use workload::{Random, Step, history};

/// How many steps the history has.
const STEPS: usize = 90;
/// Of how many operations at most a fault is tried at each.
const FAULTS_MAX: usize = 130;

/// No time passes, and numbers are the same in every run.
#[derive(Debug, Default)]
struct Steady(AtomicU64);

impl Environment for Steady {
    fn wall_clock_ms(&self) -> i64 {
        1_700_000_000_000
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }

    fn random(&self) -> u64 {
        Random(self.0.fetch_add(1, Ordering::Relaxed)).next()
    }
}

#[derive(Debug)]
struct Nobody;

impl Surroundings for Nobody {
    fn capped_insert(&self, _: &Namespace) {}

    fn current_operations(&self, _: &Document) -> Result<Vec<Document>> {
        Ok(Vec::new())
    }

    fn sessions(&self, _: &Document) -> Result<Vec<Document>> {
        Ok(Vec::new())
    }

    fn address(&self) -> String {
        "localhost:27017".to_owned()
    }
}

/// A database on an engine on a folder.
struct Bed {
    engine: Arc<Restless>,
    database: Arc<Database>,
    environment: Arc<Steady>,
}

fn open_engine(
    folder: &Path,
    file_system: &ForgetfulFileSystem,
) -> millrace_engine::Result<Arc<Restless>> {
    let options = Options {
        cache_bytes: 8 << 20,
        file_system: FileSystem::Forgetful(file_system.clone()),
        ..Options::default()
    };
    let engine = RocksEngine::open(folder, options)?;
    Ok(Arc::new(Restless::new(engine, OtherClient::default())))
}

impl Bed {
    fn on(engine: Arc<Restless>) -> Result<Self> {
        let database = Database::open(Arc::clone(&engine) as _, Arc::new(Nobody))?;
        Ok(Self {
            engine,
            database: Arc::new(database),
            environment: Arc::default(),
        })
    }

    fn run_on(&self, database: &str, command: &Document) -> Result<(Document, Option<Optime>)> {
        let name = command.keys().next().expect("a command has a name");
        let body = RawDocumentBuf::try_from(command)?;
        let request = CommandRequest {
            database,
            name,
            body: &body,
            sequences: &[],
            session: None,
        };
        let environment: Arc<dyn Environment> = Arc::clone(&self.environment) as _;
        let operation = Operation::new(
            environment,
            Arc::new(Interrupt::default()),
            Limits::default(),
        );
        let mut reply = Vec::new();
        let effects = self.database.run(&request, &operation, &mut reply)?;
        let reply = Document::from_reader(reply.as_slice()).expect("the reply is BSON");
        Ok((reply, effects.written))
    }

    fn run(&self, command: &Document) -> Document {
        match self.run_on("test", command) {
            Ok((reply, _)) => reply,
            Err(error) => panic!("{command} failed with {:?}: {error}", error.code()),
        }
    }

    /// The documents of a command's cursor, all in one batch.
    fn all(&self, command: &Document) -> Vec<Document> {
        let reply = self.run(command);
        let cursor = reply.get_document("cursor").expect("it has a cursor");
        let batch = cursor.get_array("firstBatch").expect("it has a batch");
        let documents = batch.iter().map(|d| d.as_document().cloned());
        documents
            .collect::<Option<_>>()
            .expect("a batch holds documents")
    }

    /// Does one step; what was answered and the commit it made.
    ///
    /// # Errors
    /// When the engine failed.
    fn step(&self, step: &Step) -> Result<(Answer, Option<Optime>)> {
        let Some((database, command)) = step.command() else {
            self.engine.compact(&KeyRange::all())?;
            return Ok((
                Answer::Done {
                    write_errors: false,
                },
                None,
            ));
        };
        match self.run_on(database, &command) {
            Ok((reply, written)) => {
                let write_errors = reply.contains_key("writeErrors");
                Ok((Answer::Done { write_errors }, written))
            }
            Err(error) if is_storage(&error) => Err(error),
            Err(error) => Ok((Answer::Failed(error.code().number()), None)),
        }
    }

    /// What the database holds.
    fn contents(&self) -> Model {
        let mut collections = BTreeMap::new();
        for description in self.all(&doc! {"listCollections": 1}) {
            let name = description.get_str("name").expect("it has a name");
            let options = description.get_document("options").expect("it has options");
            let capped = options.get_i32("max").ok();
            let indexes = self.all(&doc! {"listIndexes": name});
            let contents = Contents {
                capped: capped.map(|max| usize::try_from(max).expect("it is positive")),
                documents: self.all(&doc! {"find": name, "batchSize": 1_000_000}),
                indexes: indexes
                    .iter()
                    .map(|index| {
                        let name = index.get_str("name").expect("it has a name");
                        (name.to_owned(), index.get_bool("unique").unwrap_or(false))
                    })
                    .filter(|(name, _)| name != "_id_")
                    .collect(),
            };
            collections.insert(name.to_owned(), contents);
        }
        Model { collections }
    }

    /// Documents, indexes and counters agree, and nothing is there that nobody owns.
    fn check(&self, case: &str) {
        let mut owners = BTreeSet::from([Ident::CATALOG.prefix()]);
        for collection in self.database.catalog().collections("test") {
            let name = collection.namespace.collection();
            let reply = self.run(&doc! {"validate": name});
            assert_eq!(reply.get_bool("valid").ok(), Some(true), "{case}: {reply}");
            owners.insert(collection.ident.prefix());
            owners.extend(collection.indexes.iter().map(|index| index.ident.prefix()));
        }
        let mut cursor = self.engine.cursor(KeyRange::all()).expect("a cursor");
        let mut found = cursor.seek_first().expect("it moves");
        while found {
            let owner = cursor.key().first_chunk().expect("keys begin with idents");
            assert!(
                owners.contains(owner),
                "{case}: nobody owns {:?}",
                cursor.key()
            );
            found = cursor.next().expect("it moves");
        }
    }
}

/// Whether an error is the engine's and not the command's.
fn is_storage(error: &Error) -> bool {
    error.code() == ErrorCode::InternalError
}

/// The history, and what it makes when nothing fails.
struct Recording {
    steps: Vec<Step>,
    answers: Vec<Answer>,
    /// The model before the first step, then after each.
    models: Vec<Model>,
    /// The engine's optime at the same places.
    optimes: Vec<Optime>,
    /// How many operations on the file system it took, closing included.
    operations: u64,
}

/// Whether the engine is synced after the step with this number, and the commands up to it thereby
/// acknowledged.
fn is_synced(number: usize) -> bool {
    number % 3 == 2
}

impl Recording {
    fn new(seed: u64) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file_system = ForgetfulFileSystem::new();
        let engine = open_engine(folder.path(), &file_system).expect("it opens");
        let bed = Bed::on(engine).expect("it opens");
        let mut recording = Self {
            steps: history(seed, STEPS),
            answers: Vec::new(),
            models: vec![Model::default()],
            optimes: vec![bed.engine.last_optime()],
            operations: 0,
        };
        let mut model = Model::default();
        for (number, step) in recording.steps.iter().enumerate() {
            let expected = model.apply(step);
            let (answer, written) = bed.step(step).expect("nothing fails");
            assert_eq!(answer, expected, "step {number}: {step:?}");
            assert_eq!(bed.contents(), model, "step {number}: {step:?}");
            let last = bed.engine.last_optime();
            let before = recording.optimes[number];
            let told = written.unwrap_or(before);
            let failed = matches!(answer, Answer::Failed(_));
            assert!(
                failed || told >= last,
                "step {number}: {step:?} made {last}, told of {told}"
            );
            if is_synced(number) {
                bed.engine.sync().expect("nothing fails");
            }
            recording.answers.push(answer);
            recording.models.push(model.clone());
            recording.optimes.push(last);
        }
        bed.check("without a fault");
        drop(bed);
        recording.operations = file_system.operations();
        recording
    }

    /// Runs the steps from `first` on until the engine fails or nothing is left; the number of the step
    /// that failed. `durable` follows what is acknowledged.
    fn run(&self, bed: &Bed, first: usize, durable: &mut Optime, case: &str) -> Option<usize> {
        for (number, step) in self.steps.iter().enumerate().skip(first) {
            let Ok((answer, _)) = bed.step(step) else {
                return Some(number);
            };
            assert_eq!(answer, self.answers[number], "{case}: step {number}");
            assert_eq!(bed.engine.last_optime(), self.optimes[number + 1], "{case}");
            if is_synced(number) {
                match bed.engine.sync() {
                    Ok(optime) => *durable = optime,
                    Err(_) => return Some(number),
                }
            }
        }
        None
    }

    /// What is found at `optime` is the history up to there; how many steps that is, if it is a whole
    /// number of them.
    fn check_prefix(&self, bed: &Bed, optime: Optime, case: &str) -> Option<usize> {
        let found = bed.contents();
        // Steps that commit nothing share an optime; from the last of them the history can go on.
        if let Some(steps) = self.optimes.iter().rposition(|&other| other == optime) {
            assert_eq!(
                found, self.models[steps],
                "{case}: {optime} is after {steps} steps"
            );
            return Some(steps);
        }
        let after = self.optimes.partition_point(|&other| other < optime);
        let (before, after) = (&self.models[after - 1], &self.models[after]);
        assert!(
            found.is_between(before, after),
            "{case}: {optime}: {found:#?} of {after:#?}"
        );
        None
    }
}

/// How a run with a fault ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Ending {
    OpenFailed,
    /// The engine failed; what was found is the history up to the end of a step.
    Whole,
    /// The same, up to the middle of a step.
    Partial,
    Finished,
}

/// After a failure nothing is acknowledged, errors say why, and reads go on.
fn check_poisoned(bed: &Bed, case: &str) {
    let insert = doc! {"insert": "c", "documents": [{"_id": -1}]};
    for command in [insert, doc! {"create": "e"}, doc! {"drop": "d"}] {
        let written = match bed.run_on("test", &command) {
            Ok((_, written)) => written,
            Err(error) => {
                assert!(is_storage(&error), "{case}: {error}");
                assert!(
                    error.to_string().contains("storage engine"),
                    "{case}: {error}"
                );
                continue;
            }
        };
        // What had nothing to do may succeed.
        assert_eq!(written, None, "{case}: {command} was acknowledged");
    }
    bed.engine.sync().expect_err("nothing is acknowledged");
    bed.contents();
}

fn run_with_fault(recording: &Recording, operation: u64, fault: Fault) -> Ending {
    let case = format!("{fault:?} at {operation}");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file_system = ForgetfulFileSystem::new();
    file_system.fail_at(operation, fault);
    let mut durable = Optime::ZERO;
    let mut last = Optime::ZERO;
    let mut ending = match open_engine(folder.path(), &file_system) {
        Err(error) => {
            assert!(!error.to_string().is_empty(), "{case}");
            Ending::OpenFailed
        }
        Ok(engine) => {
            let bed = Bed::on(engine).expect("an empty folder has an empty catalog");
            match recording.run(&bed, 0, &mut durable, &case) {
                None => {
                    last = bed.engine.last_optime();
                    Ending::Finished
                }
                Some(failed) => {
                    last = recording.optimes[failed + 1];
                    check_poisoned(&bed, &case);
                    Ending::Whole
                }
            }
        }
    };
    // The engine is gone, and this file system knows only what was synced.
    let engine = open_engine(folder.path(), &ForgetfulFileSystem::new());
    let engine = engine.unwrap_or_else(|error| panic!("{case}: {error:?}"));
    let optime = engine.last_optime();
    assert!(
        optime >= durable,
        "{case}: {optime} is left, {durable} was acknowledged"
    );
    assert!(optime <= last, "{case}: {optime} is left of {last}");
    let bed = Bed::on(engine).unwrap_or_else(|error| panic!("{case}: {error:?}"));
    bed.check(&case);
    let whole = recording.check_prefix(&bed, optime, &case);
    if whole.is_none() {
        ending = Ending::Partial;
    }
    if let Some(steps) = whole.filter(|_| bed.engine.last_optime() == optime) {
        // It is as good as new: the history goes on where it was cut.
        let failed = recording.run(&bed, steps, &mut durable, &case);
        assert_eq!(failed, None, "{case}");
        assert_eq!(Some(&bed.contents()), recording.models.last(), "{case}");
    } else {
        bed.run(&doc! {"insert": "e", "documents": [{"_id": -1}]});
        bed.engine
            .sync()
            .unwrap_or_else(|error| panic!("{case}: {error:?}"));
    }
    bed.check(&case);
    ending
}

/// The operations at which a fault is tried: all, or a sample of one in each of as many parts.
fn places(operations: u64, seed: u64) -> Vec<u64> {
    let parts = (FAULTS_MAX as u64).min(operations);
    let mut random = Random(seed);
    let place = |part: u64| {
        let (start, end) = (part * operations / parts, (part + 1) * operations / parts);
        start + random.next() % (end - start)
    };
    (0..parts).map(place).collect()
}

fn run_with_faults(fault: Fault, seed: u64) {
    let recording = Recording::new(seed);
    let mut endings = BTreeMap::new();
    for operation in places(recording.operations, seed) {
        let ending = run_with_fault(&recording, operation, fault);
        *endings.entry(ending).or_insert(0_u32) += 1;
    }
    for ending in [Ending::OpenFailed, Ending::Whole, Ending::Partial] {
        assert!(
            endings.contains_key(&ending),
            "none of {} operations led to {ending:?}: {endings:?}",
            recording.operations
        );
    }
}

#[test]
fn a_power_cut_anywhere_leaves_a_prefix_of_the_history() {
    run_with_faults(Fault::PowerCut, 1);
}

#[test]
fn a_failure_anywhere_leaves_a_prefix_of_the_history() {
    run_with_faults(Fault::Once, 2);
}

#[test]
fn the_check_notices_what_is_lost() {
    // Shows that the tests above can fail: commands that were not synced are lost.
    let recording = Recording::new(3);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file_system = ForgetfulFileSystem::new();
    let engine = open_engine(folder.path(), &file_system).expect("it opens");
    let bed = Bed::on(engine).expect("it opens");
    for step in &recording.steps[..3] {
        bed.step(step).expect("nothing fails");
    }
    file_system.fail_at(file_system.operations(), Fault::PowerCut);
    let optime = bed.engine.last_optime();
    drop(bed);
    let engine = open_engine(folder.path(), &ForgetfulFileSystem::new()).expect("it opens");
    assert!(engine.last_optime() < optime);
    let bed = Bed::on(engine).expect("it opens");
    assert_ne!(bed.contents(), recording.models[3]);
}
