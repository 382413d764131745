//! The clock of every timeout.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Time since the machine started, by the monotonic clock and without a system call.
pub(crate) fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(
        u64::try_from(now.tv_sec).unwrap_or(0),
        u32::try_from(now.tv_nsec).unwrap_or(0),
    )
}
