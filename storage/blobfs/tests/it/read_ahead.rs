//! Reading ahead: the same bytes as without, by fewer requests.

use std::sync::Arc;
use std::thread;

use millrace_blobfs::{ErrorKind, File, FormatOptions, MountOptions, ReadAhead, Timestamp, Volume};
use millrace_block::{Device, MemoryDevice};
use millrace_power_cut::{Options, Order, PowerCut};

use crate::support::{Rng, options, pattern};
use crate::{CREATE, OPEN, data_checksums, write};

/// The longest request.
const PIECE: u64 = 256 << 10;

fn device(seed: u64) -> Arc<PowerCut> {
    let options = Options {
        geometry: MemoryDevice::geometry_of(64 << 20, 512),
        image: None,
        order: Order::Shuffled(seed),
    };
    PowerCut::with_options(options).unwrap()
}

/// A volume with enough buffers for some files.
fn volume_on(device: &Arc<PowerCut>, data_checksums: bool) -> Volume {
    let device: Arc<dyn Device> = Arc::clone(device) as _;
    let format = FormatOptions {
        data_checksums,
        ..FormatOptions::new([7; 16], Timestamp(1))
    };
    Volume::format(&device, &format).unwrap();
    let options = MountOptions {
        arena_bytes: 8 << 20,
        ..options()
    };
    Volume::mount(device, options).unwrap()
}

/// A volume with a file of a pattern that is on the medium.
fn one_file(seed: u64, len: usize) -> (Arc<PowerCut>, Volume, File, Vec<u8>) {
    let device = device(seed);
    let volume = volume_on(&device, data_checksums(seed));
    let bytes = pattern(seed, len);
    write(&volume, "a", &bytes);
    volume.sync().unwrap();
    let file = volume.open("a", &OPEN).unwrap();
    (device, volume, file, bytes)
}

fn read(ahead: &ReadAhead, bytes: &[u8], offset: usize, len: usize, place: &str) {
    let mut out = vec![0; len];
    let read = ahead.read_at(offset as u64, &mut out).unwrap();
    let wanted = bytes.get(offset..).unwrap_or_default();
    let wanted = &wanted[..len.min(wanted.len())];
    assert!(out[..read] == *wanted, "{place}: {len} bytes at {offset}");
}

#[test]
fn short_reads_of_what_is_read_ahead_are_few_long_requests() {
    let (_device, volume, file, bytes) = one_file(1, 5_000_000);
    let ahead = ReadAhead::new(file);
    let before = volume.counters().reads;
    let mut asked_until = 0;
    for offset in (0..bytes.len()).step_by(4100) {
        // As RocksDB asks.
        if offset + 4100 > asked_until {
            assert!(ahead.begin(offset as u64, (2 << 20) + 4100).unwrap());
            asked_until = offset + (2 << 20) + 4100;
        }
        read(&ahead, &bytes, offset, 4100, "sequential");
    }
    let requests = volume.counters().reads - before;
    let fewest = (bytes.len() as u64).div_ceil(PIECE);
    assert!((fewest..=2 * fewest + 4).contains(&requests), "{requests}");
    // It is gone through: nothing is kept.
    let before = volume.counters().reads;
    read(&ahead, &bytes, 0, 100, "after");
    assert_eq!(volume.counters().reads, before + 1);
}

#[test]
fn any_reads_give_what_the_file_has() {
    for seed in 0..30 {
        let mut rng = Rng::new(seed);
        let (_device, _volume, file, bytes) = one_file(seed, 1 + rng.below(3_000_000));
        let ahead = ReadAhead::new(file);
        let mut at = 0;
        for step in 0..300 {
            let place = format!("seed {seed}, step {step}");
            match rng.below(10) {
                0 => {
                    let len = rng.below(2_000_000) as u64;
                    ahead.begin(at as u64, len).unwrap();
                }
                1 => at = rng.below(bytes.len() + 10),
                2 => read(
                    &ahead,
                    &bytes,
                    rng.below(bytes.len()),
                    rng.below(9_000),
                    &place,
                ),
                3 => at += rng.below(70_000),
                _ => {
                    let len = rng.below(20_000);
                    read(&ahead, &bytes, at, len, &place);
                    at += len;
                }
            }
        }
    }
}

#[test]
fn a_part_is_for_one_reader_until_that_is_gone() {
    let (_device, _volume, file, bytes) = one_file(2, 4_000_000);
    let ahead = ReadAhead::new(file);
    assert!(ahead.begin(0, 1 << 20).unwrap());
    assert!(!ahead.begin(3 << 20, 100_000).unwrap());
    // It is still read.
    read(&ahead, &bytes, 0, 4096, "the first reader");
    // And not any more.
    let refused = (0..100)
        .take_while(|_| !ahead.begin(3 << 20, 100_000).unwrap())
        .count();
    assert!((10..100).contains(&refused), "{refused}");
    read(&ahead, &bytes, 3 << 20, 100_000, "the second reader");
}

#[test]
fn there_may_be_more_files_than_buffers() {
    let device = device(3);
    let volume = volume_on(&device, false);
    let bytes = pattern(3, 700_000);
    let ahead: Vec<_> = (0..40)
        .map(|number| {
            write(&volume, &format!("{number}"), &bytes);
            let file = volume.open(&format!("{number}"), &OPEN).unwrap();
            file.sync().unwrap();
            ReadAhead::new(file)
        })
        .collect();
    let begun = ahead
        .iter()
        .filter(|ahead| ahead.begin(0, 700_000).unwrap());
    let begun = begun.count();
    assert!((1..40).contains(&begun), "{begun}");
    for offset in (0..bytes.len()).step_by(30_000) {
        for one in &ahead {
            read(one, &bytes, offset, 30_000, "one of many");
        }
    }
    // Others are served.
    write(&volume, "other", &bytes);
    volume.sync().unwrap();
}

#[test]
fn files_that_were_read_nearly_to_their_end_leave_buffers_for_others() {
    let device = device(7);
    let volume = volume_on(&device, false);
    let bytes = pattern(7, 700_000);
    let mut kept_open = Vec::new();
    for number in 0..40 {
        write(&volume, "a", &bytes);
        volume.sync().unwrap();
        let ahead = ReadAhead::new(volume.open("a", &OPEN).unwrap());
        assert!(ahead.begin(0, 2 << 20).unwrap(), "file {number}");
        for offset in (0..690_000).step_by(10_000) {
            read(&ahead, &bytes, offset, 10_000, "all but the end");
        }
        kept_open.push(ahead);
        volume.remove("a").unwrap();
    }
    for ahead in &kept_open {
        read(ahead, &bytes, 690_000, 20_000, "the end");
    }
}

#[test]
fn what_cannot_be_read_ahead_is_an_error_where_it_is() {
    let (device, _volume, file, bytes) = one_file(4, 1_000_000);
    let ahead = ReadAhead::new(file);
    device.make_bad(0..device.geometry().blocks);
    ahead.begin(0, 1_000_000).unwrap();
    let error = ahead.read_at(0, &mut [0; 100]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    device.make_good(&(0..device.geometry().blocks));
    read(&ahead, &bytes, 0, 1_000_000, "good again");
}

#[test]
fn a_file_may_be_cut_or_removed_while_it_is_read_ahead() {
    let (_device, volume, file, bytes) = one_file(5, 1_000_000);
    let ahead = ReadAhead::new(file.clone());
    ahead.begin(0, 1_000_000).unwrap();
    read(&ahead, &bytes, 0, 1_000, "whole");
    file.truncate(300_000).unwrap();
    let others = volume.open("others", &CREATE).unwrap();
    others.append(&pattern(9, 2_000_000)).unwrap();
    others.sync().unwrap();
    for offset in (0..400_000).step_by(10_000) {
        read(&ahead, &bytes[..300_000], offset, 10_000, "cut");
    }
    ahead.begin(0, 300_000).unwrap();
    volume.remove("a").unwrap();
    read(&ahead, &bytes[..300_000], 0, 300_000, "removed");
}

#[test]
fn many_threads_may_read() {
    let (_device, _volume, file, bytes) = one_file(6, 3_000_000);
    let ahead = ReadAhead::new(file);
    thread::scope(|scope| {
        for seed in 0..4 {
            let (ahead, bytes) = (&ahead, &bytes);
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                for round in 0..4 {
                    ahead.begin(0, 3_000_000).unwrap();
                    let mut at = rng.below(1_000_000);
                    while at < bytes.len() {
                        let len = 1 + rng.below(9_000);
                        read(
                            ahead,
                            bytes,
                            at,
                            len,
                            &format!("thread {seed}, round {round}"),
                        );
                        at += len;
                    }
                }
            });
        }
    });
}
