//! The two rings of a queue pair in memory (Base 4.1).
//!
//! # Ownership
//! | what | who writes it | who reads it |
//! |---|---|---|
//! | submission entries from head to tail | nobody | the controller |
//! | all other submission entries | the driver | nobody |
//! | completion entries with the ring's phase | nobody | the driver |
//! | all other completion entries | the controller | nobody |
//!
//! No more commands are in flight than either ring has entries less one, so neither overflows.

use millrace_memory::DeviceMemory;
use millrace_pci::barrier;

use crate::Result;
use crate::doorbell::Doorbell;
use crate::spec::completion::{CompletionTail, PHASE, TAIL_OFFSET};
use crate::spec::registers::{CQE_SHIFT, SQE_SHIFT};

/// The ring of commands.
#[derive(Debug)]
pub(crate) struct SubmissionRing {
    memory: DeviceMemory,
    entries: u16,
    tail: u16,
    pub(crate) doorbell: Doorbell,
}

impl SubmissionRing {
    /// Bytes of so many entries.
    pub(crate) const fn size(entries: u16) -> usize {
        (entries as usize) << SQE_SHIFT
    }

    pub(crate) fn new(memory: DeviceMemory, entries: u16, doorbell: Doorbell) -> Self {
        assert!(memory.len() >= Self::size(entries), "the ring fits");
        Self {
            memory,
            entries,
            tail: 0,
            doorbell,
        }
    }

    pub(crate) const fn entries(&self) -> u16 {
        self.entries
    }

    pub(crate) const fn memory(&self) -> &DeviceMemory {
        &self.memory
    }

    /// Begins at the first entry.
    pub(crate) fn restart(&mut self) {
        self.tail = 0;
    }

    /// Writes an entry. The controller hears of it by [`SubmissionRing::ring`].
    #[inline]
    pub(crate) fn push(&mut self, words: &[u64; 8]) {
        let offset = usize::from(self.tail) << SQE_SHIFT;
        self.memory.copy_in(offset, words);
        self.tail += 1;
        if self.tail == self.entries {
            self.tail = 0;
        }
    }

    /// Tells the controller of all entries so far.
    #[inline(always)]
    pub(crate) fn ring(&mut self) -> Result<()> {
        if self.doorbell.said() == self.tail {
            return Ok(());
        }
        self.doorbell.say(self.tail)
    }
}

/// The ring of completions.
#[derive(Debug)]
pub(crate) struct CompletionRing {
    memory: DeviceMemory,
    entries: u16,
    head: u16,
    /// The phase bit of entries that are not taken, where it lies.
    phase: u64,
    /// Entries that were read since the controller was told.
    untold: u16,
    pub(crate) doorbell: Doorbell,
}

impl CompletionRing {
    /// Bytes of so many entries.
    pub(crate) const fn size(entries: u16) -> usize {
        (entries as usize) << CQE_SHIFT
    }

    pub(crate) fn new(memory: DeviceMemory, entries: u16, doorbell: Doorbell) -> Self {
        assert!(memory.len() >= Self::size(entries), "the ring fits");
        Self {
            memory,
            entries,
            head: 0,
            phase: PHASE,
            untold: 0,
            doorbell,
        }
    }

    pub(crate) const fn entries(&self) -> u16 {
        self.entries
    }

    pub(crate) const fn memory(&self) -> &DeviceMemory {
        &self.memory
    }

    /// Begins at the first entry, with no phase bit set anywhere.
    pub(crate) fn restart(&mut self) {
        self.head = 0;
        self.phase = PHASE;
        self.untold = 0;
        for entry in 0..usize::from(self.entries) {
            self.memory.store_u64((entry << CQE_SHIFT) + TAIL_OFFSET, 0);
        }
    }

    /// The next completion, if there is one. What the controller wrote before it is visible.
    #[inline]
    pub(crate) fn peek(&self) -> Option<CompletionTail> {
        let offset = (usize::from(self.head) << CQE_SHIFT) + TAIL_OFFSET;
        let tail = CompletionTail(self.memory.load_u64(offset));
        if tail.phase() != self.phase {
            return None;
        }
        barrier::before_next_load();
        Some(tail)
    }

    /// The result in the entry that [`CompletionRing::peek`] saw.
    pub(crate) fn result(&self) -> u32 {
        self.memory.load_u32(usize::from(self.head) << CQE_SHIFT)
    }

    /// Goes on to the next entry.
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.head += 1;
        if self.head == self.entries {
            self.head = 0;
            self.phase ^= PHASE;
        }
        self.untold += 1;
    }

    /// Tells the controller of the entries that were read, once there are more than `lag` of them.
    #[inline]
    pub(crate) fn ring(&mut self, lag: u16) -> Result<()> {
        if self.untold <= lag {
            return Ok(());
        }
        self.untold = 0;
        self.doorbell.say(self.head)
    }
}
