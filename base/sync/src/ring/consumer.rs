//! The end that takes items out.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::Ordering;

use super::side::sealed::Progress;
use super::{Multi, OneThread, RingCells, RingWord, SharedRing, Side};
use crate::{End, Word};

/// Takes items out of a ring. Belongs to one thread at a time; with [`Multi`] it can be cloned.
pub struct Consumer<Cells: RingCells, S: Side> {
    ring: SharedRing<Cells>,
    /// With one consumer: up to where it is done, and the producers' tail when it was last read.
    progress: S::Progress,
    one_thread: OneThread,
}

impl<Cells: RingCells, S: Side> Consumer<Cells, S> {
    pub(super) fn new(ring: SharedRing<Cells>) -> Self {
        Self {
            ring,
            progress: S::Progress::default(),
            one_thread: PhantomData,
        }
    }

    /// How many items the ring holds at most.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.ring.cells.capacity()
    }

    /// Takes the oldest item out; none if the ring is empty.
    pub fn try_pop(&mut self) -> Option<Cells::Item> {
        let (first, count) = self.claim(1);
        if count == 0 {
            return None;
        }
        // SAFETY: the position was claimed a line above, is taken once, and is published a line below.
        let item = unsafe { self.ring.cells.take(first) };
        self.publish(first, first + 1);
        Some(item)
    }

    /// Takes out the oldest items, `count_max` at most, and appends them to `out`; returns how many. `out`
    /// is made to have room for `count_max` more, or for as many as the ring holds: nothing is allocated if
    /// it has that already.
    pub fn try_pop_many(&mut self, out: &mut Vec<Cells::Item>, count_max: usize) -> usize {
        // What is claimed must be taken, so whatever can fail comes before.
        let capacity = usize::try_from(self.capacity()).unwrap_or(usize::MAX);
        out.reserve(count_max.min(capacity));
        let (first, count) = self.claim(count_max as u64);
        for position in first..first + count {
            // SAFETY: the position was claimed above, is taken once, and is published below.
            out.push(unsafe { self.ring.cells.take(position) });
        }
        if count > 0 {
            self.publish(first, first + count);
        }
        usize::try_from(count).expect("no more were claimed than were asked for")
    }

    /// Whether the ring was empty a moment ago. If so, a consumer has claimed every item whose publication this thread
    /// has observed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        // Relaxed: no memory is accessed by the answer, and a consumer that takes an item reads both again. A head
        // newer than the tail read here may be beyond it.
        let claimed = if S::SHARED {
            self.ring
                .word(RingWord::ConsumerHead)
                .load(Ordering::Relaxed)
        } else {
            self.progress.recall().0
        };
        self.ring
            .word(RingWord::ProducerTail)
            .load(Ordering::Relaxed)
            <= claimed
    }

    fn claim(&mut self, wanted: u64) -> (u64, u64) {
        if S::SHARED {
            return self.ring.claim(End::Consumer, wanted);
        }
        let (tail, mut producer_tail) = self.progress.recall();
        if producer_tail - tail < wanted {
            producer_tail = self.ring.read_tail(End::Consumer);
            self.progress.remember(tail, producer_tail);
        }
        (tail, (producer_tail - tail).min(wanted))
    }

    fn publish(&mut self, first: u64, end: u64) {
        if S::SHARED {
            self.ring.publish_in_turn(End::Consumer, first, end);
        } else {
            let (_, producer_tail) = self.progress.recall();
            self.progress.remember(end, producer_tail);
            self.ring.publish(End::Consumer, end);
        }
    }
}

impl<Cells: RingCells> Clone for Consumer<Cells, Multi> {
    fn clone(&self) -> Self {
        Self::new(self.ring.clone())
    }
}

impl<Cells: RingCells + fmt::Debug, S: Side> fmt::Debug for Consumer<Cells, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Consumer").field(&self.ring.cells).finish()
    }
}
