//! What was done so that requests succeed although something went wrong.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of recoveries that made requests succeed. All are zero on a sound controller: a test, or an operator, finds
/// here the problems that success hides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Resets not requested by the owner: after a late command or admin command, an invalid completion, or a fatal
    /// status.
    pub resets: u64,
    /// Commands that were late, and asked to be aborted.
    pub aborts: u64,
    /// Commands that were sent again, after a reset (also one that was asked for) or a status that allows it.
    pub retries: u64,
}

/// Counts of [`Recovery`]. Each stands for itself: relaxed.
#[derive(Debug, Default)]
pub(crate) struct RecoveryCounts {
    resets: AtomicU64,
    aborts: AtomicU64,
    retries: AtomicU64,
}

impl RecoveryCounts {
    pub(crate) fn count_reset(&self) {
        self.resets.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_abort(&self) {
        self.aborts.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Recovery {
        Recovery {
            resets: self.resets.load(Ordering::Relaxed),
            aborts: self.aborts.load(Ordering::Relaxed),
            retries: self.retries.load(Ordering::Relaxed),
        }
    }
}
