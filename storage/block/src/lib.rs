//! Block devices behind one trait, driven by the calling thread.
//!
//! # Purpose
//! A [`Device`] describes itself ([`Geometry`]) and opens queues; a [`Queue`] belongs to one thread at a time, accepts
//! [`Request`]s, each with the [`Buffer`](millrace_memory::Buffer) that it transfers, and returns both as a
//! [`Completion`]. No other thread is involved: the submitting thread polls.
//!
//! | device | backing | DMA domain |
//! |---|---|---|
//! | [`NvmeDevice`] | an NVMe namespace, driven without the kernel | the controller's domain |
//! | [`FileDevice`] | a file or block special, with `O_DIRECT` where possible | none |
//! | [`MemoryDevice`] | memory of the process, freed on close | none |
//!
//! [`Spec`] is the textual name of a device, and opens it.
//!
//! # Durability
//! 1. A completed write is in the device's cache, not on its medium, unless [`Geometry::volatile_cache`] is false.
//! 2. A completed [`Operation::WriteThrough`] is on the medium. It says nothing of other writes.
//! 3. A completed [`Operation::Flush`] has put every write on the medium that had completed, on any queue,
//!    when the flush was submitted.
//! 4. After a power cut, each run of [`Geometry::atomic_blocks`] blocks that one request wrote and that was not on the
//!    medium is there as a whole or not at all, each run independently, in any order. Of several such writes of one
//!    block any may remain.
//! 5. Deallocated blocks have undefined contents until they are written again, unless
//!    [`Geometry::deallocated_reads_zero`].
//!
//! # Controllers that ignore FUA
//! Some NVMe controllers complete a write with the FUA bit before it is on the medium. For these,
//! [`Operation::WriteThrough`] is a write and a flush, and [`Geometry::write_through`] is false, so that a caller with
//! several writes flushes once for all. Known ones are identified by their PCI identity:
//!
//! | controller | PCI | |
//! |---|---|---|
//! | QEMU's | 1b36:0010 | ignores the bit; executes flushes |
//!
//! [`NvmeOptions::trust_fua`] turns it off for other controllers. There is no remedy for a controller that ignores
//! flushes.
//!
//! # Order
//! Requests in flight have no order, also not on one queue. A caller that needs one waits in between.
//!
//! # Limits
//! Blocks of 512 to 65,536 bytes; one buffer a request, of whole blocks and no more than
//! [`Geometry::transfer_bytes_max`]. The used range of a buffer begins at a multiple of a block or of 4 KiB,
//! whichever is less.
//!
//! # Threads, clock, memory
//! The library spawns no thread and reads no clock: the caller provides the time ([`OpenOptions`]). All threads share a
//! device; a queue belongs to one thread at a time and may move between them. Submitting and polling allocate nothing
//! on the fast paths: a ring, a queue pair.
//!
//! # Cost
//! A 4 KiB read of an NVMe namespace costs what the driver's does and one indirect call. A read of a file is one system
//! call by [`Queue::run`]; through a ring several requests share one.
//!
//! # Unsafe code
//! One module has some: the one that passes buffer addresses to an io_uring. It states the owner of each buffer.
//!
//! # Example
//! ```
//! use std::sync::Arc;
//! use std::time::Instant;
//!
//! use millrace_block::{Lba, OpenOptions, Request, Spec};
//! use millrace_memory::{Arena, ArenaOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = "mem:16M".parse::<Spec>()?.open(&OpenOptions::new(Instant::now()))?;
//! let options = ArenaOptions { locked: false, ..ArenaOptions::default() };
//! let arena = Arena::new(Arc::clone(device.domain()), &options)?;
//! let mut queue = device.queue()?;
//!
//! let mut buffer = arena.try_buffer(4096)?;
//! buffer.fill(7);
//! let written = queue.run(Request::write(Lba(2), buffer, 0))?;
//! written.result?;
//! queue.submit(Request::flush(1))?;
//! queue.submit(Request::read(Lba(2), arena.try_buffer(4096)?, 2))?;
//! while let Some(completion) = queue.wait() {
//!     completion.result?;
//!     if completion.token == 2 {
//!         assert_eq!(completion.buffer.ok_or("a read has one")?[0], 7);
//!     }
//! }
//! # Ok(())
//! # }
//! ```

#![deny(unsafe_code)]

#[cfg(feature = "conformance")]
pub mod conformance;
mod device;
mod error;
mod file;
mod geometry;
mod image;
mod memory_device;
mod nvme;
mod queue;
mod request;
mod size;
mod spec;

pub use device::Device;
pub use error::{Error, ErrorKind, Result};
pub use file::{FileDevice, FileOptions};
pub use geometry::{Deallocation, Geometry};
pub use image::Image;
pub use memory_device::MemoryDevice;
pub use nvme::{NvmeDevice, NvmeOptions};
pub use queue::Queue;
pub use request::{Completion, Lba, Operation, Refused, Request};
pub use size::Size;
pub use spec::{OpenOptions, Spec};
