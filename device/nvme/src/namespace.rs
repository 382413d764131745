//! A namespace: blocks that can be read and written.

use std::sync::Arc;

use crate::spec::identify::{ControllerData, NamespaceData};
use crate::{Error, ErrorKind, Result};

/// The most blocks of one command (a field of 16 bits that counts from zero).
const BLOCKS_MAX: u32 = 1 << 16;

/// A namespace of a controller, as it was when it was identified.
#[derive(Clone, Debug)]
pub struct Namespace {
    id: u32,
    controller: u64,
    block_shift: u32,
    /// Most blocks of one command.
    blocks_max: u32,
    blocks: u64,
    atomic_write: u32,
    /// Zero if there are no borders.
    optimal_boundary: u32,
    data: Arc<NamespaceData>,
}

impl Namespace {
    /// The namespace that `data` describes, of the controller with this number.
    pub(crate) fn new(
        id: u32,
        controller: u64,
        controller_data: &ControllerData,
        data: NamespaceData,
        transfer_max: u64,
    ) -> Result<Self> {
        let format = data.block_format();
        let unsupported = |what: String| {
            let context = format!("namespace {id} has {what}");
            Err(Error::new(ErrorKind::Unsupported, context))
        };
        if !(9..=16).contains(&format.block_shift) {
            return unsupported(format!("blocks of 2^{} bytes", format.block_shift));
        }
        if format.metadata != 0 {
            return unsupported(format!("{} bytes of metadata a block", format.metadata));
        }
        if data.blocks.leading_zeros() < u32::from(format.block_shift) {
            return unsupported(format!("{} blocks, beyond 2^64 bytes", data.blocks));
        }
        let atomic = data
            .atomic_write_power_fail
            .unwrap_or(controller_data.atomic_write_power_fail);
        let single = u32::try_from(transfer_max >> format.block_shift).unwrap_or(u32::MAX);
        // `atomic_boundary` cannot express boundaries that do not begin at block 0.
        let atomic_write = match (data.atomic_boundary, data.atomic_offset) {
            (1.., 1..) => 1,
            _ => (u32::from(atomic) + 1).min(single),
        };
        Ok(Self {
            id,
            controller,
            block_shift: u32::from(format.block_shift),
            blocks_max: single.min(BLOCKS_MAX),
            blocks: data.blocks,
            atomic_write: atomic_write.max(1),
            optimal_boundary: u32::from(data.optimal_boundary),
            data: Arc::new(data),
        })
    }

    /// Namespace id, from 1 to 2^32 - 2.
    #[must_use]
    pub const fn id(&self) -> u32 {
        self.id
    }

    /// The most blocks of one command that moves data.
    #[inline]
    pub(crate) const fn blocks_max(&self) -> u32 {
        self.blocks_max
    }

    /// Number of blocks in `bytes`; none if they are not whole blocks.
    #[inline]
    pub(crate) fn whole_blocks(&self, bytes: usize) -> Option<u32> {
        let blocks = u32::try_from(bytes >> self.block_shift).ok()?;
        ((blocks as usize) << self.block_shift == bytes).then_some(blocks)
    }

    /// Whether a read, or a write, of `blocks` blocks from `lba` on is split at a border.
    #[inline]
    pub(crate) fn has_border_within(&self, lba: u64, blocks: u32, is_write: bool) -> bool {
        if self.optimal_boundary == 0 || is_write && blocks <= self.atomic_write {
            return false;
        }
        lba % u64::from(self.optimal_boundary) + u64::from(blocks)
            > u64::from(self.optimal_boundary)
    }

    #[inline]
    pub(crate) const fn controller(&self) -> u64 {
        self.controller
    }

    /// Bytes of a block: a power of two from 512 to 65,536.
    #[must_use]
    pub const fn block_size(&self) -> u32 {
        1 << self.block_shift
    }

    /// Binary logarithm of [`Namespace::block_size`], from 9 to 16.
    #[must_use]
    pub const fn block_shift(&self) -> u32 {
        self.block_shift
    }

    /// Size of the namespace in blocks.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Size of the namespace in bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.blocks << self.block_shift
    }

    /// Largest write, in blocks, that a power failure never tears (AWUPF, NAWUPF; at most one command), unless it
    /// crosses a multiple of [`Namespace::atomic_boundary`].
    #[must_use]
    pub const fn atomic_write(&self) -> u32 {
        self.atomic_write
    }

    /// Blocks between borders that an atomic write must not cross; none if there are no borders.
    #[must_use]
    pub fn atomic_boundary(&self) -> Option<u32> {
        (self.data.atomic_boundary > 0).then(|| u32::from(self.data.atomic_boundary) + 1)
    }

    /// Blocks between borders at which longer requests are split; none if there are no borders (NOIOB).
    #[must_use]
    pub fn optimal_boundary(&self) -> Option<u32> {
        (self.optimal_boundary > 0).then_some(self.optimal_boundary)
    }

    /// Whether deallocated blocks read as zero (DLFEAT).
    #[must_use]
    pub fn deallocated_reads_zero(&self) -> bool {
        self.data.deallocated == 1
    }

    /// Whether zeroes may be written by deallocating (DLFEAT).
    #[must_use]
    pub fn zeroes_deallocate(&self) -> bool {
        self.data.zeroes_deallocate
    }

    /// Identify Namespace data, as read at the open.
    #[must_use]
    pub fn data(&self) -> &NamespaceData {
        &self.data
    }
}
