//! Time and randomness of the real world: the one place that reads them for the libraries.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use millrace_document::Environment;

/// The system's clocks and random source.
#[derive(Debug)]
pub struct SystemEnvironment {
    started: Instant,
}

impl SystemEnvironment {
    /// An environment whose monotonic clock starts now.
    #[must_use]
    pub fn new() -> Self {
        Self {
            started: Instant::now(),
        }
    }

    /// The monotonic time of an instant.
    #[must_use]
    pub fn monotonic_at(&self, instant: Instant) -> Duration {
        instant.saturating_duration_since(self.started)
    }
}

impl Default for SystemEnvironment {
    fn default() -> Self {
        Self::new()
    }
}

impl Environment for SystemEnvironment {
    fn wall_clock_ms(&self) -> i64 {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }

    fn random(&self) -> u64 {
        getrandom::u64().expect("the system has a random source")
    }
}
