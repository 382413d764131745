//! Many threads, each with files of its own, when the power goes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::thread;

use millrace_blobfs::{FormatOptions, Timestamp, Volume, mutation};
use millrace_block::Device;
use millrace_fixtures::seeds;
use millrace_power_cut::{Options, Order, PowerCut, Survivors};

use crate::history::geometry;
use crate::support::{Rng, mount, pattern};
use crate::{CREATE, OPEN, data_checksums, read};

const THREADS: u64 = 6;
const DEVICE_BYTES: u64 = 16 << 20;

/// A file was synced with so many bytes; it was known when there were so many events.
struct Synced {
    events: usize,
    path: String,
    bytes: usize,
}

/// Each file of a thread has the beginning of a pattern.
fn bytes_of(path: &str) -> Vec<u8> {
    let seed = path
        .bytes()
        .fold(0, |seed, byte| seed * 31 + u64::from(byte));
    pattern(seed, 400_000)
}

fn work(volume: &Volume, device: &PowerCut, thread: u64, seed: u64, synced: &Mutex<Vec<Synced>>) {
    let mut rng = Rng::new(seed * 100 + thread);
    let mut sizes = BTreeMap::new();
    for _ in 0..40 {
        let path = format!("{thread}-{}", rng.below(3));
        let file = volume.open(&path, &CREATE).unwrap();
        let size: &mut usize = sizes.entry(path.clone()).or_default();
        let len = match rng.below(8) {
            0 => rng.below(100_000),
            _ => rng.below(900),
        };
        let end = (*size + len).min(400_000);
        file.append(&bytes_of(&path)[*size..end]).unwrap();
        *size = end;
        if rng.below(4) > 0 {
            file.sync().unwrap();
            let entry = Synced {
                events: device.events(),
                path,
                bytes: end,
            };
            synced.lock().unwrap().push(entry);
        }
    }
}

#[test]
fn what_threads_have_synced_is_there() {
    mutation::leave_out(None);
    for seed in seeds(0..2) {
        let geometry = geometry(seed, DEVICE_BYTES);
        let options = Options {
            geometry: geometry.clone(),
            image: None,
            order: Order::Shuffled(seed),
        };
        let device = PowerCut::with_options(options).unwrap();
        let shared: Arc<dyn Device> = Arc::clone(&device) as _;
        let format = FormatOptions {
            journal_bytes: Some(256 << 10),
            data_checksums: data_checksums(seed),
            ..FormatOptions::new([3; 16], Timestamp(1))
        };
        Volume::format(&shared, &format).unwrap();
        let volume = mount(&shared);
        device.settle();
        let synced = Mutex::new(Vec::new());
        thread::scope(|scope| {
            let (volume, device, synced) = (&volume, &device, &synced);
            for thread in 0..THREADS {
                scope.spawn(move || work(volume, device, thread, seed, synced));
            }
        });
        let counters = volume.counters();
        assert!(
            counters.transactions > 0 && counters.checkpoints > 0,
            "{counters:?}"
        );
        drop(volume);
        let mut synced = synced.into_inner().unwrap();
        synced.sort_by_key(|entry| entry.events);
        let mut rng = Rng::new(seed);
        let mut cursor = device.cursor();
        for _ in 0..40 {
            let left = cursor.events() - cursor.point();
            cursor.advance_to(cursor.point() + rng.below(left / 12 + 2).min(left));
            for survivors in Survivors::ALL {
                let chosen = rng.next();
                let image = cursor.image(survivors, chosen);
                let disk: Arc<dyn Device> = PowerCut::on(image, geometry.clone()).unwrap();
                let place = format!(
                    "seed {seed}, event {}, {survivors:?} {chosen}",
                    cursor.point()
                );
                let volume = mount(&disk);
                for entry in volume.read_dir("/").unwrap() {
                    let bytes = read(&volume, &entry.name);
                    assert!(
                        bytes_of(&entry.name).starts_with(&bytes),
                        "{place}: {}",
                        entry.name
                    );
                }
                for entry in synced
                    .iter()
                    .take_while(|entry| entry.events <= cursor.point())
                {
                    let size = volume.open(&entry.path, &OPEN).map(|file| file.size());
                    let is_there = size.is_ok_and(|size| size >= entry.bytes as u64);
                    assert!(is_there, "{place}: {} of {} bytes", entry.path, entry.bytes);
                }
            }
        }
    }
}
