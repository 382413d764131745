//! A completion queue as the controller keeps it.

use std::collections::VecDeque;
use std::ops::Range;

use crate::host::{DmaFault, Table};
use crate::status::Status;
use crate::violation::Rule;

/// Bytes of an entry.
const ENTRY: u64 = 16;

/// Where completions go.
#[derive(Debug)]
pub(super) struct CompletionQueue {
    pub(super) id: u16,
    base: u64,
    size: u32,
    head: u32,
    tail: u32,
    phase: bool,
    /// Which interrupt it fires, if any.
    pub(super) vector: Option<u16>,
    /// Completions for which there is no room.
    pub(super) backlog: VecDeque<Completion>,
    /// How many submission queues complete here.
    pub(super) users: u32,
    /// Whether something was written since the vector fired.
    pub(super) interrupt: bool,
}

/// How a command ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    pub(super) queue: u16,
    pub(super) id: u16,
    pub(super) status: Status,
    pub(super) result: u32,
}

impl CompletionQueue {
    pub(super) fn new(id: u16, base: u64, size: u32, vector: Option<u16>) -> Self {
        Self {
            id,
            base,
            size,
            head: 0,
            tail: 0,
            phase: true,
            vector,
            backlog: VecDeque::new(),
            users: 0,
            interrupt: false,
        }
    }

    #[inline]
    const fn used(&self) -> u32 {
        if self.tail >= self.head {
            self.tail - self.head
        } else {
            self.size - self.head + self.tail
        }
    }

    #[inline]
    const fn is_full(&self) -> bool {
        self.used() + 1 >= self.size
    }

    /// Whether a completion may be written now: there is room and none waits before it.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        !self.is_full() && self.backlog.is_empty()
    }

    /// The completion that has waited longest, if there is room for it.
    pub(super) fn next_waiting(&mut self) -> Option<Completion> {
        if self.is_full() {
            return None;
        }
        self.backlog.pop_front()
    }

    /// Takes a new head, or says why the host may not have written it.
    #[inline]
    pub(super) fn release(&mut self, head: u32) -> Result<(), (Rule, String)> {
        if head >= self.size {
            let detail = format!("head {head:#x} of queue {} of {}", self.id, self.size);
            return Err((Rule::DoorbellValue, detail));
        }
        let freed = if head >= self.head {
            head - self.head
        } else {
            self.size - self.head + head
        };
        if freed > self.used() {
            let detail = format!(
                "queue {}: {freed} entries taken of {} posted",
                self.id,
                self.used()
            );
            return Err((Rule::CompletionHead, detail));
        }
        self.head = head;
        Ok(())
    }

    /// Writes two words as the next entry, with the phase that is due, and moves on.
    pub(super) fn write(&mut self, host: &Table, low: u64, high: u64) -> Result<(), DmaFault> {
        let address = self.base + u64::from(self.tail) * ENTRY;
        let phase = u64::from(self.phase) << 48;
        host.write_entry(address, [low, high & !(1 << 48) | phase])?;
        self.tail += 1;
        if self.tail == self.size {
            self.tail = 0;
            self.phase = !self.phase;
        }
        self.interrupt = self.vector.is_some();
        Ok(())
    }

    /// Writes an entry as it is, `ahead` of the next one, and does not move on.
    pub(super) fn scribble(
        &self,
        host: &Table,
        ahead: u32,
        entry: [u64; 2],
    ) -> Result<(), DmaFault> {
        let at = (self.tail + ahead) % self.size;
        host.write_entry(self.base + u64::from(at) * ENTRY, entry)
    }

    /// Where its entries lie.
    pub(super) fn ring(&self) -> Range<u64> {
        self.base..self.base.saturating_add(u64::from(self.size) * ENTRY)
    }

    /// Up to where the host has taken completions.
    #[inline]
    pub(super) const fn head(&self) -> u32 {
        self.head
    }

    #[inline]
    pub(super) const fn size(&self) -> u32 {
        self.size
    }

    pub(super) const fn phase(&self) -> bool {
        self.phase
    }
}
