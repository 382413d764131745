//! Conformance tests of the device traits, for a device's own tests.
//!
//! Each function takes a device of which at least [`BYTES_MIN`] bytes may be overwritten, and panics if the device
//! violates the contract of [`Device`] or [`Queue`].

mod queues;
mod random_run;
mod refusals;

use std::sync::Arc;

use millrace_memory::{Arena, ArenaOptions, Buffer, Pages, SizeClass};

pub use self::queues::{
    a_full_queue_refuses, a_queue_moves_between_threads, dropping_a_queue_completes_requests,
    more_queues_than_are_separate, threads_use_queues_of_their_own,
};
pub use self::random_run::random_operations_match_bytes;
pub use self::refusals::invalid_requests_are_returned;
use crate::{Completion, Device, Lba, Queue, Request};

/// Smallest device for these tests, in bytes.
pub const BYTES_MIN: u64 = 2 << 20;
/// Longest buffers of which there are several, in blocks.
const BLOCKS_LONG: usize = 80;

/// A conformance test of one device.
type Check = fn(&Arc<dyn Device>);

/// All tests except the random run, which takes a seed.
const CHECKS: [(&str, Check); 6] = [
    ("a_full_queue_refuses", a_full_queue_refuses),
    (
        "a_queue_moves_between_threads",
        a_queue_moves_between_threads,
    ),
    (
        "dropping_a_queue_completes_requests",
        dropping_a_queue_completes_requests,
    ),
    (
        "more_queues_than_are_separate",
        more_queues_than_are_separate,
    ),
    (
        "threads_use_queues_of_their_own",
        threads_use_queues_of_their_own,
    ),
    (
        "invalid_requests_are_returned",
        invalid_requests_are_returned,
    ),
];

/// Runs all conformance tests, the random run once for each seed.
pub fn all(device: &Arc<dyn Device>, seeds: std::ops::Range<u64>) {
    device.geometry().check().expect("a valid geometry");
    assert!(
        device.geometry().bytes() >= BYTES_MIN,
        "the device is too small"
    );
    for (name, check) in CHECKS {
        println!("{}: {name}", device.name());
        check(device);
    }
    for seed in seeds {
        println!(
            "{}: random_operations_match_bytes, seed {seed}",
            device.name()
        );
        random_operations_match_bytes(device, seed);
    }
}

/// An arena for a device: many buffers of a block, some longer ones, and one that is too long.
fn arena(device: &dyn Device) -> Arena {
    let geometry = device.geometry();
    let block = geometry.block_bytes as usize;
    let depth = u32::try_from(geometry.queue_depth).expect("a depth of 32 bits");
    let longest = geometry.transfer_bytes_max;
    let long = longest.min(BLOCKS_LONG * block) + block;
    let mut classes = Vec::new();
    for (size, count) in [
        (block, depth + 32),
        (long.next_power_of_two(), 8),
        ((longest + block).next_power_of_two(), 1),
    ] {
        if classes.iter().all(|class: &SizeClass| class.size < size) {
            classes.push(SizeClass { size, count });
        }
    }
    let options = ArenaOptions {
        classes,
        pages: Pages::Base,
        node: None,
        locked: false,
    };
    Arena::new(Arc::clone(device.domain()), &options).expect("there is memory")
}

fn filled(arena: &Arena, len: usize, byte: u8) -> Buffer {
    let mut buffer = arena.try_buffer(len).expect("a buffer is free");
    buffer.fill(byte);
    buffer
}

/// Runs one request that must succeed.
fn run(queue: &mut dyn Queue, request: Request) -> Completion {
    let token = request.token;
    let completion = queue.run(request).expect("the request is valid");
    assert_eq!(completion.token, token);
    completion.result.as_ref().expect("the device works");
    completion
}

/// Whether all bytes of a block equal `byte`.
fn holds(queue: &mut dyn Queue, arena: &Arena, block_bytes: usize, lba: u64, byte: u8) -> bool {
    let buffer = filled(arena, block_bytes, !byte);
    let read = run(queue, Request::read(Lba(lba), buffer, lba));
    let buffer = read.buffer.expect("a read has a buffer");
    buffer.iter().all(|own| *own == byte)
}
