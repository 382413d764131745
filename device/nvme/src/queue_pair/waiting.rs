//! How the owner waits for completions.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use super::QueuePair;
use super::recovery::TIME_BETWEEN_CHECKS;
use crate::interrupt;
use crate::{Completion, Waiting};

/// Rounds between two checks of the clock.
const ROUNDS_BETWEEN_LOOKS: u32 = 64;

impl QueuePair {
    /// What becomes readable when the controller interrupts; none if the pair polls. After it did, call
    /// [`QueuePair::wait`] or empty the eventfd before the next [`QueuePair::poll`].
    #[must_use]
    pub fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        self.is_watched.set(true);
        self.event()
    }

    /// The interrupt's event for the driver's own sleep.
    pub(crate) fn event(&self) -> Option<BorrowedFd<'_>> {
        self.place
            .vector
            .map(|vector| self.controller.vector(vector))
    }

    /// Waits until a request completes, none is in flight, or `limit` has passed; returns the number of completed
    /// requests. The mode of waiting was set when the pair was created.
    pub fn wait(&mut self, limit: Duration, mut done: impl FnMut(Completion)) -> usize {
        let controller = Arc::clone(&self.controller);
        let host = &*controller.control().host;
        // The completions taken below have signalled the event: a watcher would wake for nothing. Clearing it costs a
        // system call, so only watched pairs do it.
        if let Some(event) = self.event().filter(|_| self.is_watched.get()) {
            interrupt::empty(event);
        }
        let mut start = None;
        let mut round: u32 = 0;
        loop {
            let count = self.poll_with(&mut done);
            if count > 0 || self.requests_in_flight == 0 {
                self.adapt(round);
                return count;
            }
            if round < self.rounds_before_sleep() {
                host.relax(round);
            } else {
                let start = *start.get_or_insert_with(|| host.now());
                let left = limit.saturating_sub(host.now().saturating_sub(start));
                let slept = self.sleep(left.min(TIME_BETWEEN_CHECKS));
                if !slept {
                    host.relax(round);
                }
                // After a sleep longer than a command's timeout the ring is checked first.
                if !self.has_completed() {
                    self.check_in_flight();
                }
            }
            round = round.saturating_add(1);
            if round % ROUNDS_BETWEEN_LOOKS == 0 || start.is_some() {
                let now = host.now();
                if now.saturating_sub(*start.get_or_insert(now)) >= limit {
                    return self.poll_with(&mut done);
                }
            }
        }
    }

    /// Sleeps until an interrupt, for at most `limit`; false if the pair has no interrupt.
    pub(super) fn sleep(&self, limit: Duration) -> bool {
        let Some(event) = self.event() else {
            return false;
        };
        interrupt::empty(event);
        if !self.has_completed() {
            interrupt::sleep(&[event], limit);
        }
        true
    }

    pub(crate) const fn rounds_before_sleep(&self) -> u32 {
        match self.waiting {
            Waiting::Poll => u32::MAX,
            Waiting::Interrupt => 0,
            Waiting::Hybrid(most) => {
                // Twice what it took of late; if that is too long polling is in vain.
                let wanted = self.rounds.saturating_mul(2).saturating_add(64);
                if wanted > most { 0 } else { wanted }
            }
        }
    }

    /// Adapts the hybrid mode to a wait of `round` rounds.
    pub(crate) fn adapt(&mut self, round: u32) {
        if let Waiting::Hybrid(most) = self.waiting {
            let seen = round.min(most);
            self.rounds = self.rounds - self.rounds / 8 + seen / 8;
        }
    }
}
