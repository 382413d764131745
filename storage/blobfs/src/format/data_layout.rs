//! Layout of file data in blocks.
//!
//! Without checksums of data a block holds as many bytes of a file as it has. With them it ends in a trailer:
//!
//! ```text
//! 0                                     block bytes - 8        - 4
//! | bytes of the file, then zeros      | checksum u32         | file u32 |
//! ```
//!
//! The module `block_trailer` describes the trailer.

use super::layout::Layout;

/// Bytes of the trailer of a block that has a checksum.
pub(crate) const TRAILER_BYTES: usize = 8;

/// Conversion between offsets of a file and its blocks and units.
///
/// # Invariants
/// Blocks and units are powers of two, and a unit is whole blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DataLayout {
    /// log2 of a block's bytes.
    block_shift: u32,
    /// log2 of a unit's blocks.
    unit_shift: u32,
    has_checksums: bool,
}

impl DataLayout {
    /// Data layout of a volume.
    pub(crate) const fn new(layout: &Layout) -> Self {
        Self {
            block_shift: layout.block_bytes().trailing_zeros(),
            unit_shift: layout.unit_blocks().trailing_zeros(),
            has_checksums: layout.data_checksums(),
        }
    }

    /// Whether blocks of file data end in a checksum.
    pub(crate) const fn has_checksums(&self) -> bool {
        self.has_checksums
    }

    /// Bytes of a block, including its trailer.
    pub(crate) const fn block_bytes(&self) -> usize {
        1 << self.block_shift
    }

    /// Bytes of a file in one block.
    pub(crate) const fn payload_bytes(&self) -> usize {
        if self.has_checksums {
            self.block_bytes() - TRAILER_BYTES
        } else {
            self.block_bytes()
        }
    }

    /// Block of the file that holds the byte at `offset`, and the bytes before it in the block.
    #[inline]
    pub(crate) fn block_of(&self, offset: u64) -> (u64, usize) {
        let (block, within) = if self.has_checksums {
            let payload = self.payload_bytes() as u64;
            (offset / payload, offset % payload)
        } else {
            let within = offset & ((1 << self.block_shift) - 1);
            (offset >> self.block_shift, within)
        };
        (
            block,
            usize::try_from(within).expect("bytes of a block are few"),
        )
    }

    /// Unit of the file that holds a block, and the blocks before it in the unit.
    pub(crate) const fn unit_of(&self, block: u64) -> (u64, u64) {
        let within = block & ((1 << self.unit_shift) - 1);
        (block >> self.unit_shift, within)
    }

    /// Offset of the first byte in the block that holds the byte at `offset`.
    pub(crate) fn block_start(&self, offset: u64) -> u64 {
        offset - self.block_of(offset).1 as u64
    }

    /// First block of a unit, of the file or of the device.
    pub(crate) const fn first_block(&self, unit: u64) -> u64 {
        unit << self.unit_shift
    }

    /// Offset of the first byte of a block.
    pub(crate) const fn offset_of(&self, block: u64) -> u64 {
        block.saturating_mul(self.payload_bytes() as u64)
    }

    /// Number of blocks for `bytes` bytes of a file.
    pub(crate) const fn blocks(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.payload_bytes() as u64)
    }

    /// Number of units for a file of `bytes` bytes.
    pub(crate) const fn units(&self, bytes: u64) -> u64 {
        self.blocks(bytes).div_ceil(1 << self.unit_shift)
    }

    /// Bytes of a file that fit in `units` units.
    pub(crate) const fn bytes(&self, units: u64) -> u64 {
        let blocks = units.saturating_mul(1 << self.unit_shift);
        blocks.saturating_mul(self.payload_bytes() as u64)
    }

    /// Bytes of a file in `block_bytes` bytes of whole blocks.
    pub(crate) const fn payload_of(&self, block_bytes: usize) -> usize {
        (block_bytes >> self.block_shift) * self.payload_bytes()
    }

    /// Bytes of the whole blocks that hold `bytes` bytes of a file from the start of a block on.
    pub(crate) const fn transfer_bytes(&self, bytes: usize) -> usize {
        bytes.div_ceil(self.payload_bytes()) << self.block_shift
    }
}
