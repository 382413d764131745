//! Memory that a device changes while it is looked at.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::{Buffer, Iova, SizeClass};

/// Memory that its owner and a device access at the same time: queues.
///
/// No reference to its bytes exists. Each access is one load or store of a whole word, relaxed: in which
/// order the device sees them is for the driver's barriers. Words are little-endian in memory, as devices
/// have them, and numbers here.
///
/// It belongs to one thread at a time, as words of different sizes must not be accessed at the same time.
///
/// # Invariant
/// The first byte lies at a multiple of [`DeviceMemory::ALIGN`] in this process, and so does a word at a
/// multiple of its size.
///
/// # Panics
/// All accesses do if the word does not lie within, or not at a multiple of its size: offsets are never a
/// device's to choose.
pub struct DeviceMemory {
    buffer: Buffer,
    /// Makes the type `Send` and not `Sync`.
    one_thread: PhantomData<Cell<()>>,
}

/// Blocks begin at a multiple of their size or of a page's.
const _: () = assert!(SizeClass::SIZE_MIN % DeviceMemory::ALIGN == 0);

impl DeviceMemory {
    /// The largest word's size in bytes.
    pub const ALIGN: usize = 8;

    pub(crate) fn new(buffer: Buffer) -> Self {
        assert!(
            buffer.address().addr().get() % Self::ALIGN == 0,
            "device memory begins at a multiple of {} bytes; bytes {:?} of a block do not",
            Self::ALIGN,
            buffer.range()
        );
        // SAFETY: the block has this many bytes from here on, and the buffer owns them; no device knows the address
        // yet.
        unsafe {
            buffer
                .address()
                .write_bytes(0, buffer.capacity() - buffer.range().start)
        };
        Self {
            buffer,
            one_thread: PhantomData,
        }
    }

    /// Where the first byte is for the devices. The others follow.
    #[must_use]
    #[inline]
    pub const fn iova(&self) -> Iova {
        self.buffer.iova()
    }

    /// Length of the memory in bytes.
    #[must_use]
    #[inline]
    pub const fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Whether the memory has a length of zero bytes.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// The four bytes from `offset` on.
    #[must_use]
    #[inline]
    pub fn load_u32(&self, offset: usize) -> u32 {
        u32::from_le(self.word_u32(offset).load(Ordering::Relaxed))
    }

    /// Changes the four bytes from `offset` on.
    #[inline]
    pub fn store_u32(&self, offset: usize, value: u32) {
        let word = self.word_u32(offset);
        word.store(value.to_le(), Ordering::Relaxed);
    }

    /// The eight bytes from `offset` on.
    #[must_use]
    #[inline]
    pub fn load_u64(&self, offset: usize) -> u64 {
        u64::from_le(self.word_u64(offset).load(Ordering::Relaxed))
    }

    /// Changes the eight bytes from `offset` on.
    #[inline]
    pub fn store_u64(&self, offset: usize, value: u64) {
        let word = self.word_u64(offset);
        word.store(value.to_le(), Ordering::Relaxed);
    }

    /// Changes the words from `offset` on, one after the other.
    #[inline]
    pub fn copy_in(&self, offset: usize, words: &[u64]) {
        self.check(offset, 8, size_of_val(words));
        for (index, value) in words.iter().enumerate() {
            // SAFETY: checked above for all words.
            let word = unsafe { self.buffer.address().add(offset + index * 8) };
            // SAFETY: the word lies within the block, at a multiple of 8 (the invariant, and the check), and
            // is accessed by atomic operations alone for as long as this memory exists.
            let word = unsafe { AtomicU64::from_ptr(word.cast().as_ptr()) };
            word.store(value.to_le(), Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn word_u32(&self, offset: usize) -> &AtomicU32 {
        self.check(offset, 4, 4);
        // SAFETY: checked above.
        let word = unsafe { self.buffer.address().add(offset) };
        // SAFETY: the word lies within the block, at a multiple of 4 (the invariant, and the check), and is
        // accessed by atomic operations alone for as long as this memory exists.
        unsafe { AtomicU32::from_ptr(word.cast().as_ptr()) }
    }

    #[inline]
    fn word_u64(&self, offset: usize) -> &AtomicU64 {
        self.check(offset, 8, 8);
        // SAFETY: checked above.
        let word = unsafe { self.buffer.address().add(offset) };
        // SAFETY: the word lies within the block, at a multiple of 8 (the invariant, and the check), and is
        // accessed by atomic operations alone for as long as this memory exists.
        unsafe { AtomicU64::from_ptr(word.cast().as_ptr()) }
    }

    #[inline]
    fn check(&self, offset: usize, align: usize, size: usize) {
        let end = offset.checked_add(size);
        assert!(
            offset % align == 0 && end.is_some_and(|end| end <= self.len()),
            "a word lies within the memory, at a multiple of its size"
        );
    }
}

impl std::fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DeviceMemory").field(&self.buffer).finish()
    }
}
