//! The engine on a volume whose device loses power at any moment.
//!
//! A history of commits is recorded on a device with a volatile cache. At points of the record each image that a
//! disk could then hold is mounted and opened: every commit that was called durable before the point is there, and
//! all that is there is a prefix of the history.

#[path = "bed/history.rs"]
mod history;
#[path = "bed/volumes.rs"]
mod volumes;

use std::path::Path;
use std::sync::Arc;

use history::{Told, check, work};
use millrace_block::{Device, Geometry, MemoryDevice};
use millrace_engine::{Batch, Durability, Engine as _, Guards, Optime};
use millrace_power_cut::{Order, PowerCut, Survivors};
use millrace_rocksdb::{FileSystem, Options, RocksEngine};

/// The folder of the engine in its volume.
const DATA: &str = "/data";
/// At so many points of a record the power goes.
const POINTS: usize = 40;

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
    /// The number of events when an optime was called durable, in order.
    acknowledged: Vec<(usize, Optime)>,
    last: Optime,
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
        let mut note = |optime| acknowledged.push((events.events(), optime));
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
        let before = |&&(events, _): &&(usize, Optime)| events <= point;
        let durable = self.acknowledged.iter().rfind(before);
        Told {
            durable: durable.map_or(Optime::ZERO, |&(_, optime)| optime),
            last: self.last,
        }
    }
}

/// Points of a record: the first, the last and between them one in each of as many parts, by a seed.
fn points(events: usize, seed: u64) -> Vec<usize> {
    let mut random = seed;
    let parts = POINTS.min(events);
    let within = |part: usize| {
        let (start, end) = (part * events / parts, (part + 1) * events / parts);
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        start + usize::try_from(random >> 33).expect("31 bits") % (end - start)
    };
    (0..parts).map(within).chain([0, events]).collect()
}

fn nothing_acknowledged_is_lost(recording: &Recording, seed: u64) {
    let mut places = points(recording.device.events(), seed);
    places.sort_unstable();
    let mut cursor = recording.device.cursor();
    for point in places {
        cursor.advance_to(point);
        let told = recording.told(point);
        for survivors in Survivors::ALL {
            let case = format!(
                "point {point} of {}, {survivors:?}, seed {seed}",
                cursor.events()
            );
            let disk = Arc::new(cursor.disk(survivors, seed ^ point as u64));
            let engine = open(Arc::clone(&disk) as Arc<dyn Device>, &case);
            check(&engine, &told, &case);
            // It is as good as new.
            let mut later = told;
            let target = Path::new("/second");
            work(&engine, target, &mut later, &mut |_| {})
                .unwrap_or_else(|error| panic!("{case}: {error:?}"));
            drop(engine);
            let again = open(disk, &case);
            assert_eq!(again.last_optime(), Optime::new(history::COMMITS), "{case}");
            check(&again, &later, &case);
        }
    }
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
        .commit(&batch, &Guards::none(), Durability::Buffered)
        .unwrap();
    let point = device.events();
    let left = |point| {
        let disk = Arc::new(device.disk(point, Survivors::Everything, 0));
        open(disk, "after the cut").last_optime()
    };
    assert_eq!(left(point), Optime::ZERO);
    engine.sync().unwrap();
    assert_eq!(left(device.events()), Optime::new(1));
}

#[test]
fn on_a_disk_that_must_be_flushed() {
    let recording = Recording::new(geometry(false), Order::AtOnce);
    nothing_acknowledged_is_lost(&recording, 1);
}

#[test]
fn on_a_disk_that_writes_through_and_out_of_order() {
    let recording = Recording::new(geometry(true), Order::Shuffled(2));
    nothing_acknowledged_is_lost(&recording, 2);
}

#[test]
fn a_second_cut_during_recovery_loses_nothing_either() {
    let recording = Recording::new(geometry(false), Order::AtOnce);
    let middle = recording.device.events() / 2;
    let told = recording.told(middle);
    let mut cursor = recording.device.cursor();
    cursor.advance_to(middle);
    for (seed, survivors) in (3..).zip(Survivors::ALL) {
        let image = cursor.image(survivors, seed);
        let device = PowerCut::on(image, geometry(false)).expect("a legal geometry");
        drop(open(Arc::clone(&device) as Arc<dyn Device>, "recovery"));
        let mut recovery = device.cursor();
        for point in points(device.events(), seed).into_iter().take(8) {
            recovery.advance_to(point);
            let case = format!("{survivors:?}, then point {point} of the recovery, seed {seed}");
            let disk = recovery.disk(Survivors::Random, seed);
            check(&open(Arc::new(disk), &case), &told, &case);
        }
    }
}
