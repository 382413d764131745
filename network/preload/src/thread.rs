//! What a thread knows of itself.

use std::cell::Cell;

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

/// In the child of a fork: the number is another now.
pub(crate) fn forget() {
    TID.with(|tid| tid.set(0));
}
