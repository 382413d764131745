//! The count of listeners that lost their channel to a broker, and the time of the last attempt to register them again.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::now;

/// Time from one attempt to the next.
pub(crate) const EVERY: Duration = Duration::from_secs(1);

/// Number of channels that listeners of this process lost.
static NOTED: AtomicU32 = AtomicU32::new(0);
/// Time of the last attempt in nanoseconds; 0 makes the next attempt due at once.
static TRIED: AtomicU64 = AtomicU64::new(0);

/// Counts one more lost channel, and makes the next attempt due at once.
pub(crate) fn note() {
    TRIED.store(0, Ordering::Relaxed);
    NOTED.fetch_add(1, Ordering::Release);
}

/// Number of channels that were lost so far.
pub(crate) fn noted() -> u32 {
    NOTED.load(Ordering::Acquire)
}

/// Length of a sleep of `left` while a listener has no channel: at most [`EVERY`].
pub(crate) fn shortened(left: Option<Duration>) -> Duration {
    left.unwrap_or(EVERY).min(EVERY)
}

/// Whether the last attempt is at least [`EVERY`] ago. If so, the attempt that follows counts as the last one.
#[cold]
pub(crate) fn is_due() -> bool {
    let (now, tried) = (now(), Duration::from_nanos(TRIED.load(Ordering::Relaxed)));
    if !tried.is_zero() && now < tried + EVERY {
        return false;
    }
    let nanos = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
    TRIED.store(nanos, Ordering::Relaxed);
    true
}
