//! Waiting for something that another thread does.
//!
//! # Protocol
//! ```text
//!   waiter                              notifier
//!   polls the condition for a while     makes the condition true
//!   counts itself as sleeper            fence          (Site::WakeChecked)
//!   takes a ticket                      sleepers > 0 ? wake
//!   fence          (Site::SleepAnnounced)
//!   looks at the condition once more
//!   sleeps with the ticket
//! ```
//! The two fences have an order. If the waiter's comes first, the notifier sees the sleeper; its wake-up
//! makes the ticket void, whether the waiter sleeps by then or not. If the notifier's comes first, the
//! waiter sees the condition. So no wake-up is lost, and a notifier without a waiter makes no system
//! call.
//!
//! The condition polls with relaxed loads; one fence after the loop ([`Site::ConditionMet`]) does what an
//! acquiring load in each round would do. (That was most of the speed-up which a port of RocksDB to POWER
//! got out of its writers' queue.)
//!
//! A thread that sleeps elsewhere, for example in `epoll_wait`, takes the same steps one by one: with a platform
//! that sleeps on an eventfd (`NativeEventFd`, on Linux) it watches the parker's descriptor,
//! calls [`Event::announce`], checks its condition, sleeps if necessary, and drops the [`Announced`].
//!
//! # Ownership
//! | field | writer | reader |
//! |---|---|---|
//! | `sleepers` | waiters: an [`Announced`] increments it when made and decrements it when dropped | notifiers |
//! | `parker`: the wake-ups | notifiers; with an eventfd also the waiter, whose ticket takes them | announced waiters |
//!
//! # Invariants
//! 1. `sleepers` is the number of [`Announced`] that there are, however a wait ended.
//! 2. Of an announced waiter and a notifier at least one sees the other: the waiter's check the change before the
//!    notifier's fence, or the notifier the waiter among the sleepers.
//! 3. A waiter takes its ticket after it is counted, and before its fence. So a notifier whose change the check has
//!    missed wakes after the ticket was taken, and makes it void.
//! 4. At most [`Parker::SLEEPERS_MAX`] [`Announced`] exist at a time. A further waiter is refused before it takes a
//!    ticket, which could consume another waiter's wake-up.

use std::io;
use std::sync::atomic::Ordering;

use crate::{Native, Parker, Platform, Site, Word};

/// Something to wait for. See the [module's page](self).
#[derive(Debug)]
pub struct Event<P: Platform = Native> {
    sleepers: P::Word,
    parker: P::Parker,
}

impl<P: Platform<Parker: Default>> Default for Event<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Platform> Event<P> {
    /// An event without waiters, on a new default parker.
    #[must_use]
    pub fn new() -> Self
    where
        P::Parker: Default,
    {
        Self::on_parker(P::Parker::default())
    }

    /// An event without waiters, on a parker whose creation may fail.
    ///
    /// # Errors
    /// The parker's error: for eventfds, the process has no file descriptor left.
    pub fn try_new() -> io::Result<Self> {
        Ok(Self::on_parker(P::Parker::try_new()?))
    }

    fn on_parker(parker: P::Parker) -> Self {
        Self {
            sleepers: P::Word::new(0),
            parker,
        }
    }

    /// Waits until `condition` has a value, and returns it: polls it `polls` times, then sleeps between two checks. The
    /// notifier changes the condition with a release store, and calls [`Event::notify`] afterwards.
    /// The condition's loads may be relaxed: all writes before the release are visible when this returns.
    ///
    /// # Panics
    /// If the condition does, and as [`Event::announce`]: one thread at a time may wait on an eventfd.
    pub fn wait<T>(&self, polls: u32, mut condition: impl FnMut() -> Option<T>) -> T {
        for round in 0..polls {
            if let Some(value) = condition() {
                P::fence(Site::ConditionMet);
                return value;
            }
            P::relax(round);
        }
        loop {
            let announced = self.announce();
            if let Some(value) = condition() {
                P::fence(Site::ConditionMet);
                return value;
            }
            self.parker.sleep(announced.ticket);
        }
    }

    /// Announces a waiter: the caller must check its condition once more before it sleeps, and keep the result while it
    /// sleeps.
    ///
    /// # Panics
    /// If [`Parker::SLEEPERS_MAX`] waiters are announced already; these are not affected.
    pub fn announce(&self) -> Announced<'_, P> {
        let before = self.sleepers.fetch_add(1, Ordering::Relaxed);
        // From here on it is taken back whatever happens.
        let mut announced = Announced {
            event: self,
            ticket: 0,
        };
        assert!(
            before < P::Parker::SLEEPERS_MAX,
            "more threads wait than the parker lets sleep"
        );
        announced.ticket = self.parker.ticket();
        P::fence(Site::SleepAnnounced);
        announced
    }

    /// Where threads sleep: for its descriptor, if it has one. Its tickets are taken by [`Event::announce`].
    #[must_use]
    pub const fn parker(&self) -> &P::Parker {
        &self.parker
    }

    /// Wakes all waiters to check their conditions. Call it after a change of a condition.
    pub fn notify(&self) {
        P::fence(Site::WakeChecked);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            self.parker.wake();
        }
    }
}

/// A thread that is about to sleep, or sleeps; it no longer does when this is dropped.
#[derive(Debug)]
#[must_use = "the announcement is taken back at once"]
pub struct Announced<'a, P: Platform> {
    event: &'a Event<P>,
    ticket: u32,
}

impl<P: Platform> Announced<'_, P> {
    /// Ticket for [`Parker::sleep`], taken before the caller's last check of its condition.
    #[must_use]
    pub const fn ticket(&self) -> u32 {
        self.ticket
    }
}

impl<P: Platform> Drop for Announced<'_, P> {
    fn drop(&mut self) {
        self.event.sleepers.fetch_sub(1, Ordering::Relaxed);
    }
}
