//! For the tests of this crate and of those above it: operations whose time stands still (feature `testing`)
//! and random values (feature `arbitrary`).

#[cfg(any(test, feature = "arbitrary"))]
pub mod arbitrary;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::operation::Limits;
use crate::{Environment, Interrupt, Operation};

/// A clock that stands still, and random numbers that are the same in every run.
#[derive(Debug)]
pub struct StillEnvironment {
    wall_clock_ms: i64,
    fixed_random: Option<u64>,
    drawn: AtomicU64,
}

impl StillEnvironment {
    /// The wall clock stands at `wall_clock_ms`, in milliseconds since 1970-01-01 UTC, the monotonic one at
    /// zero.
    #[must_use]
    pub const fn new(wall_clock_ms: i64) -> Self {
        Self {
            wall_clock_ms,
            fixed_random: None,
            drawn: AtomicU64::new(0),
        }
    }

    /// The same clock, and `random` as the only random number.
    #[must_use]
    pub const fn with_random(self, random: u64) -> Self {
        Self {
            fixed_random: Some(random),
            ..self
        }
    }

    /// An operation in this environment whose stages may hold what `limits` says.
    #[must_use]
    pub fn operation(self, limits: Limits) -> Operation {
        Operation::new(Arc::new(self), Arc::new(Interrupt::default()), limits)
    }
}

impl Environment for StillEnvironment {
    fn wall_clock_ms(&self) -> i64 {
        self.wall_clock_ms
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }

    fn random(&self) -> u64 {
        if let Some(random) = self.fixed_random {
            return random;
        }
        // SplitMix64 (Steele, Lea, Flood 2014) of a counter.
        let drawn = self.drawn.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let mut value = drawn.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        value ^ (value >> 31)
    }
}

/// An operation at 2023-11-14T22:13:20Z with the default limits.
#[must_use]
pub fn operation() -> Operation {
    StillEnvironment::new(1_700_000_000_000).operation(Limits::default())
}
