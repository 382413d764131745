//! Memory that a device reads and writes.
//!
//! # Purpose
//! A device that is driven without the kernel moves data by itself, to and from addresses that the IOMMU
//! translates. Such memory must not move, must be known to the IOMMU, and must not be freed while a command
//! that names it runs. Here is what keeps that: a [`Region`] of locked pages behind a memfd, a [`Domain`]
//! that makes regions visible to devices ([`NoDevice`] if there are none), and an [`Arena`] that hands out
//! [`Buffer`]s of a few sizes from one region.
//!
//! # Ownership
//! | object | owner |
//! |---|---|
//! | a `Region` | the `Arena` on it and each `Domain` that maps it, by reference count |
//! | a free block of an arena | the ring of its size class |
//! | a `Buffer` | its holder alone; a driver takes it by value with a command and gives it back when the device can no longer reach it |
//! | [`DeviceMemory`] | its holder and the device at the same time; no reference to its bytes exists |
//!
//! # Invariants
//! 1. What a device reads and writes is always the page that the processor sees. The domain keeps that: it
//!    pins each page from [`Domain::map`] to [`Domain::unmap`], so that the kernel neither swaps it out nor
//!    moves it to another place. Locking, which the region does, keeps off swapping alone: the kernel may
//!    still move a locked page, to another node or to make room for a huge one. Domains whose devices are
//!    programs, such as models, need not pin: programs look pages up as this process does. The last share of
//!    an arena unmaps its region; if the domain fails to, the region is never freed.
//! 2. A block is either in its class's ring or in one `Buffer`.
//! 3. The bytes of a `Buffer` lie behind each other for the device as they do for the processor.
//!
//! # Threads, clock, memory
//! No thread is spawned, no clock is read. Buffers may be taken and dropped on any thread. Taking and
//! dropping one does not allocate; it moves an index through a ring ([`millrace_sync::ring`]). No lock is
//! taken, but the ring is not lock-free: a thread that loses its processor between claiming its place and
//! publishing it holds up those that claim after it at the same end, which spin, then yield; the block that
//! it returns is not there for others until it goes on. Where that matters each thread has an arena of its
//! own. Each thread that takes buffers has a clone of the `Arena`.
//!
//! # Limits
//! Linux 4.16 or later; see below for other systems. A size class has blocks of 64 bytes to 2 GiB. Page sizes are asked of the kernel,
//! never assumed.
//!
//! # Other systems
//! No device can be driven there, so that memory serves [`NoDevice`] and what copies. A region is memory of the
//! allocator, in pages of [`base_page_size`]; what that cannot do is refused by [`ErrorKind::Refused`]: huge pages, a
//! node, and locking ([`RegionOptions::locked`], which is on by default). `Region::file` and `Error::lock_limit` are
//! absent.
//!
//! # When there is too little
//! What there is no memory for is refused by [`ErrorKind::NoMemory`] before any of it is taken. Huge pages are
//! set aside, and the kernel counts them. Base pages it hands out until it must end a process, so that
//! [`Region::new`] compares with what is left: of the machine (`MemAvailable` of `/proc/meminfo`), of each
//! memory group that the process is in (version 1 or 2), and of the node if one is named. File pages count as
//! left, swap does not. What remains is a race: what others take after that look, or before this memory is
//! full, is not seen, and the kernel may end a process then. Programs that must not meet that make their
//! arenas when they start.
//!
//! # Without root
//! Nothing here needs privileges, but for two limits:
//!
//! - **Locked memory.** Base pages are locked, if not asked otherwise, which counts against the soft limit
//!   `RLIMIT_MEMLOCK` of the process. VFIO pins what it maps, of whatever pages, and counts that as well, in
//!   most of its versions on top: a region of base pages in a VFIO domain needs twice its size, one of base
//!   pages that are not locked and one of huge pages once. More is allowed by `LimitMEMLOCK=512M` in the
//!   `[Service]` part of a systemd unit; by a line `millrace - memlock 524288`, in KiB, in a file of
//!   `/etc/security/limits.d`, which counts from the user's next login on; by `ulimit -l`, in KiB, up to the
//!   hard limit; or by the capability `CAP_IPC_LOCK`, which lifts it. A refusal is [`ErrorKind::LockLimit`],
//!   whose message says what the limit is and what is needed.
//! - **The device.** The file of its IOMMU group, `/dev/vfio/<group>`, must belong to the user. It appears when
//!   root binds a device of the group to `vfio-pci`, as root's, mode 0600, and anew after each start of the
//!   machine. Then `chown millrace /dev/vfio/<group>`; or for good, a rule in `/etc/udev/rules.d`:
//!   `SUBSYSTEM=="vfio", KERNEL=="[0-9]*", OWNER="millrace"`, which gives away every group that is bound.
//!   `/dev/vfio/vfio` is open to all on most systems: it gives no access by itself.
//!
//! Huge pages must be set aside by root (`/proc/sys/vm/nr_hugepages`, or on the kernel's command line); any
//! user may then use those that are free.
//!
//! # Example
//! ```
//! use std::sync::{Arc, Mutex};
//!
//! use millrace_memory::{
//!     Arena, ArenaOptions, Domain, Iova, IovaRange, IovaSpace, Pages, Region, SizeClass,
//! };
//!
//! /// Devices that see nothing: addresses are handed out, no IOMMU is told.
//! #[derive(Debug)]
//! struct Nowhere(Mutex<IovaSpace>);
//!
//! impl Domain for Nowhere {
//!     fn map(&self, region: &Arc<Region>) -> millrace_memory::Result<Iova> {
//!         let mut space = self.0.lock().expect("no thread has panicked");
//!         space.take(region.size() as u64, region.page_size() as u64)
//!     }
//!
//!     unsafe fn unmap(&self, iova: Iova) -> millrace_memory::Result<()> {
//!         self.0.lock().expect("no thread has panicked").give(iova)
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let range = IovaRange { first: Iova(0), last: Iova(0xffff_ffff) };
//! let domain = Nowhere(Mutex::new(IovaSpace::new(vec![range], 4096)?));
//! let options = ArenaOptions {
//!     classes: vec![SizeClass { size: 4096, count: 8 }],
//!     pages: Pages::Base,
//!     node: None,
//!     locked: true,
//! };
//! let arena = Arena::new(Arc::new(domain), &options)?;
//! let mut buffer = arena.try_buffer(512)?;
//! buffer.fill(7);
//! assert_eq!((buffer.len(), buffer.capacity()), (512, 4096));
//! assert_eq!(buffer.iova().0 % 4096, 0);
//! # Ok(())
//! # }
//! ```

mod arena;
#[cfg(all(target_os = "linux", not(miri)))]
mod available;
mod buffer;
mod cells;
mod device_memory;
mod device_words;
mod domain;
mod error;
#[cfg(any(not(target_os = "linux"), miri, test))]
mod heap;
mod iova_space;
mod layout;
#[cfg(target_os = "linux")]
mod lock_limit;
mod mapping;
#[cfg(all(target_os = "linux", not(miri)))]
mod memfd;
mod no_device;
#[cfg(all(target_os = "linux", not(miri)))]
mod numa;
mod pages;
mod region;

pub use arena::{Arena, ArenaOptions, Exhausted};
pub use buffer::Buffer;
pub use device_memory::DeviceMemory;
pub use device_words::{DeviceWord, DeviceWords};
pub use domain::{Domain, DomainId, Iova, IovaRange};
pub use error::{Error, ErrorKind, Result};
pub use iova_space::IovaSpace;
pub use layout::SizeClass;
pub use no_device::NoDevice;
pub use pages::{HugePages, base_page_size};
pub use region::{Pages, Region, RegionOptions};
