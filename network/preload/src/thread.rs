//! Cached ids of the thread and of its process.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

thread_local! {
    static TID: Cell<u32> = const { Cell::new(0) };
}

/// The kernel's number of this thread.
#[inline]
pub(crate) fn tid() -> u32 {
    TID.with(|tid| match tid.get() {
        0 => {
            let number = rustix::thread::gettid()
                .as_raw_nonzero()
                .get()
                .unsigned_abs();
            tid.set(number);
            number
        }
        number => number,
    })
}

/// The kernel's number of this process; 0 is not known yet.
static PID: AtomicU32 = AtomicU32::new(0);

/// The kernel's number of this process.
#[inline]
pub(crate) fn pid() -> u32 {
    match PID.load(Ordering::Relaxed) {
        0 => {
            let number = std::process::id();
            PID.store(number, Ordering::Relaxed);
            number
        }
        number => number,
    }
}

/// In the child of a fork: the numbers are others now.
pub(crate) fn forget() {
    TID.with(|tid| tid.set(0));
    PID.store(0, Ordering::Relaxed);
}
