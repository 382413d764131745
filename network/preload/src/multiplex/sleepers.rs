//! Threads of this process that sleep for user-level descriptors outside of sets.
//!
//! Rings are taken by whoever wakes first. If a connection has more watchers than one, he who took its rings tells
//! the others: each sleeper has an eventfd, which he polls beside what he waits for.
//!
//! # Invariants
//! 1. A place belongs to the thread that took it, until it drops the [`Sleeper`]. Its eventfd stays with the place.
//! 2. A sleeper publishes what he sleeps for, and looks again, before he sleeps; who broadcasts made its news
//!    visible before he reads that. All with sequential consistency, so that one of the two sees the other.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use crate::private_fds;

use super::kernel;

/// How many threads sleep at once with an eventfd; others sleep for short times.
const PLACES: usize = 1024;

/// Sleeps for more than one descriptor.
pub(crate) const ANY: usize = 1;
/// Does not sleep.
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
    /// Says that the thread sleeps for the source of this key, or for [`ANY`]. It must look once more before it
    /// sleeps. None if there are too many: the thread then sleeps for short times.
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

    /// What is readable once somebody told this sleeper.
    pub(crate) fn eventfd(&self) -> RawFd {
        self.place.eventfd.load(Ordering::Relaxed)
    }

    /// Takes what it was told, after it saw the eventfd readable.
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

/// Wakes all who sleep for the source of this key.
pub(crate) fn wake(key: usize) {
    for place in PLACE.iter().take(USED.load(Ordering::SeqCst)) {
        let waits_for = place.key.load(Ordering::SeqCst);
        if waits_for == key || waits_for == ANY {
            kernel::signal_eventfd(place.eventfd.load(Ordering::Relaxed));
        }
    }
}

/// Wakes all who sleep.
pub(crate) fn wake_all() {
    for place in PLACE.iter().take(USED.load(Ordering::SeqCst)) {
        if place.key.load(Ordering::SeqCst) != NOTHING {
            kernel::signal_eventfd(place.eventfd.load(Ordering::Relaxed));
        }
    }
}

/// In the child of a fork: the other threads are not there, and the eventfds are the parent's, whose threads look again:
/// there is one more now who may take rings.
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
