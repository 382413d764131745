//! Words of four bytes that threads and a device share.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{DeviceMemory, Iova};

/// Memory that several threads and a device access at the same time, in words of four bytes only: shadow doorbells.
///
/// # Panics
/// All accesses panic if the word does not lie within the memory, or is not at a multiple of four.
#[derive(Debug)]
pub struct DeviceWords(DeviceMemory);

// SAFETY: `DeviceMemory` belongs to one thread because its words may be of different sizes. Here all accesses
// are atomic and of four bytes, and the memory cannot be had back.
unsafe impl Sync for DeviceWords {}

impl DeviceWords {
    /// The words of `memory`, which must not be accessed in another way.
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

    /// Length of the memory in bytes.
    #[must_use]
    #[inline]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the memory has a length of zero bytes.
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

    /// One of the words, to be used again and again: the four bytes from `offset` on.
    #[must_use]
    pub fn word(self: &Arc<Self>, offset: usize) -> DeviceWord {
        DeviceWord {
            word: NonNull::from(self.0.word_u32(offset)),
            _words: Arc::clone(self),
        }
    }
}

/// One of [`DeviceWords`], found once and then used without a look-up.
pub struct DeviceWord {
    word: NonNull<AtomicU32>,
    _words: Arc<DeviceWords>,
}

// SAFETY: the word stays allocated through the clone of the memory that this value owns, in any thread.
unsafe impl Send for DeviceWord {}

// SAFETY: all accesses are atomic and of four bytes, so concurrent accesses are no data race.
unsafe impl Sync for DeviceWord {}

impl DeviceWord {
    /// Atomic load of the word, relaxed.
    #[must_use]
    #[inline]
    pub fn load(&self) -> u32 {
        u32::from_le(self.word().load(Ordering::Relaxed))
    }

    /// Atomic store to the word, relaxed.
    #[inline]
    pub fn store(&self, value: u32) {
        self.word().store(value.to_le(), Ordering::Relaxed);
    }

    #[inline]
    fn word(&self) -> &AtomicU32 {
        // SAFETY: the pointer was made from a reference into memory that lives as long as the clone held here, and all
        // accesses are atomic.
        unsafe { self.word.as_ref() }
    }
}

impl fmt::Debug for DeviceWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DeviceWord").field(&self.load()).finish()
    }
}
