//! What structures run on: real atomics, or those of a checker.

use std::fmt::Debug;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{self, AtomicU32, AtomicU64, Ordering};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::thread::futex;

use crate::Site;

/// An atomic word.
pub trait Word: Debug + Send + Sync {
    /// A word with this value.
    fn new(value: u64) -> Self;
    /// As [`AtomicU64::load`].
    fn load(&self, ordering: Ordering) -> u64;
    /// As [`AtomicU64::store`].
    fn store(&self, value: u64, ordering: Ordering);
    /// As [`AtomicU64::fetch_add`].
    fn fetch_add(&self, value: u64, ordering: Ordering) -> u64;
    /// As [`AtomicU64::fetch_sub`].
    fn fetch_sub(&self, value: u64, ordering: Ordering) -> u64;
    /// As [`AtomicU64::compare_exchange_weak`], with a relaxed failure.
    ///
    /// # Errors
    /// The value that was there instead of `current`, or `current` itself if it failed for no reason.
    fn compare_exchange_weak(&self, current: u64, new: u64, success: Ordering) -> Result<u64, u64>;
}

/// Where threads sleep.
pub trait Parker: Debug + Send + Sync {
    /// A parker at which nobody sleeps.
    fn new() -> Self;
    /// What to give to [`Parker::sleep`]: it is another one after each [`Parker::wake`].
    fn ticket(&self) -> u32;
    /// Sleeps until a [`Parker::wake`] that comes, or came, after `ticket` was handed out. May return
    /// earlier for no reason.
    fn sleep(&self, ticket: u32);
    /// Wakes all who sleep, and makes tickets handed out before void.
    fn wake(&self);
}

/// Atomic words, fences, spinning and sleeping.
pub trait Platform: Debug + Send + Sync + 'static {
    /// Its atomic words.
    type Word: Word;
    /// Its beds.
    type Parker: Parker;

    /// The ordering of a site. Platforms that check weaken some.
    #[must_use]
    fn ordering(site: Site) -> Ordering {
        site.ordering()
    }

    /// A fence with the ordering of `site`; none if that is relaxed.
    fn fence(site: Site);

    /// Lets time pass in a loop that polls. `round` counts its rounds from zero.
    fn relax(round: u32);
}

/// The machine's own atomics.
#[derive(Clone, Copy, Debug)]
pub struct Native;

/// After so many rounds of polling the processor is left to another thread: the one that is waited for may
/// be waiting for it.
const ROUNDS_BEFORE_YIELD: u32 = 64;

impl Platform for Native {
    type Word = AtomicU64;
    type Parker = Futex;

    #[inline]
    fn fence(site: Site) {
        atomic::fence(site.ordering());
    }

    #[inline]
    fn relax(round: u32) {
        if round < ROUNDS_BEFORE_YIELD {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

/// Sleeps on a futex (Linux). The ticket is the word that the kernel compares before it lets a thread
/// sleep.
#[derive(Debug)]
pub struct Futex {
    /// How many wakings there were. Relaxed: the order between what was changed and who sleeps is made by
    /// the fences of the [`Event`](crate::Event), and the kernel compares under a lock of its own.
    wakings: AtomicU32,
}

impl Parker for Futex {
    fn new() -> Self {
        Self {
            wakings: AtomicU32::new(0),
        }
    }

    fn ticket(&self) -> u32 {
        self.wakings.load(Ordering::Relaxed)
    }

    fn sleep(&self, ticket: u32) {
        // Whatever the reason for its return - woken, too late, a signal - the caller looks again.
        let _ = futex::wait(&self.wakings, futex::Flags::PRIVATE, ticket, None);
    }

    fn wake(&self) {
        self.wakings.fetch_add(1, Ordering::Relaxed);
        // It fails only for an address that is not mapped.
        let _ = futex::wake(
            &self.wakings,
            futex::Flags::PRIVATE,
            i32::MAX.unsigned_abs(),
        );
    }
}

/// [`Native`], but for sleeping on an eventfd: for a thread that waits for other descriptors as well.
#[derive(Clone, Copy, Debug)]
pub struct NativeEventFd;

impl Platform for NativeEventFd {
    type Word = AtomicU64;
    type Parker = EventFd;

    #[inline]
    fn fence(site: Site) {
        Native::fence(site);
    }

    #[inline]
    fn relax(round: u32) {
        Native::relax(round);
    }
}

/// Sleeps on an eventfd. One thread at a time may take tickets and sleep: taking a ticket empties the
/// eventfd, and with it would go another one's waking.
#[derive(Debug)]
pub struct EventFd {
    descriptor: OwnedFd,
}

impl AsFd for EventFd {
    /// The descriptor to poll: readable once there was a waking after the last ticket.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Parker for EventFd {
    /// # Panics
    /// If the process has no descriptor left.
    fn new() -> Self {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Self {
            descriptor: eventfd(0, flags).expect("a descriptor is left for an eventfd"),
        }
    }

    fn ticket(&self) -> u32 {
        let mut count = [0; 8];
        // It fails if there was no waking, which is as good.
        let _ = rustix::io::read(&self.descriptor, &mut count);
        0
    }

    fn sleep(&self, _: u32) {
        let mut watched = [PollFd::new(&self.descriptor, PollFlags::IN)];
        // Whatever the reason for its return, the caller looks again.
        let _ = poll(&mut watched, None);
    }

    fn wake(&self) {
        // It fails if the count would overflow, after 2^64 wakings that nobody took: it is readable then.
        let _ = rustix::io::write(&self.descriptor, &1_u64.to_ne_bytes());
    }
}

impl Word for AtomicU64 {
    #[inline]
    fn new(value: u64) -> Self {
        Self::new(value)
    }

    #[inline]
    fn load(&self, ordering: Ordering) -> u64 {
        self.load(ordering)
    }

    #[inline]
    fn store(&self, value: u64, ordering: Ordering) {
        self.store(value, ordering);
    }

    #[inline]
    fn fetch_add(&self, value: u64, ordering: Ordering) -> u64 {
        self.fetch_add(value, ordering)
    }

    #[inline]
    fn fetch_sub(&self, value: u64, ordering: Ordering) -> u64 {
        self.fetch_sub(value, ordering)
    }

    #[inline]
    fn compare_exchange_weak(&self, current: u64, new: u64, success: Ordering) -> Result<u64, u64> {
        self.compare_exchange_weak(current, new, success, Ordering::Relaxed)
    }
}
