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
//! The condition polls with relaxed loads; one fence after the loop ([`Site::ConditionMet`]) does what an
//! acquiring load in each round would do. (That was most of the speed-up which a port of RocksDB to POWER
//! got out of its writers' queue.)
//!
//! A thread that sleeps elsewhere, in `epoll_wait` say, takes the same steps one by one: with a platform
//! that sleeps on an eventfd ([`NativeEventFd`](crate::NativeEventFd)) it watches the parker's descriptor,
//! calls [`Event::announce`], looks at its condition, sleeps if it has to, and calls [`Event::retract`].
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
    /// two looks. Whoever makes it true does so with a release, and calls [`Event::notify`] afterwards.
    /// Its loads may be relaxed: what was done before the release is visible when this returns.
    pub fn wait<T>(&self, polls: u32, mut condition: impl FnMut() -> Option<T>) -> T {
        for round in 0..polls {
            if let Some(value) = condition() {
                P::fence(Site::ConditionMet);
                return value;
            }
            P::relax(round);
        }
        loop {
            let ticket = self.announce();
            let found = condition();
            if found.is_none() {
                self.parker.sleep(ticket);
            }
            self.retract();
            if let Some(value) = found {
                P::fence(Site::ConditionMet);
                return value;
            }
        }
    }

    /// Says that this thread looks at its condition once more and then sleeps; returns the ticket to sleep
    /// with. [`Event::retract`] must follow.
    pub fn announce(&self) -> u32 {
        let ticket = self.parker.ticket();
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        P::fence(Site::SleepAnnounced);
        ticket
    }

    /// Takes an announcement back: the thread is awake.
    pub fn retract(&self) {
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Where threads sleep.
    #[must_use]
    pub const fn parker(&self) -> &P::Parker {
        &self.parker
    }

    /// Wakes those who wait, to look at their conditions. To be called after a condition was changed.
    pub fn notify(&self) {
        P::fence(Site::WakeChecked);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            self.parker.wake();
        }
    }
}
