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
//! calls [`Event::announce`], looks at its condition, sleeps if it has to, and drops what it was given.
//!
//! # Ownership
//! | what | who changes it | who reads it |
//! |---|---|---|
//! | `sleepers` | waiters: an [`Announced`] adds one when it is made and takes one away when it is dropped | notifiers |
//! | `parker`: the wakings | notifiers; with an eventfd also the waiter, whose ticket takes them | the waiters that are announced |
//!
//! # Invariants
//! 1. `sleepers` is the number of [`Announced`] that there are, however a wait ended.
//! 2. Of a waiter that is announced and a notifier at least one sees the other: the waiter's look what was
//!    changed before the notifier's fence, or the notifier the waiter among the sleepers.
//! 3. A ticket is taken by one who is counted, and before its fence. So a notifier whose change the look has
//!    missed wakes after the ticket was taken, and makes it void.
//! 4. There are no more [`Announced`] at a time than the parker lets sleep ([`Parker::SLEEPERS_MAX`]). Whoever
//!    would be one more is refused before it takes a ticket, which could take another one's waking.

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
    /// An event that nobody waits for.
    #[must_use]
    pub fn new() -> Self
    where
        P::Parker: Default,
    {
        Self::on_parker(P::Parker::default())
    }

    /// An event that nobody waits for, on a parker that there may be none left of.
    ///
    /// # Errors
    /// Why there is none: of eventfds, that the process has no descriptor left.
    pub fn try_new() -> io::Result<Self> {
        Ok(Self::on_parker(P::Parker::try_new()?))
    }

    fn on_parker(parker: P::Parker) -> Self {
        Self {
            sleepers: P::Word::new(0),
            parker,
        }
    }

    /// Waits until `condition` has a value, and returns it: polls it `polls` times, then sleeps between
    /// two looks. Whoever makes it true does so with a release, and calls [`Event::notify`] afterwards.
    /// Its loads may be relaxed: what was done before the release is visible when this returns.
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

    /// Says that this thread looks at its condition once more and then sleeps, for as long as what this
    /// returns is kept.
    ///
    /// # Panics
    /// If as many are announced as the parker lets sleep ([`Parker::SLEEPERS_MAX`]); they are not disturbed.
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

    /// Wakes those who wait, to look at their conditions. To be called after a condition was changed.
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
    /// What to give to [`Parker::sleep`].
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
