//! Numbers that are about to mean something else: sockets of which a connect is under way.
//!
//! Who accepts may see a connection, and act on it, before the number of whoever connects means it. Other threads that use
//! the number then find a socket that is not connected; so they wait until the change is over.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::thread;
use crate::wait::now;

/// How many changes there are at once, of which others know.
const PLACES: usize = 16;
/// A change that takes longer is that of a thread which is no more.
const PATIENCE: Duration = Duration::from_secs(5);

static COUNT: AtomicU32 = AtomicU32::new(0);
/// Of each change, the thread in the upper half and the number; 0 is none.
static CHANGES: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];

/// A number is changed by this thread until this is dropped.
#[derive(Debug)]
pub(crate) struct Change(Option<&'static AtomicU64>);

impl Change {
    pub(crate) fn begin(fd: c_int) -> Self {
        let word = u64::from(thread::tid()) << 32 | u64::from(fd.unsigned_abs());
        let free = |place: &&AtomicU64| {
            place
                .compare_exchange(0, word, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        };
        let place = CHANGES.iter().find(free);
        if place.is_some() {
            // Release: who finds the count finds the number.
            COUNT.fetch_add(1, Ordering::Release);
        }
        Self(place)
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            place.store(0, Ordering::Release);
            // Release: who finds it no more in the count finds what the number means.
            COUNT.fetch_sub(1, Ordering::Release);
        }
    }
}

/// Whether there is a change of any number. What those that have ended made is seen after this.
#[inline]
pub(crate) fn is_any() -> bool {
    COUNT.load(Ordering::Acquire) != 0
}

/// Waits until no other thread changes the number.
#[cold]
pub(crate) fn wait(fd: c_int) {
    let (own, number) = (u64::from(thread::tid()), u64::from(fd.unsigned_abs()));
    let is_of_another = |place: &AtomicU64| {
        // Acquire pairs with the release of `Change::drop`: what the number means then is seen.
        let word = place.load(Ordering::Acquire);
        word != 0 && word & 0xffff_ffff == number && word >> 32 != own
    };
    let mut began = None;
    while CHANGES.iter().any(is_of_another) {
        let now = now();
        if now > *began.get_or_insert(now) + PATIENCE {
            break;
        }
        rustix::thread::sched_yield();
    }
}

/// In the child of a fork: other threads, and their changes, are not there.
pub(crate) fn forget() {
    for place in &CHANGES {
        place.store(0, Ordering::Relaxed);
    }
    COUNT.store(0, Ordering::Relaxed);
}
