//! Words of four bytes that threads and a device share.

use crate::{DeviceMemory, Iova};

/// Memory that several threads and a device use at the same time, in words of four bytes alone: shadow
/// doorbells.
///
/// # Panics
/// All accesses do if the word does not lie within, or not at a multiple of four.
#[derive(Debug)]
pub struct DeviceWords(DeviceMemory);

// SAFETY: `DeviceMemory` belongs to one thread because its words may be of different sizes. Here all accesses
// are atomic and of four bytes, and the memory cannot be had back.
unsafe impl Sync for DeviceWords {}

impl DeviceWords {
    /// The words of `memory`.
    #[must_use]
    pub const fn new(memory: DeviceMemory) -> Self {
        Self(memory)
    }

    /// Where the first byte is for the devices.
    #[must_use]
    #[inline]
    pub const fn iova(&self) -> Iova {
        self.0.iova()
    }

    /// How many bytes there are.
    #[must_use]
    #[inline]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The four bytes from `offset` on, relaxed.
    #[must_use]
    #[inline]
    pub fn load(&self, offset: usize) -> u32 {
        self.0.load_u32(offset)
    }

    /// Changes the four bytes from `offset` on, relaxed.
    #[inline]
    pub fn store(&self, offset: usize, value: u32) {
        self.0.store_u32(offset, value);
    }
}
