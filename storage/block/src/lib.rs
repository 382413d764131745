//! Block devices behind one trait, each driven by the thread that has work for it.
//!
//! # Purpose
//! [`Device`] says what a device is ([`Geometry`]) and hands out queues; a [`Queue`] belongs to one thread at
//! a time, takes [`Request`]s, each with the [`Buffer`](millrace_memory::Buffer) that it moves, and gives
//! both back as a [`Completion`]. There is no thread in between: who submits polls.
//!
//! | device | what it is | its memory |
//! |---|---|---|
//! | [`NvmeDevice`] | an NVMe namespace, driven without the kernel | the controller's domain |
//! | [`FileDevice`] | a file or block special, around the page cache where that can be | none that a device sees |
//! | [`MemoryDevice`] | memory, gone when it is closed | the same |
//!
//! [`Spec`] is how a device is named on a command line, and opens it.
//!
//! # Durability
//! 1. A completed write is in the device, not on its medium, unless [`Geometry::volatile_cache`] is false.
//! 2. A completed [`Operation::WriteThrough`] is on the medium. It says nothing of other writes.
//! 3. A completed [`Operation::Flush`] has put every write on the medium that had completed, on any queue,
//!    when the flush was submitted.
//! 4. When the power goes, each run of [`Geometry::atomic_blocks`] blocks that one request wrote and that is
//!    not on the medium is there as a whole or not at all, each run by itself, in any order. Of several such
//!    writes of one block any may be what is left.
//! 5. Deallocated blocks read as anything until they are written again, unless the geometry says zeros.
//!
//! # Controllers that do not keep their word
//! Some NVMe controllers complete a write with the FUA bit before it is on the medium. There
//! [`Operation::WriteThrough`] is made of a write and a flush, and [`Geometry::write_through`] is false, so that
//! who writes several blocks flushes once for all. The known ones are told by their PCI identity:
//!
//! | controller | PCI | |
//! |---|---|---|
//! | QEMU's | 1b36:0010 | ignores the bit; flushes are obeyed |
//!
//! Others are mistrusted by [`NvmeOptions::trust_fua`]. A controller that does not obey flushes cannot be helped.
//!
//! # Order
//! Requests in flight have no order, also not on one queue. Who needs one waits in between.
//!
//! # Limits
//! Blocks of 512 to 65,536 bytes; one buffer a request, of whole blocks and no more than
//! [`Geometry::transfer_bytes_max`]. What is of use of a buffer begins at a multiple of a block or of 4 KiB,
//! whichever is less.
//!
//! # Threads, clock, memory
//! No thread is spawned and no clock is read: what needs the time is given it ([`OpenOptions`]). A device is
//! shared by all threads; a queue is one thread's at a time and may move between them. Submitting and polling
//! allocate nothing where the way is the fast one: a ring, a queue pair.
//!
//! # Cost
//! A 4 KiB read of an NVMe namespace costs what the driver's does and one indirect call. Of a file it is one
//! call of the kernel by [`Queue::run`]; through a ring several requests share one.
//!
//! # Unsafe code
//! One module has some: the one that tells the kernel's ring where buffers are. It states who keeps them
//! there.
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
