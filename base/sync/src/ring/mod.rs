//! Bounded rings between threads.
//!
//! # Protocol
//! Positions count items since the ring was made; slot `position % capacity` holds the item. Each side has
//! a head, up to which slots are claimed, and a tail, up to which it is done:
//!
//! ```text
//!            free        |  items that may be taken  |  being written  |  free
//!   ---------------------+---------------------------+-----------------+--------
//!   consumer head  consumer tail               producer tail     producer head
//!   (with one consumer head and tail are one; with one producer likewise)
//! ```
//! A producer that is alone writes the slots behind its tail and moves the tail. Producers that share a
//! side claim slots first, by moving the head with a compare-and-exchange, write them, wait until all
//! earlier claims are published, and move the tail. Consumers do the same.
//!
//! This is the algorithm of DPDK's ring, with its barriers written as the orderings of C11.
//!
//! # Ownership
//! | what | who changes it | who reads it |
//! |---|---|---|
//! | `ProducerHead` | any producer, by compare-and-exchange; unused with one producer | producers |
//! | `ProducerTail` | the producer whose claim comes next | producers, consumers |
//! | `ConsumerHead` | any consumer, by compare-and-exchange; unused with one consumer | consumers |
//! | `ConsumerTail` | the consumer whose claim comes next | consumers, producers |
//! | slots from consumer tail to producer tail | the consumer that has claimed them | the same |
//! | all other slots | the producer that has claimed them | nobody |
//!
//! # Invariants
//! 1. consumer tail <= consumer head <= producer tail <= producer head <= consumer tail + capacity.
//! 2. Every position is claimed by one producer and later by one consumer.
//! 3. A slot is read after it was written for this position and before it is written for the next.
//!
//! # Progress
//! A look into an empty or full ring is wait-free: two loads. One producer or consumer alone is wait-free.
//! Those that share a side are not even lock-free: one that is descheduled between claim and publication
//! holds up the others' publications, not their claims. They spin, then yield.
//!
//! # Cost
//! One item through a ring of one producer and one consumer moves one cache line each way; each side
//! remembers how far the other had got and looks again only when that is used up.

mod cells;
mod consumer;
mod producer;

use std::fmt;
use std::marker::PhantomData;

pub use cells::{HeapCells, RingCells, RingWord};
pub use consumer::Consumer;
pub use producer::Producer;

use crate::{Native, Platform, Shared, Site, Word};

/// How many handles a side has.
pub trait Side: fmt::Debug + Send + Sync + 'static {
    /// Whether there may be more than one.
    const SHARED: bool;
    /// What a handle remembers: with one handle how far both sides are, otherwise nothing.
    type Progress: Progress;
}

/// How far a handle that is alone has got, and how far the other side had when it was last looked at.
pub trait Progress: Default + fmt::Debug + Send + 'static {
    /// Both.
    fn recall(&self) -> (u64, u64);
    /// Remembers both.
    fn remember(&mut self, own: u64, other: u64);
}

impl Progress for (u64, u64) {
    #[inline]
    fn recall(&self) -> (u64, u64) {
        *self
    }

    #[inline]
    fn remember(&mut self, own: u64, other: u64) {
        *self = (own, other);
    }
}

impl Progress for () {
    #[inline]
    fn recall(&self) -> (u64, u64) {
        (0, 0)
    }

    #[inline]
    fn remember(&mut self, _: u64, _: u64) {}
}

/// One handle.
#[derive(Clone, Copy, Debug)]
pub struct Single;

/// Any number of handles, made by cloning.
#[derive(Clone, Copy, Debug)]
pub struct Multi;

impl Side for Single {
    const SHARED: bool = false;
    type Progress = (u64, u64);
}

impl Side for Multi {
    const SHARED: bool = true;
    type Progress = ();
}

/// The two ends of a ring on the heap.
pub type Ends<T, P, C> = (
    Producer<HeapCells<T, Native>, P>,
    Consumer<HeapCells<T, Native>, C>,
);

/// A ring for `capacity` items, rounded up to a power of two, on the machine's own atomics.
///
/// # Panics
/// If `capacity` is zero, or so large that its slots cannot be allocated.
#[must_use]
pub fn bounded<T: Send, P: Side, C: Side>(capacity: usize) -> Ends<T, P, C> {
    on_cells(HeapCells::new(capacity))
}

/// A ring on cells of one's own, which are as new: all words zero, no items.
#[must_use]
pub fn on_cells<Cells: RingCells, P: Side, C: Side>(
    cells: Cells,
) -> (Producer<Cells, P>, Consumer<Cells, C>) {
    assert!(
        cells.capacity().is_power_of_two(),
        "the capacity is a power of two"
    );
    let ring = Shared::new(Ring { cells });
    (Producer::new(ring.clone()), Consumer::new(ring))
}

/// What the handles of a ring share.
#[derive(Debug)]
struct Ring<Cells: RingCells> {
    cells: Cells,
}

impl<Cells: RingCells> Ring<Cells> {
    fn word(&self, word: RingWord) -> &<Cells::Platform as Platform>::Word {
        self.cells.word(word)
    }

    /// How far the other side has got.
    fn read_tail(&self, tail: RingWord) -> u64 {
        let ordering = Cells::Platform::ordering(Site::TailRead);
        self.word(tail).load(ordering)
    }

    /// Claims up to `wanted` positions, of those from `head` on that the other side has left for this
    /// one: so many as lie before its `tail`, plus `lead`. Returns the first and their number.
    fn claim(&self, head: RingWord, tail: RingWord, lead: u64, wanted: u64) -> (u64, u64) {
        let mut first = self
            .word(head)
            .load(Cells::Platform::ordering(Site::HeadRead));
        loop {
            // Invariant 1 makes this no less than zero.
            let room = (self.read_tail(tail) + lead).wrapping_sub(first);
            let count = room.min(wanted);
            if count == 0 {
                return (first, 0);
            }
            let claimed = self.word(head).compare_exchange_weak(
                first,
                first + count,
                Cells::Platform::ordering(Site::HeadClaimed),
            );
            match claimed {
                Ok(_) => return (first, count),
                Err(_) => {
                    first = self
                        .word(head)
                        .load(Cells::Platform::ordering(Site::HeadRead));
                }
            }
        }
    }

    /// Moves `tail` from `first` to `end` once it is there.
    fn publish_in_turn(&self, tail: RingWord, first: u64, end: u64) {
        let mut round = 0;
        while self.word(tail).load(std::sync::atomic::Ordering::Relaxed) != first {
            Cells::Platform::relax(round);
            round = round.saturating_add(1);
        }
        Cells::Platform::fence(Site::TurnAwaited);
        self.publish(tail, end);
    }

    fn publish(&self, tail: RingWord, end: u64) {
        let ordering = Cells::Platform::ordering(Site::TailPublished);
        self.word(tail).store(end, ordering);
    }
}

impl<Cells: RingCells> Drop for Ring<Cells> {
    fn drop(&mut self) {
        // No handle is left; what they did is visible here through the reference count.
        let first = self.read_tail(RingWord::ConsumerTail);
        let end = self.read_tail(RingWord::ProducerTail);
        for position in first..end {
            // SAFETY: the position was published and not taken, and nobody else has a handle.
            drop(unsafe { self.cells.take(position) });
        }
    }
}

/// A share of a ring.
type SharedRing<Cells> = Shared<Ring<Cells>, <Cells as RingCells>::Platform>;

/// Makes a handle that must not be shared between threads `!Sync` while it stays `Send`.
type OneThread = PhantomData<std::cell::Cell<()>>;
