//! A crash-safe file system on a block device, in the process that uses it.
//!
//! # Purpose
//! The files of a database: a few thousand, most of them large and written once from front to back, some synced
//! after every few hundred bytes. Each thread drives a device queue of its own; no kernel and no other thread is
//! involved.
//!
//! # Format
//! All numbers are little-endian. The device is divided into units (4 KiB, or a logical block if that is larger);
//! units into groups; no extent crosses a group's border.
//!
//! ```text
//! unit 0            superblock, first copy
//! unit 1 ..         journal: a ring of transactions, each of whole logical blocks
//! the groups        data of files, and two copies of the last checkpoint, anywhere
//! the last unit     superblock, second copy
//! ```
//!
//! * **Superblock**: where all of this lies, where the checkpoint is, and where in the journal to begin.
//! * **Checkpoint**: all metadata (names, sizes, extents) as of a transaction, in pages that are checksummed one by
//!   one and can be read one by one.
//! * **Transaction**: a number, a checksum, and [operations](format::operation::Operation). An operation may carry
//!   journaled data of a file: a small sync is one write to the journal.
//! * **Data** of a file lies in whole blocks, in the order of its extents. On a volume that was made with
//!   [`FormatOptions::data_checksums`] each block ends in a trailer of 8 bytes that identifies the block: a checksum of
//!   the volume's identifier, the file's number (never reused), the block's number in the file and the block's other
//!   bytes. Every read from the device verifies it.
//! * Free units are not stored: a unit is free if no file and no checkpoint holds it. The two cannot disagree.
//!
//! # Durability
//! 1. A transaction is written only when the one before is on the medium.
//! 2. A transaction names no byte of a file that is not on the medium, or in that or an earlier transaction.
//! 3. A unit that a transaction freed is written again only when that transaction is on the medium.
//! 4. The journal is overwritten only up to a transaction that a durable checkpoint contains, when the journaled data
//!    of the transactions before it is durable in its final location and both superblocks name that checkpoint.
//! 5. [`File::sync`] returns when the file's bytes, its size and all earlier changes of names are on the medium.
//! 6. After a failed write or flush nothing is acknowledged any more; the volume can still be read.
//!
//! # Recovery
//! [`Volume::mount`] reads the newer superblock, its checkpoint, and the journal from there on up to the first
//! block that does not continue it. It writes the journaled data back to its final location and makes a new checkpoint.
//! The metadata and the journal bound the bytes read, not the size of the device. A damaged transaction that is
//! followed by a later one is not torn, because the later one was written after it was on the medium: it fails the
//! mount.
//!
//! # Damage
//! All metadata has checksums and two copies, or can be recomputed. Data has checksums if the volume was made so:
//! reading a block that does not match fails with [`ErrorKind::Corruption`], the file's name and the offset; the rest
//! of the file and all other files can be read. [`check()`] verifies all blocks. A write that the device acknowledged
//! and dropped is not detected where the same file had other bytes at the same offset before.
//!
//! # Limits
//! 2^32 units a volume (16 TiB with units of 4 KiB), names of 255 bytes, paths of 4,096. All metadata is in memory:
//! about 470 bytes a file. No symbolic links, owners, permissions, sparse files.
//!
//! # Threads
//! The library starts none. All handles can be used from any thread.

#![forbid(unsafe_code)]

mod allocator;
mod barrier;
mod check;
mod checkpoint;
mod checkpoint_reservation;
mod counters;
mod dump;
mod error;
mod file;
mod finished_readaheads;
mod format;
mod inode;
mod io;
mod io_context;
mod journal;
mod journal_reader;
mod map;
mod mount;
mod permits;
mod read_ahead;
mod reading;
mod shared;
mod state;
mod trim;
mod types;
mod volume;
mod writer;

pub use barrier::Barrier;
#[cfg(feature = "mutation")]
pub use barrier::mutation;
pub use check::{Area, CheckOptions, Finding, Progress, Report, Severity, Stage, check};
pub use counters::Counters;
pub use dump::{dump, extents};
pub use error::{Error, ErrorKind, Result};
pub use file::{File, PendingRead};
#[cfg(any(test, feature = "exercise"))]
pub use format::exercise;
pub use format::{FormatOptions, InodeId, Kind, Timestamp};
pub use read_ahead::ReadAhead;
pub use types::{Clock, Entry, MountOptions, OpenOptions, ReadPart, Space, Status};
pub use volume::{FileLock, Volume};
