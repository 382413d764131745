//! A crash-safe file system on a block device, in the process that uses it.
//!
//! # Purpose
//! The files of a database: a few thousand, most of them large and written once from front to back, some synced
//! after every few hundred bytes. Each thread drives a queue of the device by itself; no kernel and no other
//! thread is in between.
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
//! * **Transaction**: a number, a checksum, and [operations](format::operation::Operation). An operation may carry data of a
//!   file: a small sync is one write to the journal.
//! * **Data** of a file lies in whole blocks, one after the other in its extents. On a volume that was made with
//!   [`FormatOptions::data_checksums`] each block ends in 8 bytes that tell whether it is the one that was written at
//!   this place of this file: a checksum of its other bytes, the file's number (which no other file ever has), the
//!   block's number in the file, and the volume's identifier. It is checked whenever the block is read from the device.
//! * Which units are free is stored nowhere: what no file and no checkpoint holds is free. Nothing can disagree.
//!
//! # Durability
//! 1. A transaction is written only when the one before is on the medium.
//! 2. A transaction names no byte of a file that is not on the medium, or in that or an earlier transaction.
//! 3. A unit that a transaction freed is written again only when that transaction is on the medium.
//! 4. The journal is overwritten only up to a transaction that a checkpoint contains which is on the medium, as
//!    is the data that the transactions before carried, and both superblocks name that checkpoint.
//! 5. [`File::sync`] returns when the file's bytes, its size and every change of names before are on the medium.
//! 6. After a failed write or flush nothing is acknowledged any more; the volume can be read.
//!
//! # Recovery
//! [`Volume::mount`] reads the newer superblock, its checkpoint, and the journal from there on up to the first
//! block that does not continue it. Data in those transactions is written to its place, a new checkpoint follows.
//! What is read is bounded by the metadata and the journal, whatever the size of the device. A transaction that is
//! damaged, not torn - a later one follows it, which was written after it was on the medium - refuses the mount.
//!
//! # Damage
//! All metadata has checksums and is there twice, or can be done again. Data has checksums if the volume was made so: a
//! block that does not match is [`ErrorKind::Corruption`] for who reads bytes of it, by name and offset; the rest of the
//! file, and all else, can be read. [`check()`] looks at all of them. Not found is a write that the device has
//! acknowledged and dropped where the same file had other bytes at the same place before.
//!
//! # Limits
//! 2^32 units a volume (16 TiB with units of 4 KiB), names of 255 bytes, paths of 4,096. All metadata is in memory:
//! about 470 bytes a file. No symbolic links, owners, permissions, sparse files.
//!
//! # Threads
//! None of its own. All handles can be used from any thread.

#![forbid(unsafe_code)]

mod allocator;
mod barrier;
mod check;
mod checkpoint;
mod counters;
mod dump;
mod error;
mod file;
mod format;
mod inode;
mod journal;
mod journal_reader;
mod lanes;
mod map;
mod mount;
mod permits;
mod read_ahead;
mod reading;
mod room;
mod shared;
mod state;
mod trim;
mod volume;
mod writer;

pub use barrier::Barrier;
#[cfg(feature = "mutation")]
pub use barrier::mutation;
pub use check::{Area, CheckOptions, Finding, Progress, Report, Severity, Stage, check};
pub use counters::Counters;
pub use dump::{dump, extents};
pub use error::{Error, ErrorKind, Result};
pub use file::{File, PendingRead, ReadPart};
#[cfg(any(test, feature = "exercise"))]
pub use format::exercise;
pub use format::{FormatOptions, InodeId, Kind, Timestamp};
pub use read_ahead::ReadAhead;
pub use shared::Clock;
pub use volume::{Entry, FileLock, MountOptions, OpenOptions, Space, Status, Volume};
