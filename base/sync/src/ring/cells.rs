//! Where a ring keeps its words and its items.

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::MaybeUninit;

use crate::{End, Platform, Word};

/// Name of one of the four index words of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingWord {
    /// Up to where producers have claimed.
    ProducerHead,
    /// Up to where producers are done.
    ProducerTail,
    /// Up to where consumers have claimed.
    ConsumerHead,
    /// Up to where consumers are done.
    ConsumerTail,
}

impl RingWord {
    /// All words of a ring, in the order of their declaration.
    pub const ALL: [Self; 4] = [
        Self::ProducerHead,
        Self::ProducerTail,
        Self::ConsumerHead,
        Self::ConsumerTail,
    ];

    /// Up to where those at `end` have claimed.
    pub(super) const fn head(end: End) -> Self {
        match end {
            End::Producer => Self::ProducerHead,
            End::Consumer => Self::ConsumerHead,
        }
    }

    /// Up to where those at `end` are done.
    pub(super) const fn tail(end: End) -> Self {
        match end {
            End::Producer => Self::ProducerTail,
            End::Consumer => Self::ConsumerTail,
        }
    }
}

/// Memory for a ring: on the heap, of a checker, or mapped.
///
/// # Safety
/// - `word` returns the same word for the same name every time and different ones for different names. The
///   words of new cells are zero, and once a ring is made on the cells only the ring changes them.
/// - `capacity` never changes; the slots of `capacity` consecutive positions are different ones, and a
///   position's slot is that of the position `capacity` later.
/// - `put` and `take` move the item and do nothing else to it: an item put at a position is the item taken
///   there. They do not panic: between a claim and its publication all other threads at the same end wait.
pub unsafe trait RingCells: Send + Sync {
    /// What the slots hold.
    type Item: Send;
    /// What the words are.
    type Platform: Platform;

    /// How many slots there are: a power of two.
    fn capacity(&self) -> u64;

    /// One of the words.
    fn word(&self, word: RingWord) -> &<Self::Platform as Platform>::Word;

    /// Writes the slot of `position`.
    ///
    /// # Safety
    /// The caller has claimed the position as a producer and has not published it.
    unsafe fn put(&self, position: u64, item: Self::Item);

    /// Moves the item out of the slot of `position`.
    ///
    /// # Safety
    /// The caller has claimed the position as a consumer, has not published that, and takes it once.
    unsafe fn take(&self, position: u64) -> Self::Item;
}

/// A word with two cache lines of its own: processors fetch them in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Apart<W>(W);

/// Ring cells on the heap of one process; each index word has two cache lines of its own.
pub struct HeapCells<T, P: Platform> {
    producer_head: Apart<P::Word>,
    producer_tail: Apart<P::Word>,
    consumer_head: Apart<P::Word>,
    consumer_tail: Apart<P::Word>,
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
    mask: u64,
}

// SAFETY: slots are accessed through `put` and `take` only, whose callers have exclusive access; an item moves from the
// thread that puts it to the thread that takes it, which `T: Send` allows.
unsafe impl<T: Send, P: Platform> Sync for HeapCells<T, P> {}

// SAFETY: the cells own their items, and `T: Send`.
unsafe impl<T: Send, P: Platform> Send for HeapCells<T, P> {}

impl<T, P: Platform> HeapCells<T, P> {
    /// Cells for `capacity` items, rounded up to a power of two.
    ///
    /// # Panics
    /// If `capacity` is zero, or so large that its slots cannot be allocated.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        assert!(capacity > 0, "a ring has at least one slot");
        let capacity = capacity
            .checked_next_power_of_two()
            .expect("the capacity can be rounded up to a power of two");
        let word = || Apart(P::Word::new(0));
        Self {
            producer_head: word(),
            producer_tail: word(),
            consumer_head: word(),
            consumer_tail: word(),
            slots: (0..capacity)
                .map(|_| UnsafeCell::new(MaybeUninit::uninit()))
                .collect(),
            mask: capacity as u64 - 1,
        }
    }

    fn slot(&self, position: u64) -> *mut MaybeUninit<T> {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the mask is less than the number of slots, which is a usize"
        )]
        let index = (position & self.mask) as usize;
        self.slots[index].get()
    }
}

// SAFETY: four fields are four words, initialised to zero; the ring detects changes made before it owns the cells, and
// owns them afterwards. There are `mask + 1` slots, a power of two, and the index is the position modulo that number,
// so it is always in range.
unsafe impl<T: Send, P: Platform> RingCells for HeapCells<T, P> {
    type Item = T;
    type Platform = P;

    fn capacity(&self) -> u64 {
        self.mask + 1
    }

    #[inline]
    fn word(&self, word: RingWord) -> &P::Word {
        match word {
            RingWord::ProducerHead => &self.producer_head.0,
            RingWord::ProducerTail => &self.producer_tail.0,
            RingWord::ConsumerHead => &self.consumer_head.0,
            RingWord::ConsumerTail => &self.consumer_tail.0,
        }
    }

    #[inline]
    unsafe fn put(&self, position: u64, item: T) {
        let slot = self.slot(position);
        // SAFETY: the pointer is into `slots`, and the caller has the slot to itself.
        unsafe { slot.write(MaybeUninit::new(item)) };
    }

    #[inline]
    unsafe fn take(&self, position: u64) -> T {
        let slot = self.slot(position);
        // SAFETY: the pointer is into `slots`, and the caller has the slot to itself.
        let slot = unsafe { slot.read() };
        // SAFETY: the position was published by a producer, which wrote the slot; it is taken once.
        unsafe { slot.assume_init() }
    }
}

impl<T, P: Platform> fmt::Debug for HeapCells<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeapCells")
            .field("producer_tail", &self.producer_tail.0)
            .field("consumer_tail", &self.consumer_tail.0)
            .field("capacity", &(self.mask + 1))
            .finish_non_exhaustive()
    }
}
