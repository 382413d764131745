//! Layout of a volume on its device.
//!
//! ```text
//! unit 0                          superblock, first copy
//! 1 .. 1 + journal units          journal
//! 1 + journal units .. last       groups of as many units each; the last one may be short
//! last                            superblock, second copy
//! ```

use std::ops::Range;

use super::data_layout::DataLayout;
use super::extent::Extent;
use super::ids::Timestamp;
use crate::error::{Error, ErrorKind, Result};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Smallest unit, in bytes.
pub(crate) const UNIT_BYTES_MIN: u32 = 4096;
/// Smallest volume, in bytes.
pub(crate) const VOLUME_BYTES_MIN: u64 = MIB;
/// Most units of a volume.
pub(crate) const UNITS_MAX: u64 = 1 << 32;
/// Smallest journal, in units.
const JOURNAL_UNITS_MIN: u64 = 16;
/// Largest journal, in bytes.
const JOURNAL_BYTES_MAX: u64 = GIB;
/// Least units that a volume must leave for files.
const DATA_UNITS_MIN: u64 = 16;
/// Approximate number of groups on a large device.
const GROUPS_WANTED: u64 = 64;

/// Options of [`Volume::format`](crate::Volume::format): identity, journal size and checksums of a new volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatOptions {
    /// Unique identifier of the volume; it distinguishes its blocks from those that an earlier volume left on the
    /// device.
    pub uuid: [u8; 16],
    /// Label of at most 64 bytes, for display.
    pub label: String,
    /// Time of the formatting, in milliseconds since 1970, recorded in the superblock.
    pub created: Timestamp,
    /// Bytes of the journal, from 16 units to 1 GiB; by default 1/64 of the device, but between 256 KiB and 64 MiB.
    pub journal_bytes: Option<u64>,
    /// Whether blocks of file data end in a checksum of 8 bytes, as metadata always does. A damaged block then fails to
    /// read instead of returning wrong bytes.
    pub data_checksums: bool,
}

impl FormatOptions {
    /// Options without a label and without data checksums, with the default journal size.
    #[must_use]
    pub const fn new(uuid: [u8; 16], created: Timestamp) -> Self {
        Self {
            uuid,
            label: String::new(),
            created,
            journal_bytes: None,
            data_checksums: false,
        }
    }
}

/// Sizes and positions on a device, constant for the life of the volume.
///
/// # Invariants
/// A block is a power of two from 512 to 65,536 bytes; a unit is a block or 4 KiB, whichever is
/// larger. There are at most 2^32 units, and at least one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    block_bytes: u32,
    blocks: u64,
    journal_units: u64,
    group_units: u32,
    data_checksums: bool,
}

impl Layout {
    /// A layout for a device.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if it has blocks of another size, or too many;
    /// [`ErrorKind::NoSpace`] if it is too small; [`ErrorKind::Invalid`] for a journal that is too small or
    /// too large.
    pub(crate) fn plan(block_bytes: u32, blocks: u64, options: &FormatOptions) -> Result<Self> {
        let unit_bytes = u64::from(unit_bytes_for(block_bytes)?);
        let bytes = blocks.saturating_mul(u64::from(block_bytes));
        let journal_bytes_min = (256 * KIB).max(JOURNAL_UNITS_MIN * unit_bytes);
        let journal_bytes = match options.journal_bytes {
            None => (bytes / 64).clamp(journal_bytes_min, 64 * MIB),
            Some(wanted) if wanted <= bytes / 2 => wanted,
            Some(wanted) => {
                return Err(Error::new(
                    ErrorKind::Invalid,
                    format!("a journal of {wanted} bytes on a device of {bytes}"),
                ));
            }
        };
        let journal_units = journal_bytes / unit_bytes;
        let data_bytes = bytes.saturating_sub((journal_units + 2) * unit_bytes);
        let wanted = (data_bytes / GROUPS_WANTED).clamp(MIB, GIB) / unit_bytes;
        let group_units = u32::try_from(1 << wanted.ilog2()).expect("1 GiB at most, 4 KiB a unit");
        let layout = Self::new(block_bytes, blocks, journal_units, group_units)?;
        Ok(layout.with_data_checksums(options.data_checksums))
    }

    /// A layout of given sizes, without checksums of data.
    ///
    /// # Errors
    /// As [`Layout::plan`], with [`ErrorKind::Invalid`] for groups that are too small, too large, or
    /// no power of two.
    pub(crate) fn new(
        block_bytes: u32,
        blocks: u64,
        journal_units: u64,
        group_units: u32,
    ) -> Result<Self> {
        let unit_bytes = u64::from(unit_bytes_for(block_bytes)?);
        let bytes = blocks.saturating_mul(u64::from(block_bytes));
        let units = bytes / unit_bytes;
        let error = |kind, context: String| Err(Error::new(kind, context));
        if blocks > u64::MAX / u64::from(block_bytes) || units > UNITS_MAX {
            return error(
                ErrorKind::Unsupported,
                format!("a device of {blocks} blocks of {block_bytes} bytes: 2^32 units at most"),
            );
        }
        let journal_bytes = journal_units.saturating_mul(unit_bytes);
        if journal_units < JOURNAL_UNITS_MIN || journal_bytes > JOURNAL_BYTES_MAX {
            return error(
                ErrorKind::Invalid,
                format!("a journal of {journal_bytes} bytes: {JOURNAL_UNITS_MIN} units to 1 GiB"),
            );
        }
        if bytes < VOLUME_BYTES_MIN || units < journal_units + 2 + DATA_UNITS_MIN {
            return error(
                ErrorKind::NoSpace,
                format!(
                    "a device of {bytes} bytes is too small: {} at least",
                    ((journal_units + 2 + DATA_UNITS_MIN) * unit_bytes).max(VOLUME_BYTES_MIN)
                ),
            );
        }
        let group_bytes = u64::from(group_units) * unit_bytes;
        if !group_units.is_power_of_two() || !(MIB..=GIB).contains(&group_bytes) {
            return error(
                ErrorKind::Invalid,
                format!("groups of {group_bytes} bytes: a power of two from 1 MiB to 1 GiB"),
            );
        }
        Ok(Self {
            block_bytes,
            blocks,
            journal_units,
            group_units,
            data_checksums: false,
        })
    }

    /// This layout with or without data checksums.
    pub(crate) const fn with_data_checksums(self, data_checksums: bool) -> Self {
        Self {
            data_checksums,
            ..self
        }
    }

    /// Whether blocks of file data end in a checksum.
    pub(crate) const fn data_checksums(&self) -> bool {
        self.data_checksums
    }

    /// Layout of file data in blocks.
    pub(crate) const fn file_data(&self) -> DataLayout {
        DataLayout::new(self)
    }

    /// Bytes of a logical block.
    pub(crate) const fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// Blocks of the device when the volume was made.
    pub(crate) const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Bytes of a unit.
    pub(crate) const fn unit_bytes(&self) -> u32 {
        if self.block_bytes > UNIT_BYTES_MIN {
            self.block_bytes
        } else {
            UNIT_BYTES_MIN
        }
    }

    /// Blocks of a unit.
    pub(crate) const fn unit_blocks(&self) -> u32 {
        self.unit_bytes() / self.block_bytes
    }

    /// The first block of a unit.
    pub(crate) const fn block_of(&self, unit: u64) -> u64 {
        unit * self.unit_blocks() as u64
    }

    /// Units of the volume.
    pub(crate) const fn units(&self) -> u64 {
        self.blocks / self.unit_blocks() as u64
    }

    /// Number of units for `bytes` bytes of metadata.
    pub(crate) const fn units_of(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.unit_bytes() as u64)
    }

    /// The units of the two superblocks.
    pub(crate) const fn superblocks(&self) -> [u64; 2] {
        superblock_units(self.block_bytes, self.blocks)
    }

    /// The units of the journal.
    pub(crate) const fn journal(&self) -> Range<u64> {
        1..1 + self.journal_units
    }

    /// Units of the journal.
    pub(crate) const fn journal_units(&self) -> u64 {
        self.journal_units
    }

    /// Blocks of the journal.
    pub(crate) const fn journal_blocks(&self) -> u64 {
        self.block_of(self.journal_units)
    }

    /// The units of all groups.
    pub(crate) const fn data(&self) -> Range<u64> {
        1 + self.journal_units..self.units() - 1
    }

    /// Units of a group; the last one may have fewer.
    pub(crate) const fn group_units(&self) -> u32 {
        self.group_units
    }

    /// How many groups there are.
    pub(crate) const fn group_count(&self) -> u64 {
        let data = self.data();
        (data.end - data.start).div_ceil(self.group_units as u64)
    }

    /// Group of a unit; none if it is outside of all groups.
    pub(crate) fn group_of(&self, unit: u64) -> Option<u64> {
        let data = self.data();
        data.contains(&unit)
            .then(|| (unit - data.start) / u64::from(self.group_units))
    }

    /// The units of a group; none if there is no such group.
    pub(crate) fn group(&self, index: u64) -> Range<u64> {
        let data = self.data();
        let start = index
            .saturating_mul(u64::from(self.group_units))
            .saturating_add(data.start)
            .min(data.end);
        let end = start
            .saturating_add(u64::from(self.group_units))
            .min(data.end);
        start..end
    }

    /// The groups in turn.
    pub(crate) fn groups(&self) -> impl Iterator<Item = Range<u64>> + use<> {
        let layout = *self;
        (0..self.group_count()).map(move |index| layout.group(index))
    }

    /// Whether an extent lies in one group, and is not empty.
    pub(crate) fn holds(&self, extent: Extent) -> bool {
        extent.units > 0
            && self
                .group_of(extent.start)
                .is_some_and(|group| extent.end() <= self.group(group).end)
    }

    /// Checks that a device fits the volume.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if its blocks are larger, [`ErrorKind::Corruption`] if it ends too early.
    pub(crate) fn check_device(&self, block_bytes: u32, blocks: u64) -> Result<()> {
        if block_bytes > self.block_bytes {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "the device has blocks of {block_bytes} bytes, the volume was made for {}",
                    self.block_bytes
                ),
            ));
        }
        let bytes = blocks.saturating_mul(u64::from(block_bytes));
        let volume_bytes = self.blocks * u64::from(self.block_bytes);
        if bytes < volume_bytes {
            return Err(Error::new(
                ErrorKind::Corruption,
                format!("the volume has {volume_bytes} bytes, the device only {bytes}"),
            ));
        }
        Ok(())
    }
}

/// Units of the superblocks on a device before its layout is known: the first, and the last whole unit.
pub(crate) const fn superblock_units(block_bytes: u32, blocks: u64) -> [u64; 2] {
    let unit_blocks = if block_bytes >= UNIT_BYTES_MIN {
        1
    } else {
        UNIT_BYTES_MIN / block_bytes
    };
    [0, (blocks / unit_blocks as u64).saturating_sub(1)]
}

/// Bytes of a unit on a device with blocks of `block_bytes`.
///
/// # Errors
/// [`ErrorKind::Unsupported`] if no volume can have blocks of this size.
pub(crate) fn unit_bytes_for(block_bytes: u32) -> Result<u32> {
    if block_bytes.is_power_of_two() && (512..=65_536).contains(&block_bytes) {
        return Ok(block_bytes.max(UNIT_BYTES_MIN));
    }
    Err(Error::new(
        ErrorKind::Unsupported,
        format!("blocks of {block_bytes} bytes"),
    ))
}
