//! Waiting for something that another thread does.
//!
//! # Protocol
//! ```text
//!   waiter                              notifier
//!   polls the condition for a while     makes the condition true
//!   takes a ticket                      fence          (Site::WakeChecked)
//!   counts itself as sleeper            sleepers > 0 ? wake
//!   fence          (Site::SleepAnnounced)
//!   looks at the condition once more
//!   sleeps with the ticket
//! ```
//! The two fences have an order. If the waiter's comes first the notifier sees the sleeper; its waking
//! makes the ticket void, whether the waiter sleeps by then or not. If the notifier's comes first the
//! waiter sees the condition. So no waking is lost, and a notifier whom nobody waits for makes no system
//! call.
//!
//! # Ownership
//! `sleepers` is changed by waiters, each adding and taking away one, and read by notifiers.

use std::sync::atomic::Ordering;

use crate::{Native, Parker, Platform, Site, Word};

/// Something to wait for. See the [module's page](self).
#[derive(Debug)]
pub struct Event<P: Platform = Native> {
    sleepers: P::Word,
    parker: P::Parker,
}

impl<P: Platform> Default for Event<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Platform> Event<P> {
    /// An event that nobody waits for.
    #[must_use]
    pub fn new() -> Self {
        Self {
            sleepers: P::Word::new(0),
            parker: P::Parker::new(),
        }
    }

    /// Waits until `condition` has a value, and returns it: polls it `polls` times, then sleeps between
    /// two looks. Whoever makes it true calls [`Event::notify`] afterwards. Its loads may be relaxed as
    /// long as there is a fence, or an acquiring load, before what they guard is touched.
    pub fn wait<T>(&self, polls: u32, mut condition: impl FnMut() -> Option<T>) -> T {
        for round in 0..polls {
            if let Some(value) = condition() {
                return value;
            }
            P::relax(round);
        }
        loop {
            let ticket = self.parker.ticket();
            self.sleepers.fetch_add(1, Ordering::Relaxed);
            P::fence(Site::SleepAnnounced);
            let found = condition();
            if found.is_none() {
                self.parker.sleep(ticket);
            }
            self.sleepers.fetch_sub(1, Ordering::Relaxed);
            if let Some(value) = found {
                return value;
            }
        }
    }

    /// Wakes those who wait, to look at their conditions. To be called after a condition was changed.
    pub fn notify(&self) {
        P::fence(Site::WakeChecked);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            self.parker.wake();
        }
    }
}
