//! A submission queue as the controller keeps it.

use std::ops::Range;

use crate::violation::Rule;

/// Bytes of an entry.
const ENTRY: u64 = 64;

/// Where commands come from.
#[derive(Debug)]
pub(super) struct SubmissionQueue {
    pub(super) id: u16,
    base: u64,
    size: u32,
    head: u32,
    tail: u32,
    /// The head that the host knows of.
    reported: u32,
    /// Where its commands are completed.
    pub(super) completion: u16,
    in_flight: IdSet,
    /// Whether the shadow doorbell is looked at without a doorbell being rung.
    pub(super) awake: bool,
    /// Whether completions have lied about its head.
    pub(super) misled: bool,
}

/// The identifiers in flight.
#[derive(Debug)]
struct IdSet {
    words: Box<[u64]>,
}

impl IdSet {
    fn new() -> Self {
        Self {
            words: vec![0; 1 << 10].into_boxed_slice(),
        }
    }

    /// Returns whether it was new.
    #[inline]
    fn insert(&mut self, id: u16) -> bool {
        let word = &mut self.words[usize::from(id >> 6)];
        let bit = 1 << (id & 63);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    #[inline]
    fn remove(&mut self, id: u16) {
        let word = &mut self.words[usize::from(id >> 6)];
        *word &= !(1 << (id & 63));
    }

    fn contains(&self, id: u16) -> bool {
        self.words[usize::from(id >> 6)] & 1 << (id & 63) != 0
    }
}

impl SubmissionQueue {
    pub(super) fn new(id: u16, base: u64, size: u32, completion: u16) -> Self {
        Self {
            id,
            base,
            size,
            head: 0,
            tail: 0,
            reported: 0,
            completion,
            in_flight: IdSet::new(),
            awake: true,
            misled: false,
        }
    }

    pub(super) fn has_in_flight(&self, id: u16) -> bool {
        self.in_flight.contains(id)
    }

    /// Counts a command as in flight; false if its identifier is.
    #[inline]
    pub(super) fn take_off(&mut self, id: u16) -> bool {
        self.in_flight.insert(id)
    }

    /// Takes a command back from those in flight.
    #[inline]
    pub(super) fn land(&mut self, id: u16) {
        self.in_flight.remove(id);
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    #[inline]
    pub(super) const fn tail(&self) -> u32 {
        self.tail
    }

    /// Where its entries lie.
    pub(super) fn ring(&self) -> Range<u64> {
        self.base..self.base.saturating_add(u64::from(self.size) * ENTRY)
    }

    /// Where the entries lie that were announced and not fetched: up to the tail, or to `tail` if that is one.
    pub(super) fn entries_to(&self, tail: Option<u32>) -> impl Iterator<Item = u64> + use<> {
        let tail = tail.filter(|tail| *tail < self.size).unwrap_or(self.tail);
        let (base, head, size) = (self.base, self.head, self.size);
        let count = self.distance(head, tail);
        (0..count).map(move |ahead| base.saturating_add(u64::from((head + ahead) % size) * ENTRY))
    }

    /// Where the next entry to fetch lies.
    #[inline]
    pub(super) fn next_entry(&self) -> u64 {
        self.base.saturating_add(u64::from(self.head) * ENTRY)
    }

    /// That entry was fetched.
    #[inline]
    pub(super) fn advance(&mut self) {
        self.head += 1;
        if self.head == self.size {
            self.head = 0;
        }
    }

    /// The head, which the host gets to know.
    #[inline]
    pub(super) fn report(&mut self) -> u32 {
        self.reported = self.head;
        self.head
    }

    /// Entries from `from` up to `to`.
    #[inline]
    const fn distance(&self, from: u32, to: u32) -> u32 {
        if to >= from {
            to - from
        } else {
            self.size - from + to
        }
    }

    /// Takes a new tail, or says why the host may not have written it.
    #[inline]
    pub(super) fn announce(&mut self, tail: u32) -> Result<(), (Rule, String)> {
        if tail >= self.size {
            let detail = format!("tail {tail:#x} of queue {} of {}", self.id, self.size);
            return Err((Rule::DoorbellValue, detail));
        }
        let added = self.distance(self.tail, tail);
        if added == 0 {
            let detail = format!("tail {tail:#x} of queue {}, which it was before", self.id);
            return Err((Rule::DoorbellValue, detail));
        }
        let room = self.size - 1 - self.distance(self.reported, self.tail);
        self.tail = tail;
        if added > room {
            let detail = format!("queue {}: {added} entries where {room} were free", self.id);
            return Err((Rule::SubmissionOverrun, detail));
        }
        Ok(())
    }
}
