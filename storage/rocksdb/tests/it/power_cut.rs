//! The engine on a volume whose device loses power at any moment.
//!
//! A history of commits is recorded on a device with a volatile cache. At points of the record each image that a
//! disk could then hold is mounted and opened: every commit that was called durable before the point is there, and
//! all that is there is a prefix of the history.
//!
//! By default a sample of the events is tried. `MILLRACE_SEEDS=0..4` tries all events of as many histories of each
//! kind of disk.

use std::path::Path;
use std::sync::Arc;

use crate::history::{COMMITS, Told, check, work};
use crate::volumes;
use millrace_blobfs::CheckOptions;
use millrace_block::{Device, Geometry, MemoryDevice};
use millrace_engine::{Batch, CommitSeq, Durability, Engine as _, ReadSet};
use millrace_fixtures::{chosen_seeds, seeds};
use millrace_power_cut::{Order, PowerCut, Survivors};
use millrace_rocksdb::{FileSystem, Options, RocksEngine};

/// The folder of the engine in its volume.
const DATA: &str = "/data";
/// At so many points of a record the power goes.
const POINTS: usize = 16;
/// And at so many of a recovery's.
const POINTS_OF_RECOVERY: usize = 8;

fn open(device: Arc<dyn Device>, case: &str) -> RocksEngine {
    let volume = volumes::mount(device);
    let volume = volume.unwrap_or_else(|error| panic!("{case}: {error:?}"));
    let options = Options {
        cache_bytes: 8 << 20,
        file_system: FileSystem::Blobfs(volume),
        ..Options::default()
    };
    let engine = RocksEngine::open(Path::new(DATA), options);
    engine.unwrap_or_else(|error| panic!("{case}: {error:?}"))
}

/// A disk with a cache, which does or does not write through it.
fn geometry(write_through: bool) -> Geometry {
    let mut geometry = MemoryDevice::geometry_of(64 << 20, 512);
    geometry.volatile_cache = true;
    geometry.write_through = write_through;
    geometry
}

/// What was told up to which event.
struct Recording {
    device: Arc<PowerCut>,
    /// The number of events when a commit sequence number was called durable, in order.
    acknowledged: Vec<(usize, CommitSeq)>,
    last: CommitSeq,
}

impl Recording {
    /// Records a history on an empty volume, from the first opening of the engine to the end of its closing.
    fn new(geometry: Geometry, order: Order) -> Self {
        let options = millrace_power_cut::Options {
            geometry,
            image: None,
            order,
        };
        let device = PowerCut::with_options(options).expect("a legal geometry");
        volumes::format(&(Arc::clone(&device) as Arc<dyn Device>));
        device.settle();
        let engine = open(Arc::clone(&device) as Arc<dyn Device>, "recording");
        let mut told = Told::default();
        let mut acknowledged = Vec::new();
        let events = Arc::clone(&device);
        let mut note = |commit_seq| acknowledged.push((events.events(), commit_seq));
        work(&engine, Path::new("/checkpoint"), &mut told, &mut note).expect("nothing fails");
        drop(engine);
        Self {
            device,
            acknowledged,
            last: told.last,
        }
    }

    /// What was told at a point.
    fn told(&self, point: usize) -> Told {
        let before = |&&(events, _): &&(usize, CommitSeq)| events <= point;
        let durable = self.acknowledged.iter().rfind(before);
        Told {
            durable: durable.map_or(CommitSeq::ZERO, |&(_, commit_seq)| commit_seq),
            last: self.last,
        }
    }
}

/// Points of a record, in order: the first, the last and between them one in each of `parts_max` parts, by a seed; all
/// of them if there are seeds from outside.
fn points(events: usize, seed: u64, parts_max: usize) -> Vec<usize> {
    let mut random = seed;
    let parts = chosen_seeds().map_or(parts_max, |_| usize::MAX).min(events);
    let within = |part: usize| {
        let (start, end) = (part * events / parts, (part + 1) * events / parts);
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        start + usize::try_from(random >> 33).expect("31 bits") % (end - start)
    };
    let mut points: Vec<usize> = (0..parts).map(within).chain([0, events]).collect();
    points.sort_unstable();
    points.dedup();
    points
}

fn nothing_acknowledged_is_lost(recording: &Recording, seed: u64) {
    let places = points(recording.device.events(), seed, POINTS);
    let (events, count) = (recording.device.events(), places.len());
    let mut images = 0;
    let mut cursor = recording.device.cursor();
    for point in places {
        cursor.advance_to(point);
        let told = recording.told(point);
        // With nothing that may be there or not all kinds of images are one.
        let kinds = match cursor.loose() {
            0 => &Survivors::ALL[..1],
            _ => &Survivors::ALL[..],
        };
        for survivors in kinds {
            let survivors = *survivors;
            images += 1;
            let case = format!(
                "point {point} of {}, {survivors:?}, seed {seed}",
                cursor.events()
            );
            let disk = Arc::new(cursor.disk(survivors, seed ^ point as u64));
            check_volume(&(Arc::clone(&disk) as _), &case);
            let engine = open(Arc::clone(&disk) as Arc<dyn Device>, &case);
            check(&engine, &told, &case);
            // It is as good as new.
            let mut later = told;
            let target = Path::new("/second");
            work(&engine, target, &mut later, &mut |_| {})
                .unwrap_or_else(|error| panic!("{case}: {error:?}"));
            drop(engine);
            let again = open(Arc::clone(&disk) as Arc<dyn Device>, &case);
            assert_eq!(again.last_commit_seq(), CommitSeq::new(COMMITS), "{case}");
            check(&again, &later, &case);
            drop(again);
            check_volume(&(disk as _), &case);
        }
    }
    eprintln!("seed {seed}: {events} events, cut at {count}: {images} images");
}

/// The volume is sound: there is nothing that a mount does not mend.
fn check_volume(device: &Arc<dyn Device>, case: &str) {
    let report = millrace_blobfs::check(device, CheckOptions::default(), &mut |_| {});
    let report = report.unwrap_or_else(|error| panic!("{case}: {error:?}"));
    assert!(report.is_sound(), "{case}: {:?}", report.findings);
}

#[test]
fn what_was_not_synced_can_be_lost() {
    // Shows that the tests below can fail.
    let device = PowerCut::new(geometry(false)).expect("a legal geometry");
    volumes::format(&(Arc::clone(&device) as Arc<dyn Device>));
    let engine = open(Arc::clone(&device) as Arc<dyn Device>, "before the cut");
    let mut batch = Batch::new();
    batch.put(b"key", b"value");
    engine
        .commit(&batch, &ReadSet::none(), Durability::Buffered)
        .unwrap();
    let point = device.events();
    let left = |point| {
        let disk = Arc::new(device.disk(point, Survivors::Everything, 0));
        open(disk, "after the cut").last_commit_seq()
    };
    assert_eq!(left(point), CommitSeq::ZERO);
    engine.sync().unwrap();
    assert_eq!(left(device.events()), CommitSeq::new(1));
}

#[test]
fn on_a_disk_that_must_be_flushed() {
    for seed in seeds(1..2) {
        let recording = Recording::new(geometry(false), Order::AtOnce);
        nothing_acknowledged_is_lost(&recording, seed);
    }
}

#[test]
fn on_a_disk_that_writes_through_and_out_of_order() {
    for seed in seeds(2..3) {
        let recording = Recording::new(geometry(true), Order::Shuffled(seed));
        nothing_acknowledged_is_lost(&recording, seed);
    }
}

#[test]
fn a_second_cut_during_recovery_loses_nothing_either() {
    let recording = Recording::new(geometry(false), Order::AtOnce);
    let middle = recording.device.events() / 2;
    let told = recording.told(middle);
    let mut cursor = recording.device.cursor();
    cursor.advance_to(middle);
    let mut images = 0;
    for (seed, survivors) in (3..).zip(Survivors::ALL) {
        let image = cursor.image(survivors, seed);
        let device = PowerCut::on(image, geometry(false)).expect("a legal geometry");
        drop(open(Arc::clone(&device) as Arc<dyn Device>, "recovery"));
        let mut recovery = device.cursor();
        for point in points(device.events(), seed, POINTS_OF_RECOVERY) {
            recovery.advance_to(point);
            let case = format!("{survivors:?}, then point {point} of the recovery, seed {seed}");
            let disk: Arc<dyn Device> = Arc::new(recovery.disk(Survivors::Random, seed));
            check_volume(&disk, &case);
            check(&open(disk, &case), &told, &case);
            images += 1;
        }
    }
    eprintln!("second cuts: {images} images");
}
