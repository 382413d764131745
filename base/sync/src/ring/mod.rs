//! Bounded rings between threads.
//!
//! # Protocol
//! Positions count items since the ring was made; slot `position % capacity` holds the item. Each end has
//! a head, up to which slots are claimed, and a tail, up to which it is done:
//!
//! ```text
//!        free      |  being taken  |  may be taken  |  being written  |      free
//!   ---------------+---------------+----------------+-----------------+---------------
//!            consumer tail   consumer head    producer tail     producer head
//!   (with one consumer head and tail are one; with one producer likewise)
//! ```
//! A single producer writes the slots after its tail and moves the tail. Producers that share an
//! end claim slots first, by moving the head with a compare-and-exchange, write them, wait until all
//! earlier claims are published, and move the tail. Consumers do the same.
//!
//! This is the algorithm of DPDK's ring, with its barriers written as the orderings of C11.
//!
//! # Ownership
//! | object | writer | reader |
//! |---|---|---|
//! | `ProducerHead` | any producer, by compare-and-exchange; unused with one producer | producers |
//! | `ProducerTail` | the producer whose claim comes next | producers, consumers |
//! | `ConsumerHead` | any consumer, by compare-and-exchange; unused with one consumer | consumers |
//! | `ConsumerTail` | the consumer whose claim comes next | consumers, producers |
//! | slots from consumer tail to producer tail | the consumer that has claimed them; none before | the same |
//! | all other slots | the producer that has claimed them; none before | the same |
//!
//! # Invariants
//! With one handle at an end its head is not used and stays zero: read its tail for it.
//! 1. consumer tail <= consumer head <= producer tail <= producer head <= consumer tail + capacity.
//! 2. Every position is claimed by one producer and later by one consumer.
//! 3. A slot is read after it was written for this position and before it is written for the next.
//!
//! # Progress
//! A look into an empty or full ring is wait-free: two loads. One producer or consumer alone is wait-free.
//! Those that share an end are not even lock-free: one that is descheduled between claim and publication
//! holds up the others' publications, not their claims. They spin, then yield.
//!
//! # Cost
//! One item through a ring of one producer and one consumer moves one cache line each way; each end
//! remembers how far the other had got and looks again only when that is used up.

mod cells;
mod consumer;
mod producer;
mod side;

use std::marker::PhantomData;
use std::sync::atomic::Ordering;

pub use cells::{HeapCells, RingCells, RingWord};
pub use consumer::Consumer;
pub use producer::Producer;
pub use side::{Multi, Side, Single};

use crate::{End, Native, Platform, Shared, Site, Word};

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
///
/// # Panics
/// If the capacity is not a power of two, or if a word is not zero: the ring would take items that were never
/// put in.
#[must_use]
pub fn on_cells<Cells: RingCells, P: Side, C: Side>(
    cells: Cells,
) -> (Producer<Cells, P>, Consumer<Cells, C>) {
    assert!(
        cells.capacity().is_power_of_two(),
        "the capacity is a power of two"
    );
    for word in RingWord::ALL {
        // Relaxed: no other thread changes the words of cells that a ring takes over.
        let position = cells.word(word).load(Ordering::Relaxed);
        assert_eq!(position, 0, "the words of a new ring are zero");
    }
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

    /// How far the other end has got, as `end` reads it.
    fn read_tail(&self, end: End) -> u64 {
        let ordering = Cells::Platform::ordering(Site::TailRead(end));
        self.word(RingWord::tail(end.other())).load(ordering)
    }

    /// Up to where those at `end`, which are several, have claimed.
    fn read_head(&self, end: End) -> u64 {
        let ordering = Cells::Platform::ordering(Site::HeadRead(end));
        self.word(RingWord::head(end)).load(ordering)
    }

    /// Claims up to `wanted` of the positions that the other end has left for this one. Returns the first
    /// and their number.
    fn claim(&self, end: End, wanted: u64) -> (u64, u64) {
        let lead = match end {
            End::Producer => self.cells.capacity(),
            End::Consumer => 0,
        };
        let mut first = self.read_head(end);
        loop {
            // Invariant 1 makes this no less than zero.
            let room = (self.read_tail(end) + lead).wrapping_sub(first);
            let count = room.min(wanted);
            if count == 0 {
                return (first, 0);
            }
            let ordering = Cells::Platform::ordering(Site::HeadClaimed(end));
            let head = self.word(RingWord::head(end));
            match head.compare_exchange_weak(first, first + count, ordering) {
                Ok(_) => return (first, count),
                Err(_) => first = self.read_head(end),
            }
        }
    }

    /// Moves the tail of `end` from `first` to `position` once it is there.
    fn publish_in_turn(&self, end: End, first: u64, position: u64) {
        let mut round = 0;
        while self.word(RingWord::tail(end)).load(Ordering::Relaxed) != first {
            Cells::Platform::relax(round);
            round = round.saturating_add(1);
        }
        Cells::Platform::fence(Site::TurnAwaited(end));
        self.publish(end, position);
    }

    /// Moves the tail of `end` to `position`.
    fn publish(&self, end: End, position: u64) {
        let ordering = Cells::Platform::ordering(Site::TailPublished(end));
        self.word(RingWord::tail(end)).store(position, ordering);
    }
}

impl<Cells: RingCells> Drop for Ring<Cells> {
    fn drop(&mut self) {
        // Relaxed: no handle is left, and all their operations happened before the last clone was dropped
        // (`Site::LastShare`).
        let first = self.word(RingWord::ConsumerTail).load(Ordering::Relaxed);
        let end = self.word(RingWord::ProducerTail).load(Ordering::Relaxed);
        for position in first..end {
            // SAFETY: the position was published and not taken, and no other handle exists.
            drop(unsafe { self.cells.take(position) });
        }
    }
}

/// A share of a ring.
type SharedRing<Cells> = Shared<Ring<Cells>, <Cells as RingCells>::Platform>;

/// Makes a handle that must not be shared between threads `!Sync` while it stays `Send`.
type OneThread = PhantomData<std::cell::Cell<()>>;
