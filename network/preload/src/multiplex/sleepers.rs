//! Threads of this process that sleep for user-level descriptors outside of sets.
//!
//! The first thread that wakes reads the wake-ups. If a connection has several watchers, that thread notifies the
//! others: each sleeper has an eventfd, which it polls beside its descriptors.
//!
//! # Invariants
//! 1. A slot belongs to the thread that took it, until it drops the [`Sleeper`]. Its eventfd stays with the slot.
//! 2. A sleeper publishes its key, and checks again, before it sleeps; a broadcast makes its news visible before it
//!    reads the keys. All with sequential consistency, so that one of the two sees the other.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use crate::private_fds;

use super::kernel;

/// How many threads sleep at once with an eventfd; others sleep for short times.
const PLACES: usize = 1024;

/// Key of a sleep for more than one descriptor.
pub(crate) const ANY: usize = 1;
/// Key of a free slot.
const NOTHING: usize = 0;

#[derive(Debug)]
struct Place {
    is_taken: AtomicBool,
    key: AtomicUsize,
    eventfd: AtomicI32,
}

static PLACE: [Place; PLACES] = [const {
    Place {
        is_taken: AtomicBool::new(false),
        key: AtomicUsize::new(NOTHING),
        eventfd: AtomicI32::new(-1),
    }
}; PLACES];

/// Places that were ever taken: a broadcast looks no further.
static USED: AtomicUsize = AtomicUsize::new(0);

/// A thread that is about to sleep.
#[derive(Debug)]
pub(crate) struct Sleeper {
    place: &'static Place,
}

impl Sleeper {
    /// Announces a sleep for the source of this key, or for [`ANY`]. The thread must check once more before it sleeps.
    /// `None` without a free slot: the thread then sleeps for short times.
    pub(crate) fn begin(key: usize) -> Option<Self> {
        let (index, place) = PLACE.iter().enumerate().find(|(_, place)| {
            !place.is_taken.load(Ordering::Relaxed) && !place.is_taken.swap(true, Ordering::Acquire)
        })?;
        USED.fetch_max(index + 1, Ordering::SeqCst);
        let sleeper = Self { place };
        if place.eventfd.load(Ordering::Relaxed) < 0 {
            place
                .eventfd
                .store(kernel::eventfd().ok()?, Ordering::Relaxed);
        }
        place.key.store(key, Ordering::SeqCst);
        Some(sleeper)
    }

    /// Eventfd of this sleeper: readable after a broadcast.
    pub(crate) fn eventfd(&self) -> RawFd {
        self.place.eventfd.load(Ordering::Relaxed)
    }

    /// Resets the eventfd after it was readable.
    pub(crate) fn drain(&self) {
        kernel::drain_eventfd(self.eventfd());
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.place.key.store(NOTHING, Ordering::SeqCst);
        self.place.is_taken.store(false, Ordering::Release);
    }
}

/// Wakes all threads that sleep for the source of this key, or for [`ANY`].
pub(crate) fn wake(key: usize) {
    for place in PLACE.iter().take(USED.load(Ordering::SeqCst)) {
        let waits_for = place.key.load(Ordering::SeqCst);
        if waits_for == key || waits_for == ANY {
            kernel::signal_eventfd(place.eventfd.load(Ordering::Relaxed));
        }
    }
}

/// Wakes all threads of this process that sleep outside of sets.
pub(crate) fn wake_all() {
    for place in PLACE.iter().take(USED.load(Ordering::SeqCst)) {
        if place.key.load(Ordering::SeqCst) != NOTHING {
            kernel::signal_eventfd(place.eventfd.load(Ordering::Relaxed));
        }
    }
}

/// In the child of a fork: the other threads do not exist, and the eventfds are the parent's. Its threads wake and
/// check again, as one more process may read wake-ups now.
pub(crate) fn after_fork() {
    for place in PLACE.iter().take(USED.load(Ordering::Relaxed)) {
        let eventfd = place.eventfd.swap(-1, Ordering::Relaxed);
        if eventfd >= 0 {
            if place.key.load(Ordering::Relaxed) != NOTHING {
                kernel::signal_eventfd(eventfd);
            }
            private_fds::close(eventfd);
        }
        place.key.store(NOTHING, Ordering::Relaxed);
        place.is_taken.store(false, Ordering::Release);
    }
}
