//! Time as the server sees it: a trait, and the machine's clocks behind it.
//!
//! Everything in the path of a request - connections, dispatch, journal, maintenance - reads the time from a
//! [`Clock`] that it was given, so that a test can run it on simulated time. A point in time is a [`Duration`]
//! since the clock's origin. This is the only file of the server that reads the machine's clocks
//! (`tests/tidy` checks it); the subcommands for devices, volumes and sockets measure by themselves.

use std::fmt::Debug;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A source of time. Any thread may read it.
pub trait Clock: Send + Sync + Debug + 'static {
    /// Monotonic time since the clock's origin; never goes back.
    fn now(&self) -> Duration;

    /// The wall clock, in milliseconds since 1970-01-01 UTC; may go back.
    fn wall_clock_ms(&self) -> i64;
}

/// The monotonic clock and the wall clock of the machine.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    origin: Instant,
}

impl SystemClock {
    /// A clock whose origin is now.
    #[must_use]
    pub fn new() -> Self {
        Self {
            origin: Instant::now(),
        }
    }

    /// The clock's origin, for a library that measures from an instant.
    #[must_use]
    pub const fn origin(&self) -> Instant {
        self.origin
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn wall_clock_ms(&self) -> i64 {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
    }
}
