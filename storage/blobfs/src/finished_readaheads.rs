//! Read-aheads that have reached the end of their file, by volume.

use std::fmt;
use std::sync::{Mutex, Weak};

/// Outcome of [`ReleaseBuffers::try_release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// The buffers are free.
    Released,
    /// The read-ahead has not reached the end of its file (any more): its buffers are in use.
    NotFinished,
    /// A reader holds the lock of the read-ahead.
    Busy,
}

/// A read-ahead whose buffers can be released before its reader has asked for all of them.
pub(crate) trait ReleaseBuffers: fmt::Debug + Send + Sync {
    /// Releases the buffers if the read-ahead has reached the end of its file; never blocks.
    fn try_release(&self) -> Release;
}

/// The finished read-aheads of a volume.
///
/// A reader that reaches the last data of a file rarely reads to the end of the file, and keeps the file open. Another
/// file's read-ahead takes these buffers when none is free.
///
/// # Locking
/// Taken while the lock of one read-ahead is held; [`ReleaseBuffers::try_release`] therefore only tries other locks.
#[derive(Debug, Default)]
pub(crate) struct FinishedReadaheads(Mutex<Vec<Weak<dyn ReleaseBuffers>>>);

impl FinishedReadaheads {
    /// Adds a read-ahead, and removes those that no longer exist.
    pub(crate) fn add(&self, added: Weak<dyn ReleaseBuffers>) {
        let mut all = self.0.lock().expect("no holder of the lock panics");
        all.retain(|other| other.strong_count() > 0 && !other.ptr_eq(&added));
        all.push(added);
    }

    /// Releases the buffers of every finished read-ahead that no reader is using; whether there were any.
    pub(crate) fn release(&self) -> bool {
        let all = std::mem::take(&mut *self.0.lock().expect("no holder of the lock panics"));
        let mut has_released = false;
        let mut busy = Vec::new();
        for weak in all {
            match weak.upgrade().map(|readahead| readahead.try_release()) {
                Some(Release::Released) => has_released = true,
                Some(Release::Busy) => busy.push(weak),
                Some(Release::NotFinished) | None => {}
            }
        }
        self.0
            .lock()
            .expect("no holder of the lock panics")
            .extend(busy);
        has_released
    }
}
