//! Numbers that are about to mean something else: sockets of which a connect is under way.
//!
//! A server may accept a connection, and act on it, before the number of the connecting socket means it. Other threads
//! of the client that use the number would find a socket that is not connected; they wait until the transition ends.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::thread::{Timespec, nanosleep, sched_yield};

use crate::clock::now;
use crate::{pristine_sockets, thread};

/// How many changes there are at once, of which others know.
const PLACES: usize = 256;
/// Time after which a transition counts as abandoned, by a thread that exited.
const PATIENCE: Duration = Duration::from_secs(5);
/// Number of yields of a waiter before it sleeps: the connecting thread may have a lower priority.
const YIELDS: u32 = 100;
const PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000,
};

/// Changed by read-modify-write operations alone, so that each value carries all earlier releases.
static COUNT: AtomicU32 = AtomicU32::new(0);
/// How many places were ever used: a search ends there.
static USED: AtomicUsize = AtomicUsize::new(0);
/// Each pending transition: thread id in the upper half, number in the lower; 0 is a free slot.
static CHANGES: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];

/// A number is changed by this thread until this is dropped.
#[derive(Debug)]
pub(crate) struct FdTransition(Option<&'static AtomicU64>);

impl FdTransition {
    pub(crate) fn begin(fd: c_int) -> Self {
        let word = u64::from(thread::tid()) << 32 | u64::from(fd.unsigned_abs());
        let free = |place: &&AtomicU64| {
            // Acquire: a thread that sees the end of this transition sees the effects of earlier ones in the slot.
            place
                .compare_exchange(0, word, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        };
        let place = CHANGES.iter().enumerate().find(|(_, place)| free(place));
        if let Some((index, _)) = place {
            USED.fetch_max(index + 1, Ordering::Relaxed);
            // Release: a thread that sees the count sees the number.
            COUNT.fetch_add(1, Ordering::Release);
        }
        Self(place.map(|(_, place)| place))
    }
}

impl Drop for FdTransition {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            place.store(0, Ordering::Release);
            // Release: a thread that sees the decrement sees what the number means. In a child forked by a handler
            // meanwhile the transition is not counted.
            let _none = COUNT.fetch_update(Ordering::Release, Ordering::Relaxed, |count| {
                count.checked_sub(1)
            });
        }
    }
}

/// Whether any transition is pending. A false result makes the effects of ended transitions visible.
#[inline]
pub(crate) fn has_pending() -> bool {
    COUNT.load(Ordering::Acquire) != 0
}

/// Waits until no other thread has a transition of the number, or of a possible copy of it; at most [`PATIENCE`], and
/// not for transitions without a slot.
#[cold]
pub(crate) fn wait(fd: c_int) {
    let own = u64::from(thread::tid());
    let is_copied = pristine_sockets::is_copied(fd);
    let is_of_another = |place: &AtomicU64| {
        // Acquire pairs with the release of `FdTransition::drop`: the meaning of the number is visible.
        let word = place.load(Ordering::Acquire);
        if word == 0 || word >> 32 == own {
            return false;
        }
        let changed = c_int::try_from(word & 0xffff_ffff).unwrap_or(-1);
        changed == fd || is_copied && pristine_sockets::is_copied(changed)
    };
    let used = USED.load(Ordering::Relaxed);
    let mut began = None;
    let mut yields = 0;
    while CHANGES.iter().take(used).any(is_of_another) {
        let now = now();
        if now > *began.get_or_insert(now) + PATIENCE {
            break;
        }
        if yields < YIELDS {
            yields += 1;
            sched_yield();
        } else {
            let _interrupted = nanosleep(&PAUSE);
        }
    }
}

/// In the child of a fork: other threads, and their changes, are not there.
pub(crate) fn forget() {
    for place in &CHANGES {
        place.store(0, Ordering::Relaxed);
    }
    COUNT.store(0, Ordering::Relaxed);
}
