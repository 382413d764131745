//! The registration of listeners with the next broker, after theirs exited.
//!
//! A program that only accepts sends no requests to the broker. So while a listener is without a channel, waits are
//! split into sleeps of a second, and between them the listener is registered again.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::entry::{FDS, Kind};
use crate::listener::ListenerState;
use crate::listeners;
use crate::lost_channels::{is_due, noted, shortened};

/// Count of lost channels up to which all listeners have another, or need none.
static SETTLED: AtomicU32 = AtomicU32::new(0);
/// Whether a listener may be without a channel.
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
        // A listener that was shut down has no channel, and needs none.
        if entry.listener_state() == ListenerState::Disconnected {
            is_settled &= listeners::announce_again(fd, entry).is_some();
        }
    }
    if is_settled {
        SETTLED.store(noted, Ordering::Relaxed);
    }
}
