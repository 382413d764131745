//! The ring of transactions, and the turn to write to it.
//!
//! Whoever needs a transaction on the medium and finds nobody writing becomes the leader: it writes what is pending,
//! one transaction after the other, until its own is there. Everybody else waits for the leader and looks again. So
//! all who arrive during one write share the next.
//!
//! # Invariants
//! 1. There is one leader at most; only it touches [`Ring`].
//! 2. Transaction *n* is written only when *n - 1* is on the medium.
//! 3. `durable` only rises, and reaches *n* when *n* is on the medium or a checkpoint that contains it is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};

use crate::Result;

/// Where in the journal the transactions lie. All in logical blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    /// Blocks of the journal.
    pub(crate) blocks: u64,
    /// Where the next transaction goes.
    pub(crate) head: u64,
    /// Blocks of transactions that no checkpoint contains.
    pub(crate) used: u64,
}

impl Ring {
    /// Whether so many blocks can be written without touching a transaction that is needed. A block is left
    /// between the newest and the oldest, so that the one never runs into the other.
    pub(crate) const fn has_room(&self, blocks: u64) -> bool {
        self.used + blocks < self.blocks
    }

    /// Whether a checkpoint is due.
    pub(crate) const fn is_half_full(&self) -> bool {
        self.used > self.blocks / 2
    }

    /// Moves on over a transaction of so many blocks.
    pub(crate) const fn advance(&mut self, blocks: u64) {
        self.head = (self.head + blocks) % self.blocks;
        self.used += blocks;
    }
}

#[derive(Debug)]
pub(crate) struct Journal {
    led: Mutex<bool>,
    done: Condvar,
    ring: Mutex<Ring>,
    /// The leader's `Release` pairs with the `Acquire` of those who return to their callers.
    durable: AtomicU64,
}

impl Journal {
    pub(crate) fn new(ring: Ring, durable: u64) -> Self {
        Self {
            led: Mutex::new(false),
            done: Condvar::new(),
            ring: Mutex::new(ring),
            durable: AtomicU64::new(durable),
        }
    }

    /// The last transaction on the medium.
    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Makes it known that transactions up to `sequence` are on the medium.
    pub(crate) fn set_durable(&self, sequence: u64) {
        self.durable.fetch_max(sequence, Ordering::Release);
        self.done.notify_all();
    }

    /// Returns when `is_done` says so. Whoever finds no leader leads: `lead` is to make some progress towards it.
    pub(crate) fn wait(
        &self,
        is_done: impl Fn() -> Result<bool>,
        mut lead: impl FnMut(&mut Ring) -> Result<()>,
    ) -> Result<()> {
        loop {
            if is_done()? {
                return Ok(());
            }
            let mut led = self.led.lock().expect("no holder of the lock panics");
            if is_done()? {
                return Ok(());
            }
            if *led {
                // Spurious wake-ups do no harm: the loop looks again.
                drop(self.done.wait(led).expect("no holder of the lock panics"));
                continue;
            }
            *led = true;
            drop(led);
            let leader = Leader { journal: self };
            lead(&mut self.ring())?;
            drop(leader);
        }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().expect("no leader panics")
    }
}

/// The turn to write, given up when dropped.
struct Leader<'a> {
    journal: &'a Journal,
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        *self
            .journal
            .led
            .lock()
            .expect("no holder of the lock panics") = false;
        self.journal.done.notify_all();
    }
}
