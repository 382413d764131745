//! Volumes without room: every way to ask for more is refused clearly and changes nothing, what is there can be
//! synced, and what is deleted makes room again.

use std::sync::Arc;

use millrace_blobfs::{Error, ErrorKind, FormatOptions, MountOptions, Timestamp, Volume};
use millrace_block::{Device, MemoryDevice};

use crate::history::{Workload, collect, geometry};
use crate::support::{Rng, mount, options, pattern};
use crate::{CREATE, OPEN, contents, read, write};

const UNIT: u64 = 4096;

fn device(bytes: u64) -> Arc<dyn Device> {
    Arc::new(MemoryDevice::new(bytes, 512).unwrap())
}

/// A new volume with the smallest journal.
fn small(device: &Arc<dyn Device>) -> Volume {
    let format = FormatOptions {
        journal_bytes: Some(256 << 10),
        ..FormatOptions::new([5; 16], Timestamp(1))
    };
    Volume::format(device, &format).unwrap();
    mount(device)
}

fn is_full<T>(result: &Result<T, Error>) -> bool {
    match result {
        Ok(_) => false,
        Err(error) if error.kind() == ErrorKind::NoSpace => true,
        Err(error) => panic!("{error:?}"),
    }
}

/// Bytes of the device that a file of so many bytes holds.
fn held_bytes(volume: &Volume, size: u64) -> u64 {
    let block = u64::from(volume.block_bytes());
    let trailer = if volume.data_checksums() { 8 } else { 0 };
    (size.div_ceil(block - trailer) * block).next_multiple_of(UNIT)
}

/// Everything is accounted for: units are free, or files have them, or checkpoints. No file may be open.
pub(crate) fn check_space(volume: &Volume, device: &Arc<dyn Device>, place: &str) {
    let space = volume.space();
    let names = collect(volume);
    let mut ids = std::collections::BTreeSet::new();
    let files = names.iter().filter(|(_, id)| **id > 0 && ids.insert(**id));
    let held: u64 = files
        .map(|(path, _)| {
            let status = volume.status(path).unwrap();
            let held = held_bytes(volume, status.size);
            assert_eq!(status.allocated_bytes, held, "{place}: {path}");
            status.allocated_bytes
        })
        .sum();
    let fixed = device.geometry().bytes() - space.total_bytes;
    let checkpoints = space.metadata_bytes - fixed;
    assert_eq!(
        space.free_bytes + held + checkpoints,
        space.total_bytes,
        "{place}: {space:?}"
    );
}

#[test]
fn a_refusal_changes_nothing() {
    let device = device(4 << 20);
    let volume = small(&device);
    let file = volume.open("a", &CREATE).unwrap();
    file.append(&pattern(1, 1_000_000)).unwrap();
    file.sync().unwrap();
    let free = volume.space().free_bytes;
    let size = file.size();
    let much = usize::try_from(free).unwrap() + 5_000_000;
    let refused = [
        file.append(&vec![1; much]),
        file.write_at(10, &vec![1; much]),
        file.write_at(free + size + (8 << 20), b"far"),
        file.write_at(1 << 50, b"very far"),
        file.truncate(free + size + (8 << 20)),
        file.truncate(1 << 60),
        file.reserve(free + size + (8 << 20)),
    ];
    for (number, result) in refused.iter().enumerate() {
        assert!(is_full(result), "{number}");
    }
    for result in [
        file.truncate(u64::MAX),
        file.write_at(u64::MAX - 2, b"beyond"),
        file.reserve(1 << 63),
    ] {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Invalid);
    }
    assert_eq!(file.size(), size);
    assert!(contents(&file) == pattern(1, 1_000_000));
    assert_eq!(volume.space().free_bytes, free);
    file.reserve(size + free / 2).unwrap();
    drop(file);
    check_space(&volume, &device, "after refusals");
}

#[test]
fn what_is_deleted_makes_room_whether_blocks_are_forgotten_or_not() {
    for discard in [false, true] {
        let device = device(32 << 20);
        drop(small(&device));
        let options = MountOptions {
            discard: Some(discard),
            ..options()
        };
        let volume = Volume::mount(Arc::clone(&device), options).unwrap();
        let free = volume.space().free_bytes;
        for round in 0..12 {
            // Nobody syncs: the refusal itself finds out what was deleted.
            let file = volume.open("large", &CREATE).unwrap();
            file.reserve(free / 10 * 9)
                .unwrap_or_else(|error| panic!("{discard}, {round}: {error}"));
            file.append(&pattern(round, 3_000_000)).unwrap();
            if round % 3 == 0 {
                file.sync().unwrap();
            }
            volume.remove("large").unwrap();
            assert_eq!(file.size(), 3_000_000);
        }
        volume.sync().unwrap();
        check_space(&volume, &device, "all deleted");
        volume.unmount().unwrap();
        assert_eq!(volume.space().free_bytes, free);
    }
}

#[test]
fn names_are_refused_before_a_checkpoint_has_no_room() {
    for (seed, bytes) in (0..6).zip([1 << 20, 2 << 20, 4 << 20].into_iter().cycle()) {
        let place = format!("seed {seed}");
        let device = device(bytes);
        let volume = small(&device);
        let mut rng = Rng::new(seed);
        let file = volume.open("data", &CREATE).unwrap();
        // How full it is of data when the names come.
        let part = volume.space().free_bytes / 8 * (8 - seed % 4);
        while file.size() < part && file.append(&pattern(seed, 4096)).is_ok() {}
        file.sync().unwrap();
        let mut names = Vec::new();
        let mut refused = 0;
        for number in 0.. {
            let name = format!("{number}{}", "n".repeat(rng.below(240)));
            let result = if number % 5 == 0 {
                volume.create_dir(&name)
            } else if number % 7 == 0 {
                volume.link("data", &name)
            } else {
                volume.open(&name, &CREATE).map(|_| ())
            };
            if is_full(&result) {
                refused += 1;
            } else {
                names.push(name);
            }
            if number % 100 == 0 {
                volume
                    .sync()
                    .unwrap_or_else(|error| panic!("{place}: {error}"));
            }
            if refused > 20 || number > 20_000 {
                break;
            }
        }
        assert!(refused > 20, "{place}: {} names", names.len());
        // What is there can be changed, synced, unmounted, mounted.
        file.write_at(0, b"changed").unwrap();
        file.sync().unwrap();
        drop(file);
        volume
            .unmount()
            .unwrap_or_else(|error| panic!("{place}: {error:?}"));
        let volume = mount(&device);
        assert!(
            names.iter().all(|name| volume.status(name).is_ok()),
            "{place}"
        );
        assert_eq!(read(&volume, "data")[..7], *b"changed", "{place}");
        for name in &names {
            let removed = volume.remove(name).or_else(|_| volume.remove_dir(name));
            removed.unwrap_or_else(|error| panic!("{place}: {error}"));
        }
        volume.sync().unwrap();
        let file = volume.open("data", &OPEN).unwrap();
        file.truncate(file.size() / 2).unwrap();
        drop(file);
        write(&volume, "new", b"there is room");
        check_space(&volume, &device, &place);
    }
}

#[test]
fn free_units_that_lie_apart_are_as_good_for_files() {
    let device = device(8 << 20);
    let volume = small(&device);
    let mut made = Vec::new();
    for number in 0.. {
        let path = format!("{number}");
        let file = volume.open(&path, &CREATE).unwrap();
        if is_full(&file.append(&pattern(number, 100))) {
            volume.remove(&path).unwrap();
            break;
        }
        made.push(path);
    }
    // New files go to each of eight groups in turn.
    let removed: Vec<_> = made.chunks(8).step_by(2).flatten().collect();
    for path in &removed {
        volume.remove(path).unwrap();
    }
    // Long names make checkpoints larger, in units that lie apart too, until a superblock has no room for more.
    let mut long = 0;
    while !is_full(&volume.open(&format!("{long}{}", "n".repeat(200)), &CREATE)) {
        long += 1;
        assert!(long < 100_000);
    }
    volume.sync().unwrap();
    for number in 0..long {
        volume
            .remove(&format!("{number}{}", "n".repeat(200)))
            .unwrap();
    }
    drop(volume);
    let volume = mount(&device);
    let free = volume.space().free_bytes;
    let large = volume.open("large", &CREATE).unwrap();
    let bytes = pattern(9, usize::try_from(free / 10 * 9).unwrap());
    large.append(&bytes).unwrap();
    large.sync().unwrap();
    drop(large);
    volume.unmount().unwrap();
    let volume = mount(&device);
    assert!(read(&volume, "large") == bytes);
    for (number, path) in made.iter().enumerate() {
        if !removed.contains(&path) {
            assert!(read(&volume, path) == pattern(number as u64, 100), "{path}");
        }
    }
    check_space(&volume, &device, "in pieces");
}

#[test]
fn no_unit_is_forgotten() {
    for seed in 0..12 {
        // The smallest are full most of the time.
        let bytes = [1 << 20, 3 << 19, 8 << 20][usize::try_from(seed % 3).unwrap()];
        let place = format!("seed {seed}");
        let mut workload = Workload::new(seed, geometry(seed, bytes), None);
        for number in 0..400 {
            let done = workload.step();
            done.unwrap_or_else(|error| panic!("{place}, {number}: {error:?}"));
        }
        workload.close_all();
        let volume = workload.volume().clone();
        let shared: Arc<dyn Device> = Arc::clone(&workload.device) as _;
        volume.sync().unwrap();
        check_space(&volume, &shared, &place);
        volume.unmount().unwrap();
        check_space(&volume, &shared, &place);
        let before = volume.space();
        let (device, record) = workload.end();
        drop(volume);
        let shared: Arc<dyn Device> = device;
        let volume = mount(&shared);
        assert_eq!(volume.space(), before, "{place}");
        for path in collect(&volume).keys().rev() {
            let removed = volume.remove(path).or_else(|_| volume.remove_dir(path));
            removed.unwrap_or_else(|error| panic!("{place}: {path}: {error}"));
        }
        volume.sync().unwrap();
        drop(volume);
        let volume = mount(&shared);
        check_space(&volume, &shared, &place);
        let held = volume.space().total_bytes - volume.space().free_bytes;
        assert!(
            held <= 14 * UNIT,
            "{place}: {held} bytes of an empty volume are held"
        );
        drop(record);
    }
}

#[test]
fn a_file_that_is_open_keeps_what_it_reserved_and_no_longer() {
    let device = device(8 << 20);
    let volume = small(&device);
    let free = volume.space().free_bytes;
    let (one, other) = (
        volume.open("one", &CREATE).unwrap(),
        volume.open("other", &CREATE).unwrap(),
    );
    one.reserve(free / 4 * 3).unwrap();
    assert!(is_full(&other.reserve(free / 2)));
    one.append(b"a little").unwrap();
    drop(one);
    other.reserve(free / 2).unwrap();
    other
        .append(&pattern(1, usize::try_from(free / 2).unwrap()))
        .unwrap();
    drop(other);
    assert!(read(&volume, "one") == b"a little");
    let file = volume.open("other", &OPEN).unwrap();
    volume.remove("other").unwrap();
    // It has no name, and its bytes are there, and can even be added to.
    file.append(b"more").unwrap();
    file.sync().unwrap();
    assert_eq!(contents(&file).len() as u64, free / 2 + 4);
    volume.sync().unwrap();
    assert!(is_full(
        &volume.open("one", &OPEN).unwrap().reserve(free / 4 * 3)
    ));
    drop(file);
    volume
        .open("one", &OPEN)
        .unwrap()
        .reserve(free / 4 * 3)
        .unwrap();
    check_space(&volume, &device, "after all");
}
