//! Block devices behind one trait, each driven by the thread that has work for it.
//!
//! # Purpose
//! [`Device`] says what a device is ([`Geometry`]) and hands out queues; a [`Queue`] belongs to one thread at a
//! time, takes [`Request`]s, each with the [`Buffer`](millrace_memory::Buffer) that it moves, and gives both back
//! as a [`Completion`]. There is no thread in between: who submits polls.
//!
//! # Durability
//! 1. A completed write is in the device, not on its medium, unless [`Geometry::volatile_cache`] is false.
//! 2. A completed [`Operation::WriteThrough`] is on the medium. It says nothing of other writes.
//! 3. A completed [`Operation::Flush`] has put every write on the medium that had completed, on any queue,
//!    when the flush was submitted.
//! 4. When the power goes, each run of [`Geometry::atomic_blocks`] blocks that one request wrote and that is not
//!    on the medium is there as a whole or not at all, each run by itself, in any order. Of several such writes
//!    of one block any may be what is left.
//! 5. Deallocated blocks read as anything until they are written again, unless the geometry says zeros.
//!
//! # Order
//! Requests in flight have no order, also not on one queue. Who needs one waits in between.
//!
//! # Limits
//! Blocks of 512 to 65,536 bytes; one buffer a request, of whole blocks and no more than
//! [`Geometry::transfer_bytes_max`]. What is of use of a buffer begins at a multiple of a block or of 4 KiB,
//! whichever is less.

#![deny(unsafe_code)]

#[cfg(feature = "conformance")]
pub mod conformance;
mod device;
mod error;
mod file;
mod geometry;
mod image;
mod memory_device;
mod queue;
mod request;
mod size;

pub use device::Device;
pub use error::{Error, ErrorKind, Result};
pub use file::{FileDevice, FileOptions};
pub use geometry::{Deallocation, Geometry};
pub use image::Image;
pub use memory_device::MemoryDevice;
pub use queue::Queue;
pub use request::{Completion, Lba, Operation, Refused, Request};
pub use size::Size;
