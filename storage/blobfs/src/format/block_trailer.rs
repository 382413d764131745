//! Block trailer: checksum and identity of a block of a file.
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
//! A trailer does not match a block with a flipped bit, a block of another file or at another offset, a block of a
//! removed file (file numbers are never reused), or a block of another volume. It matches earlier contents of the same
//! block: a write that the device acknowledged and dropped is not detected.
//!
//! A block is no longer than the device's atomic write, so after a power cut it is the old block or the new one, and
//! matches in either case.

use std::fmt;

use super::data_layout::{DataLayout, TRAILER_BYTES};
use super::ids::InodeId;
use super::key::VolumeKey;
use crate::error::{Error, ErrorKind, Result};

/// Trailer of a block of a file, and of the blocks that follow it.
#[derive(Clone, Copy)]
pub(crate) struct BlockTrailer {
    data: DataLayout,
    id: InodeId,
    /// Checksum of the key and the file's number, with which all blocks of the file begin.
    seed: u32,
    /// Block number in the file.
    number: u64,
}

impl BlockTrailer {
    /// Trailer of block `number` of a file; none on a volume without data checksums.
    #[inline]
    pub(crate) fn new(data: DataLayout, key: VolumeKey, id: InodeId, number: u64) -> Option<Self> {
        data.has_checksums()
            .then(|| Self::of_block(data, key, id, number))
    }

    /// Trailer of the block that holds the byte at `offset`.
    #[inline]
    pub(crate) fn at(data: DataLayout, key: VolumeKey, id: InodeId, offset: u64) -> Option<Self> {
        data.has_checksums()
            .then(|| Self::of_block(data, key, id, data.block_of(offset).0))
    }

    // Not inlined, so that volumes without checksums pay little more than a branch.
    #[inline(never)]
    fn of_block(data: DataLayout, key: VolumeKey, id: InodeId, number: u64) -> Self {
        Self {
            data,
            id,
            seed: key.checksum(&[&id.0.to_le_bytes()]),
            number,
        }
    }

    /// Trailer of the block `index` blocks after this one.
    pub(crate) const fn after(self, index: usize) -> Self {
        Self {
            number: self.number + index as u64,
            ..self
        }
    }

    /// Bytes of the whole blocks that hold `bytes` bytes of the file from the start of a block on.
    pub(crate) const fn transfer_bytes(&self, bytes: usize) -> usize {
        self.data.transfer_bytes(bytes)
    }

    fn encode(&self, number: u64, payload: &[u8]) -> [u8; TRAILER_BYTES] {
        let checksum = millrace_checksum::extend(self.seed, &number.to_le_bytes());
        let checksum = millrace_checksum::extend(checksum, payload);
        let mut trailer = [0; TRAILER_BYTES];
        trailer[..4].copy_from_slice(&checksum.to_le_bytes());
        trailer[4..].copy_from_slice(&self.id.0.to_le_bytes()[..4]);
        trailer
    }

    /// Fills whole blocks with bytes of the file and their trailers. The rest of the last block is zeros.
    pub(crate) fn fill_blocks(&self, bytes: &[u8], blocks: &mut [u8]) {
        let payload = self.data.payload_bytes();
        let parts = bytes.chunks(payload);
        let blocks = blocks.chunks_exact_mut(self.data.block_bytes());
        for ((part, block), number) in parts.zip(blocks).zip(self.number..) {
            let (held, trailer) = block.split_at_mut(payload);
            held[..part.len()].copy_from_slice(part);
            held[part.len()..].fill(0);
            trailer.copy_from_slice(&self.encode(number, held));
        }
    }

    /// New blocks filled as by [`BlockTrailer::fill_blocks`].
    pub(crate) fn encode_blocks(&self, bytes: &[u8]) -> Vec<u8> {
        let mut blocks = vec![0; self.data.transfer_bytes(bytes.len())];
        self.fill_blocks(bytes, &mut blocks);
        blocks
    }

    /// The file's bytes in a block, if it is the block `index` blocks after this one.
    fn payload<'b>(&self, index: usize, block: &'b [u8]) -> Result<&'b [u8]> {
        let number = self.number + index as u64;
        let (payload, trailer) = block.split_at(self.data.payload_bytes());
        if self.encode(number, payload) == trailer {
            return Ok(payload);
        }
        Err(self.mismatch(number, trailer))
    }

    /// Whether a block matches as the block `index` blocks after this one.
    pub(crate) fn matches(&self, index: usize, block: &[u8]) -> bool {
        self.payload(index, block).is_ok()
    }

    /// Copies the file's bytes from whole blocks, from `skip` bytes after their first on.
    ///
    /// # Errors
    /// [`ErrorKind::Corruption`] if a block does not match.
    pub(crate) fn verify_into(&self, blocks: &[u8], skip: usize, out: &mut [u8]) -> Result<()> {
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

    /// Moves the file's bytes together at the front of the blocks.
    ///
    /// # Errors
    /// [`ErrorKind::Corruption`] if a block does not match.
    pub(crate) fn verify_in_place(&self, blocks: &mut [u8]) -> Result<()> {
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
            format!(" (its trailer names file #{whose})")
        };
        Error::new(
            ErrorKind::Corruption,
            format!(
                "the block of bytes {from}..{to} of file {id} does not match its checksum{other}"
            ),
        )
    }
}

impl fmt::Debug for BlockTrailer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockTrailer")
            .field("id", &self.id)
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}
