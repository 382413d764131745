//! The layout of a window between two hosts.

use std::ops::Range;

use millrace_window::LINE;

use crate::{Error, ErrorKind, Result, Side};

/// The division of a window into partitions. Both sides must use the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionGeometry {
    /// The count of partitions: 1 to 4,096.
    pub partitions: u16,
    /// The lines of 64 bytes of each ring: a power of two from 64 to 65,536.
    pub ring_lines: u32,
}

/// Bytes of an area before its ring.
pub(super) const RING: usize = 4096;
/// Offsets of the words of an area.
pub(super) const GREETING: usize = 0;
pub(super) const INCARNATION: usize = 128;
pub(super) const ACKNOWLEDGED: usize = 256;
pub(super) const BEAT: usize = 384;
pub(super) const RETURNED: usize = 512;
pub(super) const WAITS: usize = 640;

/// The first four bytes of every area.
const MAGIC: u64 = u32::from_le_bytes(*b"MRPT") as u64;
/// The version number of the binary layout.
pub const PARTITION_VERSION: u8 = 2;
/// The flag of checksums in the greeting.
const CHECKED: u64 = 0x80;

impl PartitionGeometry {
    /// Checks the limits of the geometry.
    ///
    /// # Errors
    /// [`ErrorKind::Geometry`] if a value is out of range.
    pub const fn check(self) -> Result<()> {
        let lines = self.ring_lines;
        let is_ring = lines.is_power_of_two() && 64 <= lines && lines <= 65_536;
        if is_ring && 1 <= self.partitions && self.partitions <= 4096 {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Geometry,
            "1 to 4,096 partitions of rings of 64 to 65,536 lines, a power of two",
        ))
    }

    /// Bytes of an area: one direction of one partition.
    #[must_use]
    pub const fn area(self) -> usize {
        RING + self.ring_lines as usize * LINE
    }

    /// Bytes of one direction: the window that a side stores to, if each direction has its own.
    #[must_use]
    pub const fn direction(self) -> usize {
        self.area() * self.partitions as usize
    }

    /// Bytes of a window for both directions.
    #[must_use]
    pub const fn size(self) -> usize {
        2 * self.direction()
    }

    /// The byte range of the area that `side` stores to, in partition `index` of a window for both directions.
    #[must_use]
    pub const fn range(self, side: Side, index: u16) -> Range<usize> {
        let first = match side {
            Side::Connecting => 0,
            Side::Accepting => self.direction(),
        };
        let start = first + index as usize * self.area();
        start..start + self.area()
    }

    /// The word that announces a side's layout and settings.
    pub(super) const fn greeting(self, index: u16, has_checks: bool) -> u64 {
        let shape = self.ring_lines.trailing_zeros() as u64 | if has_checks { CHECKED } else { 0 };
        MAGIC | (PARTITION_VERSION as u64) << 32 | shape << 40 | (index as u64) << 48
    }
}
