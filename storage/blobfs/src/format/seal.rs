//! What tells whether a block of a file is the one that was written there.
//!
//! # Format
//! The last eight bytes of a block that has a checksum:
//!
//! ```text
//! checksum u32    CRC32C, begun with the volume's key, of: the file's number u64, the block's number in the
//!                 file u64, and all bytes of the block before the trailer
//! file u32        the lower half of the file's number
//! ```
//!
//! It does not fit a block with a flipped bit, another file's, one of another place in the file, one of a file that
//! is no more (numbers of files are never used again), or another volume's. It fits what the same file held at the
//! same place before: that a write was dropped which the device has acknowledged is not found.
//!
//! A block is no longer than what a device writes as a whole, so after a power cut it is the old one or the new one,
//! and fits in either case.

use std::fmt;

use super::data_layout::{DataLayout, TRAILER_BYTES};
use super::ids::InodeId;
use super::key::VolumeKey;
use crate::error::{Error, ErrorKind, Result};

/// The seal of a block of a file, and of those that follow it.
#[derive(Clone, Copy)]
pub(crate) struct Seal {
    data: DataLayout,
    id: InodeId,
    /// The checksum of what all blocks of the file begin with.
    seed: u32,
    /// The block.
    number: u64,
}

impl Seal {
    /// That of block `number` of a file; none on a volume without checksums of data.
    #[inline]
    pub(crate) fn new(data: DataLayout, key: VolumeKey, id: InodeId, number: u64) -> Option<Self> {
        data.is_sealed()
            .then(|| Self::of_block(data, key, id, number))
    }

    /// That of the block that holds the byte at `offset`.
    #[inline]
    pub(crate) fn at(data: DataLayout, key: VolumeKey, id: InodeId, offset: u64) -> Option<Self> {
        data.is_sealed()
            .then(|| Self::of_block(data, key, id, data.block_of(offset).0))
    }

    // Apart, so that volumes without checksums have little more than a branch.
    #[inline(never)]
    fn of_block(data: DataLayout, key: VolumeKey, id: InodeId, number: u64) -> Self {
        Self {
            data,
            id,
            seed: key.checksum(&[&id.0.to_le_bytes()]),
            number,
        }
    }

    /// That of the block that follows `index` blocks after this one.
    pub(crate) const fn after(self, index: usize) -> Self {
        Self {
            number: self.number + index as u64,
            ..self
        }
    }

    /// Bytes of the whole blocks that hold so many bytes of the file, of which the first begins a block.
    pub(crate) const fn transfer_bytes(&self, bytes: usize) -> usize {
        self.data.transfer_bytes(bytes)
    }

    fn trailer(&self, number: u64, payload: &[u8]) -> [u8; TRAILER_BYTES] {
        let checksum = millrace_checksum::extend(self.seed, &number.to_le_bytes());
        let checksum = millrace_checksum::extend(checksum, payload);
        let mut trailer = [0; TRAILER_BYTES];
        trailer[..4].copy_from_slice(&checksum.to_le_bytes());
        trailer[4..].copy_from_slice(&self.id.0.to_le_bytes()[..4]);
        trailer
    }

    /// Puts bytes of the file, from the first of the block on, into whole blocks. The last one is filled up with
    /// zeros.
    pub(crate) fn close(&self, bytes: &[u8], blocks: &mut [u8]) {
        let payload = self.data.payload_bytes();
        let parts = bytes.chunks(payload);
        let blocks = blocks.chunks_exact_mut(self.data.block_bytes());
        for ((part, block), number) in parts.zip(blocks).zip(self.number..) {
            let (held, trailer) = block.split_at_mut(payload);
            held[..part.len()].copy_from_slice(part);
            held[part.len()..].fill(0);
            trailer.copy_from_slice(&self.trailer(number, held));
        }
    }

    /// The same in blocks of their own.
    pub(crate) fn closed(&self, bytes: &[u8]) -> Vec<u8> {
        let mut blocks = vec![0; self.data.transfer_bytes(bytes.len())];
        self.close(bytes, &mut blocks);
        blocks
    }

    /// The bytes of a block, if it is the one that follows `index` blocks after this one.
    fn payload<'b>(&self, index: usize, block: &'b [u8]) -> Result<&'b [u8]> {
        let number = self.number + index as u64;
        let (payload, trailer) = block.split_at(self.data.payload_bytes());
        if self.trailer(number, payload) == trailer {
            return Ok(payload);
        }
        Err(self.mismatch(number, trailer))
    }

    /// Whether a block is the one that follows `index` blocks after this one.
    pub(crate) fn fits(&self, index: usize, block: &[u8]) -> bool {
        self.payload(index, block).is_ok()
    }

    /// Takes out of whole blocks the bytes of the file that begin `skip` bytes after their first.
    ///
    /// # Errors
    /// [`ErrorKind::Corruption`] if a block is another one.
    pub(crate) fn open(&self, blocks: &[u8], skip: usize, out: &mut [u8]) -> Result<()> {
        let mut skip = skip;
        let mut left = out;
        for (index, block) in blocks.chunks_exact(self.data.block_bytes()).enumerate() {
            if left.is_empty() {
                break;
            }
            let payload = &self.payload(index, block)?[skip..];
            let (now, later) = left.split_at_mut(payload.len().min(left.len()));
            now.copy_from_slice(&payload[..now.len()]);
            left = later;
            skip = 0;
        }
        Ok(())
    }

    /// Has the bytes of the file follow each other from the front of the blocks on.
    ///
    /// # Errors
    /// [`ErrorKind::Corruption`] if a block is another one.
    pub(crate) fn open_in_place(&self, blocks: &mut [u8]) -> Result<()> {
        let (block, payload) = (self.data.block_bytes(), self.data.payload_bytes());
        for index in 0..blocks.len() / block {
            let begin = index * block;
            self.payload(index, &blocks[begin..begin + block])?;
            blocks.copy_within(begin..begin + payload, index * payload);
        }
        Ok(())
    }

    fn mismatch(&self, number: u64, trailer: &[u8]) -> Error {
        let from = self.data.offset_of(number);
        let to = from.saturating_add(self.data.payload_bytes() as u64);
        let id = self.id;
        let whose = trailer[4..]
            .first_chunk()
            .map_or(0, |file| u32::from_le_bytes(*file));
        let other = if trailer[4..] == id.0.to_le_bytes()[..4] {
            String::new()
        } else {
            format!(" (it says that it is one of #{whose})")
        };
        Error::new(
            ErrorKind::Corruption,
            format!(
                "the block of bytes {from}..{to} of file {id} does not match its checksum{other}"
            ),
        )
    }
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seal")
            .field("id", &self.id)
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}
