//! Listeners whose monitor died, and which wait for the next one.
//!
//! A program that only accepts asks the monitor for nothing. So as long as there is such a listener, waits that begin
//! are cut into sleeps of a second, and between them it is announced again.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::entry::{Hearing, Kind};
use crate::wait::now;
use crate::{listeners, table};

/// From one attempt to the next.
pub(crate) const EVERY: Duration = Duration::from_secs(1);

/// How often a listener lost its channel.
static NOTED: AtomicU32 = AtomicU32::new(0);
/// Up to where all of them have another, or want none.
static SETTLED: AtomicU32 = AtomicU32::new(0);
/// When that was last tried, in nanoseconds.
static TRIED: AtomicU64 = AtomicU64::new(0);

/// A listener's channel died.
pub(crate) fn note() {
    TRIED.store(0, Ordering::Relaxed);
    NOTED.fetch_add(1, Ordering::Release);
}

pub(crate) fn noted() -> u32 {
    NOTED.load(Ordering::Acquire)
}

/// There may be some.
#[inline]
fn is_any() -> bool {
    noted() != SETTLED.load(Ordering::Relaxed)
}

/// How long a sleep may be that would be `left`.
#[inline]
pub(crate) fn limit(left: Option<Duration>) -> Option<Duration> {
    if is_any() {
        return Some(shortened(left));
    }
    left
}

/// How long one is that would be `left`, while a listener is deaf.
pub(crate) fn shortened(left: Option<Duration>) -> Duration {
    left.unwrap_or(EVERY).min(EVERY)
}

/// Announces them again, now and then, before a wait that holds no locks of sets.
#[inline]
pub(crate) fn announce() {
    if is_any() && is_due() {
        announce_all();
    }
}

/// Whether the last attempt is long ago. Now is the next one.
#[cold]
fn is_due() -> bool {
    let (now, tried) = (now(), Duration::from_nanos(TRIED.load(Ordering::Relaxed)));
    if !tried.is_zero() && now < tried + EVERY {
        return false;
    }
    let nanos = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
    TRIED.store(nanos, Ordering::Relaxed);
    true
}

#[cold]
fn announce_all() {
    let noted = listeners::noted();
    let mut is_settled = true;
    let all = table::numbers(0, usize::MAX)
        .filter(|(fd, entry)| entry.bell() == *fd && entry.kind() == Kind::Listener);
    for (fd, entry) in all {
        // One that was shut down has no channel, and wants none.
        if entry.hearing() == Hearing::Deaf {
            is_settled &= listeners::announce_again(fd, entry).is_some();
        }
    }
    if is_settled {
        SETTLED.store(noted, Ordering::Relaxed);
    }
}
