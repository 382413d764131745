//! Checkpoint image: all metadata as of a transaction, in pages that are readable one by one.
//!
//! # Format
//! A page is 4 KiB. Behind its records all is zero.
//!
//! ```text
//!  0  magic "MRCP"
//!  4  checksum u32           CRC32C of the uuid and bytes 8 .. 4096
//!  8  transaction u64        the last that the checkpoint contains
//! 16  number u32, count u32  which page of how many
//! 24  used u32, zero u32     bytes of records
//! 32  records
//! ```
//!
//! A record begins with a type byte, and never continues in the next page:
//!
//! ```text
//! 1 volume         next id u64, files and directories u64
//! 2 file           id u64, links u32, size u64, modified u64, extents
//! 3 more extents   id u64, units before them u64, extents
//! 4 directory      id u64, parent u64, modified u64
//! 5 entry          parent u64, id u64, name
//! ```
//!
//! Names and extents are as in [operations](super::operation). The volume record and all entries come first, then
//! the files and directories in the order of their numbers, so that a lost page contains names or inodes, not both. The
//! superblock has the CRC32C of the concatenated checksums of all pages.
//!
//! # Recovery
//! A damaged page is read from the other copy. A page lost in both loses its records: names without a file are dropped,
//! files without a name go to `/lost+found`, a file without its last extents is cut.

mod decoder;
mod image;

pub(crate) use decoder::Decoder;
pub(crate) use image::Image;

/// Bytes of a page, including its header.
pub(crate) const PAGE_BYTES: usize = 4096;
/// Bytes of a page's header.
const PAGE_HEADER_BYTES: usize = 32;
const MAGIC: [u8; 4] = *b"MRCP";

const VOLUME: u8 = 1;
const FILE: u8 = 2;
const MORE_EXTENTS: u8 = 3;
const DIRECTORY: u8 = 4;
const ENTRY: u8 = 5;

/// Checksum of a checkpoint, from the checksums of its pages in order.
fn combined_checksum(checksums: impl Iterator<Item = u32>) -> u32 {
    checksums.fold(0, |crc, checksum| {
        millrace_checksum::extend(crc, &checksum.to_le_bytes())
    })
}
