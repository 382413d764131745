//! Volume key: seed of all checksums of a volume.

use std::fmt;

/// Seed of all checksums of a volume, so that blocks that another volume left on the device never match.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct VolumeKey(u32);

impl VolumeKey {
    /// The key of the volume with this identifier.
    pub(crate) fn new(uuid: &[u8; 16]) -> Self {
        Self(millrace_checksum::crc32c(uuid))
    }

    /// The checksum of `parts`, one after the other.
    pub(crate) fn checksum(self, parts: &[&[u8]]) -> u32 {
        parts
            .iter()
            .fold(self.0, |crc, part| millrace_checksum::extend(crc, part))
    }
}

impl fmt::Debug for VolumeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VolumeKey({:08x})", self.0)
    }
}
