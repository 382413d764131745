//! Listeners whose monitor died, and which wait for the next one.
//!
//! A program that only accepts asks the monitor for nothing. So as long as there is such a listener, waits that begin
//! are cut into sleeps of a second, and between them it is announced again.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::entry::{FDS, Kind, ListenerState};
use crate::listeners;
use crate::lost_channels::{is_due, noted, shortened};

/// Up to where all of them have another, or want none.
static SETTLED: AtomicU32 = AtomicU32::new(0);
/// There may be some.
#[inline]
fn has_pending() -> bool {
    noted() != SETTLED.load(Ordering::Relaxed)
}

/// How long a sleep may be that would be `left`.
#[inline]
pub(crate) fn limit(left: Option<Duration>) -> Option<Duration> {
    if has_pending() {
        return Some(shortened(left));
    }
    left
}

/// Announces them again, now and then, before a wait that holds no locks of sets.
#[inline]
pub(crate) fn announce() {
    if has_pending() && is_due() {
        announce_all();
    }
}

#[cold]
fn announce_all() {
    let noted = listeners::noted();
    let mut is_settled = true;
    let all = FDS
        .numbers(0, usize::MAX)
        .filter(|(fd, entry)| entry.wakeup_fd() == *fd && entry.kind() == Kind::Listener);
    for (fd, entry) in all {
        // One that was shut down has no channel, and wants none.
        if entry.listener_state() == ListenerState::Disconnected {
            is_settled &= listeners::announce_again(fd, entry).is_some();
        }
    }
    if is_settled {
        SETTLED.store(noted, Ordering::Relaxed);
    }
}
