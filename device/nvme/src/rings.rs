//! The two rings of a queue pair in memory (Base 4.1).
//!
//! # Ownership
//! | entries | writer | reader |
//! |---|---|---|
//! | submission entries from head to tail | none | the controller |
//! | all other submission entries | the driver | none |
//! | completion entries with the ring's phase | none | the driver |
//! | all other completion entries | the controller | none |
//!
//! No more commands are in flight than either ring has entries less one, so neither overflows.

use millrace_memory::DeviceMemory;
use millrace_pci::barrier;

use crate::Result;
use crate::doorbell::Doorbell;
use crate::spec::completion::{CompletionTail, PHASE, TAIL_OFFSET};
use crate::spec::registers::{CQE_SHIFT, SQE_SHIFT};

/// Submission ring: commands to the controller.
#[derive(Debug)]
pub(crate) struct SubmissionRing {
    memory: DeviceMemory,
    entries: u16,
    tail: u16,
    pub(crate) doorbell: Doorbell,
}

impl SubmissionRing {
    /// Bytes of `entries` entries.
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

    /// Restarts at the first entry.
    pub(crate) fn restart(&mut self) {
        self.tail = 0;
    }

    /// Writes an entry. [`SubmissionRing::ring`] notifies the controller.
    #[inline]
    pub(crate) fn push(&mut self, words: &[u64; 8]) {
        let offset = usize::from(self.tail) << SQE_SHIFT;
        self.memory.copy_in(offset, words);
        self.tail += 1;
        if self.tail == self.entries {
            self.tail = 0;
        }
    }

    /// Notifies the controller of all entries written so far.
    #[inline(always)]
    pub(crate) fn ring(&mut self) -> Result<()> {
        if self.doorbell.last_written() == self.tail {
            return Ok(());
        }
        self.doorbell.write(self.tail)
    }
}

/// Completion ring: answers of the controller.
#[derive(Debug)]
pub(crate) struct CompletionRing {
    memory: DeviceMemory,
    entries: u16,
    head: u16,
    /// The phase bit of entries that are not taken, where it lies.
    phase: u64,
    /// Entries read since the last write of the head doorbell.
    unannounced: u16,
    pub(crate) doorbell: Doorbell,
}

impl CompletionRing {
    /// Bytes of `entries` entries.
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
            unannounced: 0,
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
        self.unannounced = 0;
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
        self.unannounced += 1;
    }

    /// Writes the head doorbell once it lags behind by more than `lag` entries.
    #[inline]
    pub(crate) fn ring(&mut self, lag: u16) -> Result<()> {
        if self.unannounced <= lag {
            return Ok(());
        }
        self.unannounced = 0;
        self.doorbell.write(self.head)
    }
}
