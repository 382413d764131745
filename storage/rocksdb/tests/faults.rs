//! A failure, and a power cut, at every single operation on the file system.
//!
//! The forgetful file system counts its operations. The same small workload runs once for each of them
//! with a fault there. Afterwards the folder is opened through a new file system, which sees what was
//! synced and nothing else, as after a power cut.

use std::path::Path;

use millrace_engine::{
    Batch, Counter, Durability, Engine, Error, ErrorKind, Guards, KeyRange, Optime, Result,
};
use millrace_rocksdb::{Fault, FileSystem, ForgetfulFileSystem, Options, RocksEngine};

/// Enough for several syncs of each log.
const COMMITS: u64 = 24;

/// Commits between two checkpoints. A checkpoint's flush begins a new log; the third log overwrites the
/// first.
const CHECKPOINT_INTERVAL: u64 = 9;

/// What a workload was told.
#[derive(Debug, Default)]
struct Told {
    /// The last optime that was called durable.
    durable: Optime,
    /// The last optime that was given out at all.
    last: Optime,
}

fn open(folder: &Path, file_system: &ForgetfulFileSystem) -> Result<RocksEngine> {
    let file_system = FileSystem::Forgetful(file_system.clone());
    RocksEngine::open(
        folder,
        Options {
            cache_bytes: 8 << 20,
            file_system,
            ..Options::default()
        },
    )
}

/// Commits from the engine's last optime on, each with a key named after its optime. Every third commit
/// waits for the device, and checkpoints flush the memtables.
fn work(engine: &RocksEngine, checkpoint: &Path, told: &mut Told) -> Result<()> {
    while engine.last_optime() < Optime::new(COMMITS) {
        let number = engine.last_optime().next().get();
        let mut batch = Batch::new();
        batch.put(&number.to_be_bytes(), &[0xAB; 1000]);
        batch.add(
            b"keys",
            Counter {
                count: 1,
                bytes: 1008,
            },
        );
        let synced = number % 3 == 0;
        let durability = if synced {
            Durability::Synced
        } else {
            Durability::Buffered
        };
        let optime = engine.commit(&batch, &Guards::none(), durability)?;
        assert_eq!(optime, Optime::new(number));
        told.last = optime;
        if synced {
            told.durable = optime;
        }
        if number % CHECKPOINT_INTERVAL == 0 {
            engine.checkpoint(&checkpoint.with_extension(number.to_string()))?;
        }
    }
    told.durable = engine.sync()?;
    Ok(())
}

/// Every commit up to some optime is there, and none after it: the keys, the counter and the optime say
/// the same, and it is at least what was called durable.
fn check(engine: &RocksEngine, told: &Told, case: &str) {
    let last = engine.last_optime();
    assert!(last >= told.durable, "{case}: {last} is left of {told:?}");
    // A commit that failed may have reached the device all the same, but only the first one to fail.
    assert!(
        last <= told.last.next(),
        "{case}: {last} is more than {told:?}"
    );
    let mut cursor = engine.cursor(KeyRange::all()).expect("a cursor");
    let mut standing = cursor.seek_first().expect("the cursor moves");
    for number in 1..=last.get() {
        assert!(standing, "{case}: commit {number} of {last} is missing");
        assert_eq!(cursor.key(), number.to_be_bytes(), "{case}");
        assert_eq!(cursor.value(), [0xAB; 1000], "{case}");
        standing = cursor.next().expect("the cursor moves");
    }
    assert!(!standing, "{case}: there are keys after optime {last}");
    let keys = i64::try_from(last.get()).expect("few commits");
    let expected = Counter {
        count: keys,
        bytes: 1008 * keys,
    };
    assert_eq!(
        engine.counter(b"keys").expect("counter answers"),
        expected,
        "{case}"
    );
}

/// After a failed commit or sync nothing is acknowledged, and reads go on.
fn check_poisoned(engine: &RocksEngine, told: &Told, failure: &Error, case: &str) {
    assert!(
        matches!(failure.kind(), ErrorKind::Io | ErrorKind::Corruption),
        "{case}: {failure}"
    );
    let mut batch = Batch::new();
    batch.put(b"after the failure", b"");
    for durability in [Durability::Buffered, Durability::Synced] {
        let refused = engine.commit(&batch, &Guards::none(), durability);
        let refused = refused.expect_err("nothing is acknowledged");
        assert_eq!(refused.kind(), ErrorKind::Poisoned, "{case}");
        let cause = refused.to_string();
        assert!(cause.contains("injected fault"), "{case}: {cause}");
    }
    let refused = engine.sync().expect_err("nothing is acknowledged");
    assert_eq!(refused.kind(), ErrorKind::Poisoned, "{case}");
    assert!(engine.durable_optime() >= told.durable, "{case}");
    assert!(engine.durable_optime() <= told.last.next(), "{case}");
    if told.last > Optime::ZERO {
        let value = engine
            .get(&told.last.get().to_be_bytes())
            .expect("reads go on");
        assert!(value.is_some(), "{case}: commit {} is gone", told.last);
    }
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
    let file_system = ForgetfulFileSystem::new();
    file_system.fail_at(operation, fault);
    let mut told = Told::default();
    let ending = match open(&folder, &file_system) {
        Err(failure) => {
            assert!(!failure.to_string().is_empty());
            Ending::OpenFailed
        }
        Ok(engine) => match work(&engine, &checkpoint, &mut told) {
            Ok(()) => Ending::Finished,
            Err(failure) if failure.to_string().contains("checkpoint") => Ending::CheckpointFailed,
            Err(failure) => {
                check_poisoned(&engine, &told, &failure, &case);
                Ending::Poisoned
            }
        },
    };
    // The engine is gone, and this file system knows only what was synced.
    let recovered = open(&folder, &ForgetfulFileSystem::new());
    let recovered = recovered.unwrap_or_else(|error| panic!("{case}: {error:?}"));
    check(&recovered, &told, &case);
    // It is as good as new.
    let checkpoint = home.join("second checkpoint");
    work(&recovered, &checkpoint, &mut told).unwrap_or_else(|error| panic!("{case}: {error:?}"));
    drop(recovered);
    check(
        &open(&folder, &ForgetfulFileSystem::new()).expect("it opens"),
        &told,
        &case,
    );
    ending
}

/// How many operations the workload takes when nothing fails, closing included.
fn operations_without_fault() -> u64 {
    let home = tempfile::tempdir().expect("a temporary folder");
    let file_system = ForgetfulFileSystem::new();
    let engine = open(&home.path().join("data"), &file_system).expect("it opens");
    let mut told = Told::default();
    work(&engine, &home.path().join("checkpoint"), &mut told).expect("nothing fails");
    assert_eq!(told.durable, Optime::new(COMMITS));
    drop(engine);
    file_system.operations()
}

fn run_with_fault_everywhere(fault: Fault) -> Vec<Ending> {
    let operations = operations_without_fault();
    let run = |operation| {
        let home = tempfile::tempdir().expect("a temporary folder");
        run_with_fault(home.path(), operation, fault)
    };
    (0..operations).map(run).collect()
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
fn the_forgetful_file_system_forgets() {
    // Shows that the tests above can fail: without a sync nothing is left.
    let home = tempfile::tempdir().unwrap();
    let file_system = ForgetfulFileSystem::new();
    let engine = open(home.path(), &file_system).unwrap();
    let mut batch = Batch::new();
    batch.put(b"key", b"value");
    engine
        .commit(&batch, &Guards::none(), Durability::Buffered)
        .unwrap();
    assert_eq!(engine.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
    // From here on nothing reaches the device, not even when the engine is closed.
    file_system.fail_at(file_system.operations(), Fault::PowerCut);
    drop(engine);
    let recovered = open(home.path(), &ForgetfulFileSystem::new()).unwrap();
    assert_eq!(recovered.last_optime(), Optime::ZERO);
    assert_eq!(recovered.get(b"key").unwrap(), None);
}
