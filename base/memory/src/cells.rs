//! The ring of a size class.

use millrace_sync::ring::{Consumer, HeapCells, Multi, Producer, RingCells, RingWord};
use millrace_sync::{Native, Platform, Shared};

use crate::mapping::Mapping;

/// Cells for the numbers of a class's free blocks. They own a share of the memory that the blocks lie in, so
/// that one reference count, the ring's, keeps both for as long as a buffer may have to return its block.
#[derive(Debug)]
pub(crate) struct ClassCells {
    free: HeapCells<u32, Native>,
    /// Owned to keep the memory mapped.
    _mapping: Shared<Mapping>,
}

/// Consumer end of a class's ring: takes free blocks.
pub(crate) type Taker = Consumer<ClassCells, Multi>;
/// Producer end of a class's ring: returns blocks.
pub(crate) type Returner = Producer<ClassCells, Multi>;

impl ClassCells {
    pub(crate) fn new(count: usize, mapping: Shared<Mapping>) -> Self {
        Self {
            free: HeapCells::new(count),
            _mapping: mapping,
        }
    }
}

// SAFETY: everything is asked of the heap's cells, which keep the promise.
unsafe impl RingCells for ClassCells {
    type Item = u32;
    type Platform = Native;

    #[inline]
    fn capacity(&self) -> u64 {
        self.free.capacity()
    }

    #[inline]
    fn word(&self, word: RingWord) -> &<Native as Platform>::Word {
        self.free.word(word)
    }

    #[inline]
    unsafe fn put(&self, position: u64, item: u32) {
        // SAFETY: the caller guarantees exclusive access to the slot of this position, as `put` requires.
        unsafe { self.free.put(position, item) };
    }

    #[inline]
    unsafe fn take(&self, position: u64) -> u32 {
        // SAFETY: the caller guarantees exclusive access to the slot of this position, as `take` requires.
        unsafe { self.free.take(position) }
    }
}
