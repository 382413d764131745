//! The count of this process's calls that may make kernel descriptors ready, or that end connections.
//!
//! A set with both kinds of members asks the kernel only now and then, as that is a system call. But a thread that
//! wrote into a pipe, and then waits, expects the event of the pipe at once. So calls that may make a kernel descriptor
//! ready are counted, and a set asks the kernel after a change of the count. So are calls that end connections, whose
//! other ends may be members that the kernel reports.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// There is a set with both kinds of members, or was.
static IS_COUNTED: AtomicBool = AtomicBool::new(false);
static CALLS: AtomicU32 = AtomicU32::new(0);

/// Counts a call, and passes its result on.
#[inline]
pub(crate) fn touched<T>(result: T) -> T {
    if IS_COUNTED.load(Ordering::Relaxed) {
        CALLS.fetch_add(1, Ordering::Relaxed);
    }
    result
}

/// Number of counted calls. A thread sees at least its own.
#[inline]
pub(super) fn calls() -> u32 {
    // Calls that were not counted came before the first look.
    if !IS_COUNTED.load(Ordering::Relaxed) {
        IS_COUNTED.store(true, Ordering::Relaxed);
    }
    CALLS.load(Ordering::Relaxed)
}
