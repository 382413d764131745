//! Memory that is shared with a peer: another process, or another host.
//!
//! # Purpose
//! A non-transparent bridge, CXL memory, a BAR of ivshmem and plain shared memory have one thing in common: a store
//! here is a load there. They differ in the fences needed in between. A [`Window`] knows the needs of its mapping;
//! its user stores, publishes, polls and loads, and writes no fence.
//!
//! # Rules that the types keep
//! 1. *Stores go to the peer's side, loads to one's own.* An [`Outgoing`] half has no load, an [`Incoming`] half no
//!    store. No line is in two halves of one window.
//! 2. *Slots are whole lines* of 64 bytes, at multiples of 64.
//! 3. *The word that publishes a slot is stored last.* It is the first word of the slot; [`OutgoingSlot::store`]
//!    cannot reach it, and [`OutgoingSlot::publish`] takes the slot.
//! 4. *Payload is loaded after the word was seen*: only through what [`Incoming::poll`] gives.
//! 5. *Loaded bytes are untrusted.* They are copied, never referenced ([`Mapped`] says why that is sound); no
//!    content of a window makes anything here panic or fail. A caller without a copy needs an address, and unsafe code.
//! 6. *Offsets are checked*, as a protocol computes them from such bytes: what is wrong is an error.
//! 7. *The file behind a window cannot shrink* under it, which would be a signal at the next access.
//!
//! What the types cannot keep: that the peer takes the same halves the other way round, and that a side does not
//! store to a slot before the peer has given it back. A peer that breaks that loses its own messages.
//!
//! # What is done, by attributes
//! Each step is a [`Site`]; `-` is nothing.
//!
//! | step | write-back, coherent | write-back, not coherent | write-combining | uncached |
//! |---|---|---|---|---|
//! | payload is stored | - | write back | - | - |
//! | before the word | release | drain | drain | drain |
//! | the word is stored | - | write back | - | - |
//! | after the word | - | drain | drain | - |
//! | before a poll | - | invalidate, full | - | - |
//! | after a poll | acquire | acquire | full | full |
//! | before payload is loaded | - | full, invalidate, full | - | - |
//!
//! | | x86-64 | Arm | POWER |
//! |---|---|---|---|
//! | release | kept by the hardware | `dmb osh` | `lwsync` |
//! | acquire | kept by the hardware | `dmb oshld` | `lwsync` |
//! | drain | `sfence` | `dsb osh` | `sync` |
//! | full | `mfence` | `dsb osh` | `sync` |
//! | write back | `clwb`, else `clflushopt`, else `clflush` | `dc cvac` | `dcbst` |
//! | invalidate | `clflushopt`, else `clflush` | `dc civac` | `dcbf` |
//!
//! # Sources
//! | | made by | cacheability | remarks |
//! |---|---|---|---|
//! | shared memory of one host | [`Window::create`], [`Window::attach`] | write-back, coherent | sealed, mode 0600 |
//! | a BAR by sysfs | [`Window::open_resource`] | uncached or write-combining, by name | ivshmem, NTB |
//! | a DAX device | [`Window::open_dax`] | write-back, coherent or not | CXL memory, persistent memory |
//! | a BAR by VFIO | `Window::on_bar`, with the feature `pci` | uncached | |
//! | any other mapping | [`Mapped::new`] | as it is | the local side of an NTB |
//! | any other memory | [`Window::new`] | as its [`Medium`] says | models |
//!
//! Removal of a device removes its BAR: the next access raises `SIGBUS`.
//!
//! # Threads, clock, memory
//! No thread is spawned, no clock is read. A half belongs to one thread at a time and may move. Halves are
//! allocated when they are taken; nothing is allocated afterwards, unless something fails.
//!
//! # Cost
//! In coherent memory on x86-64 publishing is two stores and polling a load, with a branch for each step above.
//! `sfence` waits for the buffers of write-combining to leave. Without coherence every line costs a flush and a
//! miss on each side. Bytes are copied word by word.
//!
//! # Limits
//! Linux; x86-64, Arm and POWER, little-endian. A window has at most 2^63 - 1 bytes.
//!
//! # Example
//! ```
//! use millrace_memory::{Pages, RegionOptions};
//! use millrace_window::Window;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let options = RegionOptions { pages: Pages::Base, node: None, locked: false };
//! let (ours, file) = Window::create(8192, &options)?;
//! let theirs = Window::attach(&file)?;
//! let mut outgoing = ours.outgoing(0..4096)?;
//! let incoming = theirs.incoming(0..4096)?;
//!
//! let mut slot = outgoing.slot(128, 64)?;
//! slot.store(8, b"a message")?;
//! assert_eq!(incoming.poll(128)?.word(), 0);
//! slot.publish(9);
//!
//! let slot = incoming.poll(128)?;
//! let mut message = [0; 9];
//! assert_eq!(slot.word(), 9);
//! slot.load(8, &mut message)?;
//! assert_eq!(&message, b"a message");
//! # Ok(())
//! # }
//! ```

mod attributes;
mod doorbell;
mod error;
mod incoming;
mod machine;
mod mapped;
mod medium;
mod outgoing;
mod site;
mod sources;
mod window;

pub use attributes::{Attributes, Cacheability, Direction};
#[cfg(feature = "pci")]
pub use doorbell::RegisterDoorbell;
pub use doorbell::{Doorbell, EventDoorbell};
pub use error::{Error, ErrorKind, Result};
pub use incoming::{Incoming, IncomingSlot};
pub use mapped::{Keeper, Mapped};
pub use medium::{APART, Fence, LINE, Medium, WORD};
pub use outgoing::{Outgoing, OutgoingSlot};
pub use site::Site;
#[cfg(feature = "mutation")]
pub use site::mutation;
pub use window::Window;
