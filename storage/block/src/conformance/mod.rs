//! What every device must do, as tests that a device's own tests call.
//!
//! Each function takes a device of which at least [`BYTES_MIN`] bytes may be overwritten, and panics if it
//! does not do what the traits say.

mod queues;
mod random_run;
mod refusals;

use std::sync::Arc;

use millrace_memory::{Arena, ArenaOptions, Buffer, Pages, SizeClass};

pub use self::queues::{
    a_full_queue_refuses, a_queue_moves_between_threads, dropping_a_queue_waits,
    more_queues_than_are_separate, threads_use_queues_of_their_own,
};
pub use self::random_run::random_operations_match_bytes;
pub use self::refusals::what_makes_no_sense_comes_back;
use crate::{Completion, Device, Lba, Queue, Request};

/// Devices have so many bytes at least.
pub const BYTES_MIN: u64 = 2 << 20;
/// The longest buffers of which there are several.
const BLOCKS_LONG: usize = 80;

/// What a device must do.
type Check = fn(&Arc<dyn Device>);

/// All of them, but the random run, which has a seed.
const CHECKS: [(&str, Check); 6] = [
    ("a_full_queue_refuses", a_full_queue_refuses),
    (
        "a_queue_moves_between_threads",
        a_queue_moves_between_threads,
    ),
    ("dropping_a_queue_waits", dropping_a_queue_waits),
    (
        "more_queues_than_are_separate",
        more_queues_than_are_separate,
    ),
    (
        "threads_use_queues_of_their_own",
        threads_use_queues_of_their_own,
    ),
    (
        "what_makes_no_sense_comes_back",
        what_makes_no_sense_comes_back,
    ),
];

/// All of them.
pub fn all(device: &Arc<dyn Device>, seeds: std::ops::Range<u64>) {
    device
        .geometry()
        .check()
        .expect("a geometry that makes sense");
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

/// Runs one request, which succeeds.
fn run(queue: &mut dyn Queue, request: Request) -> Completion {
    let token = request.token;
    let completion = queue.run(request).expect("the request makes sense");
    assert_eq!(completion.token, token);
    completion.result.as_ref().expect("the device works");
    completion
}

/// Whether a block has this byte throughout.
fn holds(queue: &mut dyn Queue, arena: &Arena, block_bytes: usize, lba: u64, byte: u8) -> bool {
    let buffer = filled(arena, block_bytes, !byte);
    let read = run(queue, Request::read(Lba(lba), buffer, lba));
    let buffer = read.buffer.expect("a read has a buffer");
    buffer.iter().all(|own| *own == byte)
}
