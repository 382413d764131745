//! A block device that records what is asked of it, and shows what a disk could hold when the power went.
//!
//! # Purpose
//! Software that promises durability is right if it finds its data after a power cut at any moment, on any
//! disk that keeps its own promises ([`millrace_block`], rules 1 to 5). [`PowerCut`] is such a disk in
//! memory. It records each write, write-through, flush, deallocation and write of zeros, when it was
//! submitted and when its completion was taken. A [`Cursor`] moves over that record; at each point it makes
//! the contents that a disk could hold if the power went there, chosen by [`Survivors`] and a seed.
//!
//! A device also fails ([`Fault`], bad blocks), counts ([`Counters`]), and has requests wait and change
//! places ([`Order::Shuffled`]), each when it is told to, by a seed. It never lies: what it says is durable
//! is.
//!
//! # Which contents are possible
//! 1. *Durable* is a write whose completion was taken if it was a write-through, if the geometry says that
//!    there is no volatile cache, or if a flush was submitted after that and succeeded. All others are
//!    *loose*.
//! 2. A request falls into pieces: each whole run of `atomic_blocks` blocks that begins at a multiple of as
//!    many, and each other block.
//! 3. Durable pieces are there. Any of the loose ones are there.
//! 4. Pieces that have a block in common are written in some order. A durable piece comes after those whose
//!    completion was taken before it was submitted, and before those that were submitted after its completion
//!    was taken; two durable ones come in the order in which reads have seen them. Loose ones come in any
//!    order.
//! 5. A write that failed may have left anything, and is loose for ever; so is what had completed when a
//!    flush failed.
//! 6. Deallocated blocks hold zeros if the geometry says so, else what they held, zeros, or anything.
//!
//! # Cost
//! The record holds all data that was written. Moving a cursor over all of it costs once what writing it did;
//! an image costs what is loose at its point, and shares memory with the others.
//!
//! # Threads
//! Queues may be used on many threads; all meet at one lock. With one thread the same seed gives the same
//! run.
//!
//! # Example
//! ```
//! use std::sync::Arc;
//!
//! use millrace_block::{Device, Lba, MemoryDevice, Request};
//! use millrace_memory::{Arena, ArenaOptions};
//! use millrace_power_cut::{PowerCut, Survivors};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut geometry = MemoryDevice::geometry_of(1 << 20, 512);
//! geometry.volatile_cache = true;
//! let device = PowerCut::new(geometry)?;
//! let options = ArenaOptions { locked: false, ..ArenaOptions::default() };
//! let arena = Arena::new(Arc::clone(device.domain()), &options)?;
//! let mut queue = device.queue()?;
//! let mut buffer = arena.try_buffer(512)?;
//! buffer.fill(7);
//! queue.run(Request::write(Lba(3), buffer, 0))?.result?;
//! let written = device.events();
//! queue.run(Request::flush(0))?.result?;
//! let flushed = device.events();
//!
//! let mut cursor = device.cursor();
//! while cursor.advance() {
//!     let image = cursor.image(Survivors::Nothing, 0);
//!     let mut byte = [0];
//!     image.read(3 * 512, &mut byte);
//!     assert_eq!(byte[0], if cursor.point() < flushed { 0 } else { 7 });
//! }
//! assert!(written < flushed);
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod block_set;
mod counters;
mod cursor;
mod fault;
mod materialise;
mod pieces;
mod power_cut;
mod queue;
mod record;
mod state;

pub use counters::{Count, Counters};
pub use cursor::Cursor;
pub use fault::{Fault, Kind};
pub use materialise::Survivors;
pub use power_cut::{Options, Order, PowerCut};
pub use record::Event;

#[cfg(test)]
mod tests;
