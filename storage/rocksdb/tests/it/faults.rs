//! A failure, and a power cut, at every single operation on the file system.
//!
//! The file system with unsynced loss counts its operations. The same small workload runs once for each of them
//! with a fault there. Afterwards the folder is opened through a new file system, which sees what was
//! synced and nothing else, as after a power cut.

use std::path::Path;

use crate::history::{COMMITS, Told, check, work};

use crate::poisoned::check_poisoned;
use millrace_engine::{Batch, CommitSeq, Durability, Engine, ReadSet, Result};
use millrace_fixtures::count;
use millrace_rocksdb::{Fault, FileSystem, Options, RocksEngine, UnsyncedLossFs};

fn open(folder: &Path, file_system: &UnsyncedLossFs) -> Result<RocksEngine> {
    let file_system = FileSystem::UnsyncedLoss(file_system.clone());
    RocksEngine::open(
        folder,
        Options {
            cache_bytes: 8 << 20,
            file_system,
            ..Options::default()
        },
    )
}

/// How a workload with a fault ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    OpenFailed,
    CheckpointFailed,
    Poisoned,
    Finished,
}

fn run_with_fault(home: &Path, operation: u64, fault: Fault) -> Ending {
    let case = format!("{fault:?} at {operation}");
    let (folder, checkpoint) = (home.join("data"), home.join("checkpoint"));
    let file_system = UnsyncedLossFs::new();
    file_system.fail_at(operation, fault);
    let mut told = Told::default();
    let ending = match open(&folder, &file_system) {
        Err(failure) => {
            assert!(!failure.to_string().is_empty());
            Ending::OpenFailed
        }
        Ok(engine) => match work(&engine, &checkpoint, &mut told, &mut |_| {}) {
            Ok(()) => Ending::Finished,
            Err(failure) if failure.to_string().contains("checkpoint") => Ending::CheckpointFailed,
            Err(failure) => {
                check_poisoned(&engine, &told, &failure, "injected fault", &case);
                Ending::Poisoned
            }
        },
    };
    // The engine is gone, and this file system knows only what was synced.
    let recovered = open(&folder, &UnsyncedLossFs::new());
    let recovered = recovered.unwrap_or_else(|error| panic!("{case}: {error:?}"));
    check(&recovered, &told, &case);
    // It is as good as new.
    let checkpoint = home.join("second checkpoint");
    work(&recovered, &checkpoint, &mut told, &mut |_| {})
        .unwrap_or_else(|error| panic!("{case}: {error:?}"));
    drop(recovered);
    check(
        &open(&folder, &UnsyncedLossFs::new()).expect("it opens"),
        &told,
        &case,
    );
    ending
}

/// How many operations the workload takes when nothing fails, closing included.
fn operations_without_fault() -> u64 {
    let home = tempfile::tempdir().expect("a temporary folder");
    let file_system = UnsyncedLossFs::new();
    let engine = open(&home.path().join("data"), &file_system).expect("it opens");
    let mut told = Told::default();
    work(
        &engine,
        &home.path().join("checkpoint"),
        &mut told,
        &mut |_| {},
    )
    .expect("nothing fails");
    assert_eq!(told.durable, CommitSeq::new(COMMITS));
    drop(engine);
    file_system.operations()
}

fn run_with_fault_everywhere(fault: Fault) -> Vec<Ending> {
    let operations = operations_without_fault();
    let run = |operation| {
        let home = tempfile::tempdir().expect("a temporary folder");
        run_with_fault(home.path(), operation, fault)
    };
    // At one operation in three, and at all where seeds are named from outside.
    (0..operations).step_by(count(3, 1)).map(run).collect()
}

#[test]
fn a_failure_anywhere_loses_nothing_that_was_acknowledged() {
    let endings = run_with_fault_everywhere(Fault::Once);
    for ending in [Ending::OpenFailed, Ending::Poisoned] {
        assert!(endings.contains(&ending), "no fault led to {ending:?}");
    }
}

#[test]
fn a_power_cut_anywhere_loses_nothing_that_was_acknowledged() {
    let endings = run_with_fault_everywhere(Fault::PowerCut);
    for ending in [
        Ending::OpenFailed,
        Ending::CheckpointFailed,
        Ending::Poisoned,
    ] {
        assert!(endings.contains(&ending), "no power cut led to {ending:?}");
    }
}

#[test]
fn the_unsynced_loss_fs_loses_what_was_not_synced() {
    // Shows that the tests above can fail: without a sync nothing is left.
    let home = tempfile::tempdir().unwrap();
    let file_system = UnsyncedLossFs::new();
    let engine = open(home.path(), &file_system).unwrap();
    let mut batch = Batch::new();
    batch.put(b"key", b"value");
    engine
        .commit(&batch, &ReadSet::none(), Durability::Buffered)
        .unwrap();
    assert_eq!(engine.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
    // From here on nothing reaches the device, not even when the engine is closed.
    file_system.fail_at(file_system.operations(), Fault::PowerCut);
    drop(engine);
    let recovered = open(home.path(), &UnsyncedLossFs::new()).unwrap();
    assert_eq!(recovered.last_commit_seq(), CommitSeq::ZERO);
    assert_eq!(recovered.get(b"key").unwrap(), None);
}
