//! The journal: a ring of transactions, written by one leader at a time (group commit).
//!
//! A thread that needs a transaction on the medium and finds no leader becomes the leader: it writes the pending
//! transactions in order until its own is on the medium. All other threads wait for the leader and check again, so all
//! callers that arrive during one write share the next.
//!
//! # Invariants
//! 1. There is one leader at most; only it touches [`Ring`].
//! 2. Transaction *n* is written only when *n - 1* is on the medium.
//! 3. `durable` only rises, and reaches *n* when *n* is on the medium or a checkpoint that contains it is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};

use crate::Result;

/// Position of the transactions in the journal, in logical blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    /// Blocks of the journal, in all.
    pub(crate) blocks: u64,
    /// Block at which the next transaction begins.
    pub(crate) head: u64,
    /// Blocks of transactions that no checkpoint contains.
    pub(crate) used: u64,
}

impl Ring {
    /// Whether `blocks` blocks can be written without overwriting a transaction that no checkpoint contains. One block
    /// always stays between the newest and the oldest transaction.
    pub(crate) const fn fits(&self, blocks: u64) -> bool {
        self.used + blocks < self.blocks
    }

    /// Whether a checkpoint is due.
    pub(crate) const fn is_half_full(&self) -> bool {
        self.used > self.blocks / 2
    }

    /// Moves the head over a transaction of `blocks` blocks.
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
    /// The leader's `Release` pairs with the `Acquire` in [`Journal::durable`] of threads that return to their callers.
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

    /// Number of the last transaction on the medium.
    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Records that transactions up to `sequence` are on the medium, and wakes the waiting threads.
    pub(crate) fn set_durable(&self, sequence: u64) {
        self.durable.fetch_max(sequence, Ordering::Release);
        self.done.notify_all();
    }

    /// Returns when `is_done` is true. A caller that finds no leader leads: `lead` must make progress towards it.
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
                // A spurious wake-up only repeats the check.
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

/// Leadership of the journal, ended on drop.
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
