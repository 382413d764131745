//! An error of the device at every request of a history: a write that fails ends all changes and loses nothing that
//! was synced, a read that fails is one read that fails.

use std::ops::Range;
use std::sync::Arc;

use millrace_blobfs::{ErrorKind, FormatOptions, OpenOptions, Timestamp, Volume};
use millrace_block::{Device, ErrorKind as DeviceErrorKind, Image};
use millrace_fixtures::seeds;
use millrace_power_cut::{Event, Fault, Kind, PowerCut, Survivors};

use crate::history::{Workload, geometry};
use crate::support::{Rng, options};
use crate::{CREATE, OPEN};

const OPERATIONS: usize = 120;
const DEVICE_BYTES: u64 = 4 << 20;

fn workload(seed: u64) -> Workload {
    let mut workload = Workload::new(seed, geometry(seed, DEVICE_BYTES), None);
    workload.stays = true;
    workload
}

/// How many requests of a kind a history has, the last unmount among them.
fn requests(seed: u64, kind: Option<Kind>, operations: usize) -> u64 {
    let mut workload = workload(seed);
    let before = workload.device.counters();
    for _ in 0..operations {
        workload.step().expect("the device is good");
    }
    let (device, _) = workload.end();
    let counters = device.counters().since(&before);
    kind.map_or_else(|| counters.all(), |kind| counters.of(kind))
        .requests
}

/// Injects a failure into one request of a history; whether a caller received an error.
fn fail_write(seed: u64, kind: Option<Kind>, after: u64) -> bool {
    let place = format!("seed {seed}, {kind:?} {after}");
    let mut workload = workload(seed);
    let error = DeviceErrorKind::Medium;
    workload
        .device
        .set_faults(vec![Fault::nth(kind, after, error)]);
    let mut reported = None;
    for _ in 0..OPERATIONS {
        if let Err(error) = workload.step() {
            reported = Some(error);
            break;
        }
    }
    let is_reported = reported.is_some();
    if let Some(error) = reported {
        let is_clear = matches!(error.kind(), ErrorKind::Io | ErrorKind::Poisoned);
        assert!(is_clear, "{place}: {error:?}");
        if error.kind() == ErrorKind::Poisoned || workload.volume().sync().is_err() {
            check_poisoned(&workload, &place);
        }
    }
    let failed_at = workload.device.events();
    let (device, mut record) = workload.end();
    record.spoiled = spoiled(&device);
    // What the device holds now, and what it could hold had the power gone since.
    let done = record.names.len() - 1 - usize::from(is_reported);
    let live: Arc<dyn Device> = disk(device.live(), seed);
    let volume = Volume::mount(Arc::clone(&live), options());
    let volume = volume.unwrap_or_else(|error| panic!("{place}: {error:?}"));
    if let Some(fault) = record.fault_of(&volume, &live, done, record.names.len() - 1) {
        panic!("{place}: {fault}");
    }
    let mut rng = Rng::new(after);
    let mut cursor = device.cursor();
    let before = rng.below(failed_at + 1);
    for point in [before, failed_at, cursor.events()] {
        cursor.advance_to(point);
        for survivors in [Survivors::Nothing, Survivors::Everything, Survivors::Random] {
            let chosen = rng.next();
            let image: Arc<dyn Device> = disk(cursor.image(survivors, chosen), seed);
            if let Some(fault) = record.fault(&image, point) {
                panic!("{place}, cut at {point}, {survivors:?} {chosen}: {fault}");
            }
        }
    }
    is_reported
}

/// The blocks of the write that failed, which may hold anything.
fn spoiled(device: &Arc<PowerCut>) -> Option<Range<u64>> {
    let mut cursor = device.cursor();
    let mut all = Vec::new();
    while cursor.advance() {
        match cursor.event()? {
            Event::Submitted { blocks, .. } => all.push(blocks),
            Event::Completed {
                request,
                failed: true,
                kind: Kind::Write | Kind::WriteThrough,
            } => return Some(all[request].clone()),
            Event::Completed { .. } => {}
        }
    }
    None
}

fn disk(image: Image, seed: u64) -> Arc<PowerCut> {
    PowerCut::on(image, geometry(seed, DEVICE_BYTES)).expect("a good geometry")
}

/// Nothing can be changed any more; all can be read, but for what could not be written.
fn check_poisoned(workload: &Workload, place: &str) {
    let volume = workload.volume();
    let new = OpenOptions {
        create_new: true,
        ..CREATE
    };
    let mut refusals = vec![
        volume.sync(),
        volume.open("new", &new).map(|_| ()),
        volume.create_dir("newdir"),
        volume.set_modified("/", Timestamp(5)),
    ];
    for (_, file) in workload.open() {
        refusals.push(file.append(b"more"));
        refusals.push(file.sync());
        refusals.push(file.truncate(0));
    }
    for (number, refusal) in refusals.into_iter().enumerate() {
        let kind = refusal.err().map(|error| error.kind());
        assert_eq!(kind, Some(ErrorKind::Poisoned), "{place}: change {number}");
    }
    let names = workload.record.names.last().expect("never empty");
    for (path, id) in names.iter().filter(|(_, id)| **id > 0) {
        let Ok(file) = volume.open(path, &OPEN) else {
            continue;
        };
        let mut bytes = vec![0; usize::try_from(file.size()).unwrap()];
        match file.read_at(0, &mut bytes) {
            Ok(_) => {
                let history = &workload.record.files[id];
                assert!(
                    history.was(&bytes),
                    "{place}: {path} holds what it never did"
                );
            }
            Err(error) => {
                // Of what a failed write left nothing is known but that it is not what was to be written.
                let is_clear = match error.kind() {
                    ErrorKind::Corruption => volume.data_checksums(),
                    kind => kind == ErrorKind::Io,
                };
                assert!(is_clear, "{place}: {path}: {error:?}");
            }
        }
    }
}

/// Every request of a kind fails in turn, or each `step`th.
fn fail_all(kind: Option<Kind>, step: usize) {
    for seed in seeds(0..2) {
        let count = requests(seed, kind, OPERATIONS);
        let mut reported = 0;
        for after in (seed % step as u64..count).step_by(step) {
            reported += u32::from(fail_write(seed, kind, after));
        }
        println!("seed {seed}: {count} requests, {reported} failures were reported");
        assert!(
            reported > 0 || count == 0,
            "seed {seed}: no caller received an error"
        );
    }
}

#[test]
fn a_write_that_fails_ends_all_changes() {
    fail_all(Some(Kind::Write), 1);
}

#[test]
fn a_write_through_that_fails_ends_all_changes() {
    fail_all(Some(Kind::WriteThrough), 1);
}

#[test]
fn a_flush_that_fails_ends_all_changes() {
    fail_all(Some(Kind::Flush), 1);
}

#[test]
fn any_request_may_fail() {
    fail_all(None, 5);
}

#[test]
fn a_read_that_fails_is_one_read_that_fails() {
    let mut all = 0;
    for seed in 0..4 {
        let count = requests(seed, Some(Kind::Read), 2 * OPERATIONS);
        for after in 0..count {
            let mut workload = workload(seed);
            workload.failures = 1;
            let fault = Fault::nth(Some(Kind::Read), after, DeviceErrorKind::Medium);
            workload.device.set_faults(vec![fault]);
            for number in 0..2 * OPERATIONS {
                let done = workload.step();
                done.unwrap_or_else(|error| panic!("seed {seed}, read {after}, {number}: {error}"));
            }
            assert_eq!(
                workload.failures, 0,
                "seed {seed}, read {after}: no caller received an error"
            );
            let (device, record) = workload.end();
            let live: Arc<dyn Device> = disk(device.live(), seed);
            let fault = record.fault(&live, device.events());
            assert!(
                fault.is_none(),
                "seed {seed}, read {after}: {}",
                fault.unwrap()
            );
        }
        all += count;
    }
    assert!(all > 30, "{all} reads");
}

#[test]
fn a_failed_deallocation_does_not_poison() {
    for seed in 0..4 {
        let mut workload = workload(seed);
        let fault = Fault::from_nth(Some(Kind::Deallocate), 0, DeviceErrorKind::Medium);
        workload.device.set_faults(vec![fault]);
        for _ in 0..OPERATIONS {
            workload.step().unwrap();
        }
        let (device, record) = workload.end();
        let live: Arc<dyn Device> = disk(device.live(), seed);
        assert!(record.fault(&live, device.events()).is_none());
    }
}

#[test]
fn a_mount_that_fails_can_be_tried_again() {
    for seed in 0..6 {
        let mut workload = workload(seed);
        while workload.device.events() < 40 || workload.record.durable.is_empty() {
            workload.step().unwrap();
        }
        let mut cursor = workload.device.cursor();
        cursor.advance_to(cursor.events());
        let image = cursor.image(Survivors::Random, seed);
        let (_, record) = workload.end();
        let mut failed = 0;
        for after in 0.. {
            let disk = disk(image.clone(), seed);
            let shared: Arc<dyn Device> = Arc::clone(&disk) as _;
            let fault = Fault::nth(None, after, DeviceErrorKind::Device);
            disk.set_faults(vec![fault]);
            let mounted = Volume::mount(Arc::clone(&shared), options());
            let requests = disk.counters().all().requests;
            failed += usize::from(mounted.is_err());
            drop(mounted);
            disk.set_faults(Vec::new());
            let fault = record.fault(&shared, cursor.point());
            assert!(fault.is_none(), "seed {seed}, {after}: {}", fault.unwrap());
            if requests <= after {
                break;
            }
        }
        assert!(failed > 3, "seed {seed}: {failed} mounts failed");
    }
}

#[test]
fn a_volume_that_cannot_be_made_is_none() {
    for after in 0..100 {
        let disk = disk(Image::new(DEVICE_BYTES), 2);
        let shared: Arc<dyn Device> = Arc::clone(&disk) as _;
        disk.set_faults(vec![Fault::nth(None, after, DeviceErrorKind::Medium)]);
        let made = Volume::format(&shared, &FormatOptions::new([1; 16], Timestamp(1)));
        if made.is_ok() {
            assert!(after > 5, "{after} requests");
            return;
        }
        assert_eq!(made.unwrap_err().kind(), ErrorKind::Io, "{after}");
        disk.set_faults(Vec::new());
        if let Err(error) = Volume::mount(shared, options()) {
            let is_clear = matches!(error.kind(), ErrorKind::NotAVolume | ErrorKind::Corruption);
            assert!(is_clear, "{after}: {error:?}");
        }
    }
    panic!("more requests than a volume needs");
}
