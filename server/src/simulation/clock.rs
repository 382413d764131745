//! A clock that stands still until a test moves it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Clock;

/// The wall clock at the origin, in milliseconds: 2026-01-01.
const WALL_ORIGIN_MS: i64 = 1_767_225_600_000;

/// Simulated time; it advances only by [`SimulatedClock::advance_to`]. One thread moves it, so `Relaxed` suffices.
#[derive(Debug, Default)]
pub(crate) struct SimulatedClock {
    /// Nanoseconds since the origin.
    now_ns: AtomicU64,
}

impl SimulatedClock {
    /// Moves the clock to `now`, a time since its origin; an earlier one leaves it where it is.
    pub(crate) fn advance_to(&self, now: Duration) {
        let now_ns = u64::try_from(now.as_nanos()).expect("tests last less than 500 years");
        self.now_ns.fetch_max(now_ns, Ordering::Relaxed);
    }
}

impl Clock for SimulatedClock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.now_ns.load(Ordering::Relaxed))
    }

    fn wall_clock_ms(&self) -> i64 {
        let elapsed =
            i64::try_from(self.now().as_millis()).expect("tests last less than 500 years");
        WALL_ORIGIN_MS + elapsed
    }
}
