//! Commands on a device that fails, or loses power, at any of its operations.
//!
//! A recorded history of commands runs on the RocksDB engine over a file system that forgets what was not
//! synced, once for each operation of that file system (or for a sample of them), with a fault there.
//! Then the folder is opened again, as after a power cut. What is found must be the history up to some
//! commit: not one that is earlier than what was acknowledged, and with every index, counter and
//! document in agreement. A model in plain maps says what the history makes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bson::doc;
use millrace_engine::{CommitSeq, Engine as _};
use millrace_fixtures::count;
use millrace_random::Random;
use millrace_rocksdb::{Fault, FileSystem, Options, RocksEngine, UnsyncedLossFs};

use crate::history::fixture::{Fixture, is_storage};
use crate::history::recording::Recording;
use crate::history::restless::{OtherClient, Restless};
use crate::history::workload::history;

/// How many steps the history has.
const STEPS: usize = 90;
/// Of how many operations at most a fault is tried at each; of more where seeds are named from outside.
const FAULTS_MAX: u64 = 30;
const FAULTS_MAX_LONG: u64 = 130;
/// After so many steps the engine is synced.
const STEPS_PER_SYNC: usize = 3;

fn open_engine(
    folder: &Path,
    file_system: &UnsyncedLossFs,
) -> millrace_engine::Result<Arc<Restless>> {
    let options = Options {
        cache_bytes: 8 << 20,
        file_system: FileSystem::UnsyncedLoss(file_system.clone()),
        ..Options::default()
    };
    let engine = RocksEngine::open(folder, options)?;
    Ok(Arc::new(Restless::new(engine, OtherClient::default())))
}

/// Runs the history where nothing fails; also how many operations on the file system it took, closing included.
fn record(seed: u64) -> (Recording, u64) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file_system = UnsyncedLossFs::new();
    let engine = open_engine(folder.path(), &file_system).expect("it opens");
    let fixture = Fixture::on(engine).expect("it opens");
    let steps = history(seed, STEPS);
    let recording = Recording::new(&fixture, steps, STEPS_PER_SYNC, &mut |_, _| {});
    drop(fixture);
    (recording, file_system.operations())
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
fn check_poisoned(fixture: &Fixture, case: &str) {
    let insert = doc! {"insert": "c", "documents": [{"_id": -1}]};
    for command in [insert, doc! {"create": "e"}, doc! {"drop": "d"}] {
        let written = match fixture.run_on("test", &command) {
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
    fixture.engine.sync().expect_err("nothing is acknowledged");
    fixture.contents();
}

fn run_with_fault(recording: &Recording, operation: u64, fault: Fault) -> Ending {
    let case = format!("{fault:?} at {operation}");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file_system = UnsyncedLossFs::new();
    file_system.fail_at(operation, fault);
    let mut durable = CommitSeq::ZERO;
    let mut last = CommitSeq::ZERO;
    let mut ending = match open_engine(folder.path(), &file_system) {
        Err(error) => {
            assert!(!error.to_string().is_empty(), "{case}");
            Ending::OpenFailed
        }
        Ok(engine) => {
            let fixture = Fixture::on(engine).expect("an empty folder has an empty catalog");
            match recording.run(&fixture, 0, &mut durable, &case) {
                None => {
                    last = fixture.engine.last_commit_seq();
                    Ending::Finished
                }
                Some(failed) => {
                    last = recording.commit_seqs[failed + 1];
                    check_poisoned(&fixture, &case);
                    Ending::Whole
                }
            }
        }
    };
    // The engine is gone, and this file system knows only what was synced.
    let engine = open_engine(folder.path(), &UnsyncedLossFs::new());
    let engine = engine.unwrap_or_else(|error| panic!("{case}: {error:?}"));
    let commit_seq = engine.last_commit_seq();
    assert!(
        commit_seq >= durable,
        "{case}: {commit_seq} is left, {durable} was acknowledged"
    );
    assert!(commit_seq <= last, "{case}: {commit_seq} is left of {last}");
    let fixture = Fixture::on(engine).unwrap_or_else(|error| panic!("{case}: {error:?}"));
    fixture.check(&case);
    let whole = recording.check_prefix(&fixture, commit_seq, &case);
    if whole.is_none() {
        ending = Ending::Partial;
    }
    if let Some(steps) = whole.filter(|_| fixture.engine.last_commit_seq() == commit_seq) {
        // It is as good as new: the history goes on where it was cut.
        let failed = recording.run(&fixture, steps, &mut durable, &case);
        assert_eq!(failed, None, "{case}");
        assert_eq!(Some(&fixture.contents()), recording.models.last(), "{case}");
    } else {
        fixture.run(&doc! {"insert": "e", "documents": [{"_id": -1}]});
        fixture
            .engine
            .sync()
            .unwrap_or_else(|error| panic!("{case}: {error:?}"));
    }
    fixture.check(&case);
    ending
}

/// The operations at which a fault is tried: all, or a sample of one in each of as many parts.
fn places(operations: u64, seed: u64) -> Vec<u64> {
    let parts = count(FAULTS_MAX, FAULTS_MAX_LONG).min(operations);
    let mut random = Random::new(seed);
    let place = |part: u64| {
        let (start, end) = (part * operations / parts, (part + 1) * operations / parts);
        start + random.below(end - start)
    };
    (0..parts).map(place).collect()
}

fn run_with_faults(fault: Fault, seed: u64) {
    let (recording, operations) = record(seed);
    let mut endings = BTreeMap::new();
    for operation in places(operations, seed) {
        let ending = run_with_fault(&recording, operation, fault);
        *endings.entry(ending).or_insert(0_u32) += 1;
    }
    for ending in [Ending::OpenFailed, Ending::Whole, Ending::Partial] {
        assert!(
            endings.contains_key(&ending),
            "none of {operations} operations led to {ending:?}: {endings:?}"
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
    let (recording, _) = record(3);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file_system = UnsyncedLossFs::new();
    let engine = open_engine(folder.path(), &file_system).expect("it opens");
    let fixture = Fixture::on(engine).expect("it opens");
    for step in &recording.steps[..3] {
        fixture.step(step).expect("nothing fails");
    }
    file_system.fail_at(file_system.operations(), Fault::PowerCut);
    let commit_seq = fixture.engine.last_commit_seq();
    drop(fixture);
    let engine = open_engine(folder.path(), &UnsyncedLossFs::new()).expect("it opens");
    assert!(engine.last_commit_seq() < commit_seq);
    let fixture = Fixture::on(engine).expect("it opens");
    assert_ne!(fixture.contents(), recording.models[3]);
}
