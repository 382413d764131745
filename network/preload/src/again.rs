//! Listeners whose monitor died, and which wait for the next one.
//!
//! A program that only accepts asks the monitor for nothing. So as long as there is such a listener, waits are cut into
//! sleeps of a second, and between them it is announced again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::calls::sockets;
use crate::entry::{Hold, Kind};
use crate::table;

/// From one attempt to the next.
pub(crate) const EVERY: Duration = Duration::from_secs(1);

/// There may be some.
static IS_ANY: AtomicBool = AtomicBool::new(false);

/// A listener's channel died.
pub(crate) fn note() {
    IS_ANY.store(true, Ordering::Relaxed);
}

/// How long a sleep may be that would be `left`.
#[inline]
pub(crate) fn limit(left: Option<Duration>) -> Option<Duration> {
    if IS_ANY.load(Ordering::Relaxed) {
        return Some(left.unwrap_or(EVERY).min(EVERY));
    }
    left
}

/// Announces them again, before a wait that holds no locks of sets.
#[inline]
pub(crate) fn announce() {
    if IS_ANY.load(Ordering::Relaxed) {
        announce_all();
    }
}

#[cold]
fn announce_all() {
    IS_ANY.store(false, Ordering::Relaxed);
    let listeners = table::numbers(0, usize::MAX)
        .filter(|(fd, entry)| entry.bell() == *fd && entry.kind() == Kind::Listener);
    for (fd, entry) in listeners {
        if !entry.is_deaf.load(Ordering::Relaxed) || !entry.pin(fd, Hold::Call) {
            continue;
        }
        // One that was shut down has no channel, and wants none.
        if entry.hidden.load(Ordering::Relaxed) >= 0 && sockets::announce_again(fd, entry).is_none()
        {
            note();
        }
        entry.release(Hold::Call);
    }
}
