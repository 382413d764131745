//! A device that fails under an engine: at its Nth request, for good or once, or by being full.
//!
//! The same small history runs once for each of many places with a failure there. Afterwards the device is opened
//! again as a power cut would have left it: only what was durable is there, or all of it.

use std::path::Path;
use std::sync::Arc;

use crate::history::{COMMITS, Told, check, work};
use crate::poisoned::check_poisoned;
use crate::volumes;
use millrace_block::{Device, Geometry, MemoryDevice};
use millrace_engine::{Batch, CommitSeq, Durability, Engine as _, Error, ErrorKind, ReadSet};
use millrace_fixtures::count;
use millrace_power_cut::{Fault, Kind, PowerCut, Survivors};
use millrace_random::Random;
use millrace_rocksdb::{FileSystem, Options, RocksEngine};

/// The folder of the engine in its volume.
const DATA: &str = "/data";
/// At so many requests at most a failure is tried; at more where seeds are named from outside.
const PLACES_MAX: u64 = 15;
const PLACES_MAX_LONG: u64 = 60;

fn geometry(bytes: u64) -> Geometry {
    let mut geometry = MemoryDevice::geometry_of(bytes, 512);
    geometry.volatile_cache = true;
    geometry
}

fn open(device: Arc<dyn Device>) -> Result<RocksEngine, Error> {
    let volume = volumes::mount(device)
        .map_err(|error| Error::new(ErrorKind::Io, "cannot mount").with_source(error))?;
    let options = Options {
        cache_bytes: 8 << 20,
        file_system: FileSystem::Blobfs(volume),
        ..Options::default()
    };
    RocksEngine::open(Path::new(DATA), options)
}

fn empty_volume(bytes: u64) -> Arc<PowerCut> {
    let device = PowerCut::new(geometry(bytes)).expect("a legal geometry");
    volumes::format(&(Arc::clone(&device) as Arc<dyn Device>));
    device.settle();
    device
}

/// How a history with a failure ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Ending {
    OpenFailed,
    CheckpointFailed,
    Poisoned,
    Finished,
}

fn run_with_fault(fault: Fault) -> Ending {
    let device = empty_volume(64 << 20);
    device.set_faults(vec![fault]);
    let mut told = Told::default();
    let case = format!("{fault:?}");
    let ending = match open(Arc::clone(&device) as Arc<dyn Device>) {
        Err(failure) => {
            assert!(!failure.to_string().is_empty());
            Ending::OpenFailed
        }
        Ok(engine) => match work(&engine, Path::new("/checkpoint"), &mut told, &mut |_| {}) {
            Ok(()) => Ending::Finished,
            Err(failure) if failure.to_string().contains("checkpoint") => Ending::CheckpointFailed,
            Err(failure) => {
                check_poisoned(&engine, &told, &failure, "", &case);
                Ending::Poisoned
            }
        },
    };
    device.set_faults(Vec::new());
    let mut cursor = device.cursor();
    cursor.advance_to(cursor.events());
    for survivors in [Survivors::Nothing, Survivors::Random, Survivors::Everything] {
        let case = format!("{case}, {survivors:?}");
        let disk = Arc::new(cursor.disk(survivors, fault.after));
        let engine = open(Arc::clone(&disk) as Arc<dyn Device>);
        let engine = engine.unwrap_or_else(|error| panic!("{case}: {error:?}"));
        check(&engine, &told, &case);
        let mut later = told;
        work(&engine, Path::new("/second"), &mut later, &mut |_| {})
            .unwrap_or_else(|error| panic!("{case}: {error:?}"));
        drop(engine);
        let engine = open(disk).unwrap_or_else(|error| panic!("{case}: {error:?}"));
        check(&engine, &later, &case);
    }
    ending
}

/// How many requests of a kind the history makes when nothing fails.
fn requests_without_fault(kind: Kind) -> u64 {
    let device = empty_volume(64 << 20);
    let before = device.counters();
    let engine = open(Arc::clone(&device) as Arc<dyn Device>).expect("it opens");
    let mut told = Told::default();
    work(&engine, Path::new("/checkpoint"), &mut told, &mut |_| {}).expect("nothing fails");
    assert_eq!(told.durable, CommitSeq::new(COMMITS));
    drop(engine);
    device.counters().since(&before).of(kind).requests
}

/// Fails requests of a kind, one in each run; how the runs ended, each way once.
fn fail_everywhere(
    kind: Kind,
    fault: fn(Option<Kind>, u64, millrace_block::ErrorKind) -> Fault,
) -> Vec<Ending> {
    let requests = requests_without_fault(kind);
    let step = requests.div_ceil(count(PLACES_MAX, PLACES_MAX_LONG)).max(1);
    let places = (0..requests).step_by(usize::try_from(step).expect("few requests"));
    let mut endings: Vec<Ending> = places
        .map(|place| run_with_fault(fault(Some(kind), place, millrace_block::ErrorKind::Medium)))
        .collect();
    endings.sort_unstable();
    endings.dedup();
    endings
}

#[test]
fn a_write_that_fails_once() {
    let endings = fail_everywhere(Kind::Write, Fault::nth);
    assert!(endings.contains(&Ending::OpenFailed), "{endings:?}");
    assert!(endings.contains(&Ending::Poisoned), "{endings:?}");
}

#[test]
fn a_write_through_that_fails_once() {
    let endings = fail_everywhere(Kind::WriteThrough, Fault::nth);
    assert!(endings.contains(&Ending::Poisoned), "{endings:?}");
}

#[test]
fn a_flush_that_fails_once() {
    fail_everywhere(Kind::Flush, Fault::nth);
}

#[test]
fn reads_that_fail_from_some_point_on() {
    fail_everywhere(Kind::Read, Fault::from_nth);
}

#[test]
fn writes_that_fail_from_some_point_on() {
    let endings = fail_everywhere(Kind::Write, Fault::from_nth);
    assert!(endings.contains(&Ending::OpenFailed), "{endings:?}");
    assert!(endings.contains(&Ending::Poisoned), "{endings:?}");
}

#[test]
fn a_full_volume_is_an_error_that_says_so_and_nothing_acknowledged_is_lost() {
    let device = empty_volume(24 << 20);
    let engine = open(Arc::clone(&device) as Arc<dyn Device>).expect("it opens");
    let value = |number: u64| -> Vec<u8> {
        // What cannot be compressed.
        let mut bytes = vec![0; 60_000];
        Random::new(number).fill(&mut bytes);
        bytes
    };
    let mut durable = 0_u64;
    let failure = loop {
        let mut batch = Batch::new();
        batch.put(&durable.to_be_bytes(), &value(durable));
        match engine.commit(&batch, &ReadSet::none(), Durability::Synced) {
            Ok(_) => durable += 1,
            Err(failure) => break failure,
        }
        assert!(durable < 1000, "more than the device has was acknowledged");
    };
    assert_eq!(failure.kind(), ErrorKind::NoSpace, "{failure:?}");
    let refused = engine.sync().expect_err("nothing is acknowledged any more");
    assert_eq!(refused.kind(), ErrorKind::Poisoned, "{refused:?}");
    for number in 0..durable {
        let found = engine.get(&number.to_be_bytes()).expect("reads go on");
        assert_eq!(found, Some(value(number)), "{number}");
    }
    drop(engine);
    let mut cursor = device.cursor();
    cursor.advance_to(cursor.events());
    // RocksDB writes when it opens: there may be no space for that, but if there is, everything is there.
    match open(Arc::new(cursor.disk(Survivors::Nothing, 0))) {
        Ok(engine) => {
            for number in 0..durable {
                let found = engine.get(&number.to_be_bytes()).expect("it is read");
                assert_eq!(found, Some(value(number)), "{number}");
            }
        }
        Err(refused) => assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused:?}"),
    }
}
