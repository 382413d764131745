//! Options and results of the public calls.

use std::fmt;
use std::sync::Arc;

use crate::format::Kind;
use crate::{Result, Timestamp};

/// Source of the current time; the library reads no clock itself.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Options of [`Volume::mount`](crate::Volume::mount): access mode, clock, transfer memory and TRIM.
#[derive(Clone)]
pub struct MountOptions {
    /// Write nothing to the device, and do not recover from a power cut.
    pub read_only: bool,
    /// Source of the modification times that the volume records.
    pub clock: Clock,
    /// Memory for device transfers, in bytes; values below 1 MiB count as 1 MiB.
    pub arena_bytes: usize,
    /// Whether to deallocate (TRIM) freed blocks; `None` does so if the device reports it as cheap.
    pub discard: Option<bool>,
}

impl MountOptions {
    /// Options for reading and writing, with 16 MiB of transfer memory.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self {
            read_only: false,
            clock,
            arena_bytes: 16 << 20,
            discard: None,
        }
    }
}

impl fmt::Debug for MountOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MountOptions")
            .field("read_only", &self.read_only)
            .field("arena_bytes", &self.arena_bytes)
            .field("discard", &self.discard)
            .finish_non_exhaustive()
    }
}

/// Flags of [`Volume::open`](crate::Volume::open). Without any of them the file must exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Create the file if it does not exist (`O_CREAT`).
    pub create: bool,
    /// Create the file, and fail if it exists (`O_CREAT | O_EXCL`).
    pub create_new: bool,
    /// Cut the file to zero bytes (`O_TRUNC`).
    pub truncate: bool,
}

/// An entry of a directory: name, kind and inode number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name of the entry in its directory.
    pub name: String,
    /// Kind of the inode: file or directory.
    pub kind: Kind,
    /// Inode number, the same for all links to one file.
    pub id: u64,
}

/// Attributes of a file or directory, as `stat` returns them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Inode number, the same for all links to one file, and never reused on this volume.
    pub id: u64,
    /// Kind of the inode: file or directory.
    pub kind: Kind,
    /// Size of a file in bytes; of a directory, the number of its entries.
    pub size: u64,
    /// Allocated space in bytes: whole units of the device.
    pub allocated_bytes: u64,
    /// Number of links to the inode; 1 for a directory.
    pub links: u32,
    /// Time of the last modification, in milliseconds since 1970.
    pub modified: Timestamp,
}

/// Space usage of a volume, as `statvfs` returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes available for files in an empty volume.
    pub total_bytes: u64,
    /// Bytes that are free for files.
    pub free_bytes: u64,
    /// Bytes of superblocks, journal and checkpoints, and the reservation for the next checkpoint.
    pub metadata_bytes: u64,
    /// Number of files and directories, including the root.
    pub files: u64,
}

/// One range of [`File::read_many`](crate::File::read_many), with its buffer and its result.
#[derive(Debug)]
pub struct ReadPart<'a> {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Destination of the bytes; its length is the length of the range.
    pub out: &'a mut [u8],
    /// Number of bytes read, less than `out.len()` only at the end of the file; or the error of this range.
    pub result: Result<usize>,
}
