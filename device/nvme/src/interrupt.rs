//! Sleeping until a controller interrupts.
//!
//! The event is emptied, then the completion ring is looked at, then the thread sleeps: an interrupt that
//! comes after that look finds the event empty and wakes the thread.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The most descriptors that are slept on.
const EVENTS_MAX: usize = 2;

/// Clears an eventfd.
pub(crate) fn empty(event: BorrowedFd<'_>) {
    let mut count = [0; 8];
    // It fails if there was no interrupt, which is as good.
    let _ = rustix::io::read(event, &mut count);
}

/// Signals an eventfd as an interrupt does.
pub(crate) fn signal(event: BorrowedFd<'_>) {
    // It fails if it is full, and signalled.
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

/// Sleeps until one of `events`, two at most, is readable, for at most `limit`.
pub(crate) fn sleep(events: &[BorrowedFd<'_>], limit: Duration) {
    let limit = Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(limit.subsec_nanos()),
    };
    let Some(first) = events.first() else {
        return;
    };
    let mut watched: [PollFd<'_>; EVENTS_MAX] =
        std::array::from_fn(|index| PollFd::new(events.get(index).unwrap_or(first), PollFlags::IN));
    // Whatever the reason for its return, the caller looks again.
    let _ = poll(&mut watched, Some(&limit));
}
