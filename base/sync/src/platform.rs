//! What structures run on: real atomics, or those of a checker.

mod condvar;
#[cfg(target_os = "linux")]
mod event_fd;
#[cfg(target_os = "linux")]
mod futex;

use std::fmt::Debug;
use std::io;
use std::sync::atomic::{self, AtomicU64, Ordering};

use crate::Site;

pub use condvar::CondvarParker;
#[cfg(target_os = "linux")]
pub use event_fd::{EventFd, NativeEventFd};
#[cfg(target_os = "linux")]
pub use futex::Futex;

/// Where threads of [`Native`] sleep.
#[cfg(target_os = "linux")]
type NativeParker = Futex;
#[cfg(not(target_os = "linux"))]
type NativeParker = CondvarParker;

/// An atomic word.
///
/// # Safety
/// Structures derive ownership of memory from these words. A word is what an [`AtomicU64`] is: it begins with its
/// initial value, changes only by these methods, and each of them is atomic and does what the
/// method of the same name does there, with at least the given ordering.
pub unsafe trait Word: Debug + Send + Sync {
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

/// Place where threads sleep until a wake-up.
pub trait Parker: Debug + Send + Sync + Sized {
    /// How many threads may take tickets and sleep at a time.
    const SLEEPERS_MAX: u64 = u64::MAX;

    /// A parker without sleepers. A parker whose creation cannot fail is [`Default`] as well.
    ///
    /// # Errors
    /// The system's error if it is out of the parker's resource.
    fn try_new() -> io::Result<Self>;
    /// What to give to [`Parker::sleep`]: it is another one after each [`Parker::wake`].
    fn ticket(&self) -> u32;
    /// Sleeps until a [`Parker::wake`] that comes, or came, after `ticket` was handed out. May return
    /// earlier for no reason.
    fn sleep(&self, ticket: u32);
    /// Wakes all sleepers, and makes all earlier tickets void.
    fn wake(&self);
}

/// Atomic words, fences, spinning and sleeping.
///
/// # Safety
/// Structures hand out memory by the orderings that they have here: [`Platform::ordering`] returns one at
/// least as strong as [`Site::ordering`], and [`Platform::fence`] is a fence at least as strong.
///
/// A checker alone may give less, to see whether that is noticed. It then answers for all that is made on
/// it: its threads take turns on one processor, where memory is what the one before has left, and items lie
/// in cells of its own ([`RingCells`](crate::ring::RingCells), never
/// [`HeapCells`](crate::ring::HeapCells)), which look at every access before it is made and have no memory
/// that a wrong position could corrupt.
pub unsafe trait Platform: Debug + Send + Sync + 'static {
    /// Its atomic words.
    type Word: Word;
    /// Its beds.
    type Parker: Parker;

    /// The ordering of a site.
    #[must_use]
    fn ordering(site: Site) -> Ordering {
        site.ordering()
    }

    /// A fence with the ordering of `site`.
    fn fence(site: Site);

    /// Lets time pass in a loop that polls. `round` counts its rounds from zero.
    fn relax(round: u32);
}

/// Platform of the machine's own atomics. Threads sleep on a futex on Linux, elsewhere on a [`CondvarParker`].
#[derive(Clone, Copy, Debug)]
pub struct Native;

/// Rounds of polling after which the thread yields the processor: the awaited thread may need it.
const ROUNDS_BEFORE_YIELD: u32 = 64;

// SAFETY: the orderings are the sites' own, and the fences those of the standard library.
unsafe impl Platform for Native {
    type Word = AtomicU64;
    type Parker = NativeParker;

    #[inline]
    fn fence(site: Site) {
        atomic::fence(site.ordering());
    }

    // On POWER `spin_loop` is nothing: Rust knows no hint there, and has no stable inline assembly for it
    // in 1.85. The instruction (`or 27,27,27`) would give a core's other threads the turn; a call of C for it
    // has to be weighed on a machine, and until then sixty-four empty rounds are short.
    #[inline]
    fn relax(round: u32) {
        if round < ROUNDS_BEFORE_YIELD {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

// SAFETY: it is the standard library's.
unsafe impl Word for AtomicU64 {
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
