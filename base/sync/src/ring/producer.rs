//! The end that puts items in.

use std::fmt;
use std::marker::PhantomData;

use super::side::sealed::Progress;
use super::{Multi, OneThread, RingCells, SharedRing, Side};
use crate::End;

/// Puts items into a ring. Belongs to one thread at a time; with [`Multi`] it can be cloned.
pub struct Producer<Cells: RingCells, S: Side> {
    ring: SharedRing<Cells>,
    /// With one producer: up to where it is done, and the consumers' tail when it was last read.
    progress: S::Progress,
    one_thread: OneThread,
}

impl<Cells: RingCells, S: Side> Producer<Cells, S> {
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

    /// Puts an item in.
    ///
    /// # Errors
    /// The item, if the ring is full.
    pub fn try_push(&mut self, item: Cells::Item) -> Result<(), Cells::Item> {
        let (first, count) = self.claim(1);
        if count == 0 {
            return Err(item);
        }
        // SAFETY: the position was claimed a line above and is published a line below.
        unsafe { self.ring.cells.put(first, item) };
        self.publish(first, first + 1);
        Ok(())
    }

    /// Puts the first of `items` in, as many as there is room for, next to each other; returns how many.
    pub fn try_push_many(&mut self, items: &[Cells::Item]) -> usize
    where
        Cells::Item: Copy,
    {
        let (first, count) = self.claim(items.len() as u64);
        for (position, item) in (first..first + count).zip(items) {
            // SAFETY: the position was claimed above and is published below.
            unsafe { self.ring.cells.put(position, *item) };
        }
        if count > 0 {
            self.publish(first, first + count);
        }
        usize::try_from(count).expect("no more were claimed than there are items")
    }

    fn claim(&mut self, wanted: u64) -> (u64, u64) {
        if S::SHARED {
            return self.ring.claim(End::Producer, wanted);
        }
        let capacity = self.ring.cells.capacity();
        let (tail, mut consumer_tail) = self.progress.recall();
        if consumer_tail + capacity - tail < wanted {
            consumer_tail = self.ring.read_tail(End::Producer);
            self.progress.remember(tail, consumer_tail);
        }
        let room = consumer_tail + capacity - tail;
        (tail, room.min(wanted))
    }

    fn publish(&mut self, first: u64, end: u64) {
        if S::SHARED {
            self.ring.publish_in_turn(End::Producer, first, end);
        } else {
            let (_, consumer_tail) = self.progress.recall();
            self.progress.remember(end, consumer_tail);
            self.ring.publish(End::Producer, end);
        }
    }
}

impl<Cells: RingCells> Clone for Producer<Cells, Multi> {
    fn clone(&self) -> Self {
        Self::new(self.ring.clone())
    }
}

impl<Cells: RingCells + fmt::Debug, S: Side> fmt::Debug for Producer<Cells, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Producer").field(&self.ring.cells).finish()
    }
}
