//! Time and randomness of the real world, and the memory budget, for the libraries.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use millrace_document::Environment;

use crate::memory::{MemoryBudget, Share};

/// The system's clocks and random source, and the share of sorts.
#[derive(Debug)]
pub struct SystemEnvironment {
    started: Instant,
    budget: Arc<MemoryBudget>,
}

impl SystemEnvironment {
    /// An environment whose monotonic clock starts now.
    #[must_use]
    pub fn new(budget: Arc<MemoryBudget>) -> Self {
        Self {
            started: Instant::now(),
            budget,
        }
    }

    /// The monotonic time of an instant.
    #[must_use]
    pub fn monotonic_at(&self, instant: Instant) -> Duration {
        instant.saturating_duration_since(self.started)
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

    fn try_reserve_memory(&self, bytes: usize) -> bool {
        self.budget.try_reserve(Share::Sorts, bytes)
    }

    fn release_memory(&self, bytes: usize) {
        self.budget.release(Share::Sorts, bytes);
    }
}
