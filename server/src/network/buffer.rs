//! Buffers of connections: taken when there is something to receive or send, given back after.

use std::sync::Arc;

use crate::memory::{Charge, MemoryBudget, Share};

/// The capacity of a fresh buffer. Most requests and replies fit, and one read fetches a whole
/// pipeline of small ones.
pub(super) const BUFFER_LEN: usize = 16 * 1024;

/// Buffers up to this capacity are kept for the next user, larger ones are freed.
const KEPT_CAPACITY_MAX: usize = 4 * BUFFER_LEN;

/// How many buffers a worker keeps.
const KEPT_MAX: usize = 64;

/// Bytes and what they cost.
#[derive(Debug)]
pub(super) struct Buffer {
    pub(super) bytes: Vec<u8>,
    charge: Charge,
}

impl Buffer {
    /// Makes room for `more` bytes after the ones that are there, if the budget allows.
    #[must_use]
    pub(super) fn try_grow(&mut self, more: usize) -> bool {
        let needed = self.bytes.len().saturating_add(more);
        if needed <= self.bytes.capacity() {
            return true;
        }
        if !self.charge.try_raise_to(needed) {
            return false;
        }
        self.bytes.reserve_exact(more);
        self.settle();
        true
    }

    /// Charges what the buffer has grown to.
    pub(super) fn settle(&mut self) {
        if self.bytes.capacity() != self.charge.bytes() {
            self.charge.set(self.bytes.capacity());
        }
    }
}

/// The spare buffers of one worker.
#[derive(Debug)]
pub(super) struct BufferPool {
    budget: Arc<MemoryBudget>,
    spare: Vec<Buffer>,
}

impl BufferPool {
    pub(super) const fn new(budget: Arc<MemoryBudget>) -> Self {
        Self {
            budget,
            spare: Vec::new(),
        }
    }

    /// An empty buffer, if the budget allows.
    pub(super) fn try_take(&mut self) -> Option<Buffer> {
        if let Some(buffer) = self.spare.pop() {
            return Some(buffer);
        }
        let mut charge = Charge::new(Arc::clone(&self.budget), Share::Messages);
        if !charge.try_raise_to(BUFFER_LEN) {
            return None;
        }
        Some(Buffer {
            bytes: Vec::with_capacity(BUFFER_LEN),
            charge,
        })
    }

    /// An empty buffer, whatever the budget says: for replies, of which every connection has at most
    /// one.
    pub(super) fn take(&mut self) -> Buffer {
        self.try_take().unwrap_or_else(|| {
            let mut charge = Charge::new(Arc::clone(&self.budget), Share::Messages);
            charge.set(BUFFER_LEN);
            Buffer {
                bytes: Vec::with_capacity(BUFFER_LEN),
                charge,
            }
        })
    }

    /// Takes back a buffer.
    pub(super) fn put(&mut self, mut buffer: Buffer) {
        if self.spare.len() < KEPT_MAX && buffer.bytes.capacity() <= KEPT_CAPACITY_MAX {
            buffer.bytes.clear();
            buffer.settle();
            self.spare.push(buffer);
        }
    }
}
