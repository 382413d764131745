//! Interrupts: eventfds by vector.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

/// What is signalled when a vector fires. The host sets it; the step signals.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    events: Mutex<Vec<Option<OwnedFd>>>,
}

impl Lines {
    /// Replaces all events.
    pub(crate) fn set(&self, events: Vec<Option<OwnedFd>>) {
        *self.events.lock().unwrap_or_else(PoisonError::into_inner) = events;
    }

    /// Replaces events from vector `first` on.
    pub(crate) fn set_from(&self, first: usize, events: Vec<Option<OwnedFd>>) {
        let mut all = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let length = all.len().max(first + events.len());
        all.resize_with(length, || None);
        for (slot, event) in all[first..].iter_mut().zip(events) {
            *slot = event;
        }
    }

    /// Signals a vector; returns whether anybody listens.
    pub(crate) fn signal(&self, vector: u16) -> bool {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Some(event)) = events.get(usize::from(vector)) else {
            return false;
        };
        // An eventfd that is full is signalled already.
        let written = rustix::io::write(event, &1_u64.to_ne_bytes());
        written.is_ok()
    }
}
