//! Host services that the driver's user provides: time and pauses.

use std::fmt;
use std::time::{Duration, Instant};

/// The time, and what to do while waiting. A test brings one that steps a model of the controller and lets
/// its own time pass.
pub trait Host: fmt::Debug + Send + Sync {
    /// The time since some moment; never less than before.
    fn now(&self) -> Duration;

    /// Lets time pass in a loop that waits for the controller. `round` counts its rounds from zero.
    fn relax(&self, round: u32);

    /// Pauses in a wait of milliseconds to hours, for a controller to become ready or for an admin command such as a
    /// format. A host may sleep here for about a millisecond.
    fn rest(&self, round: u32) {
        self.relax(round);
    }
}

/// The machine's monotonic clock and threads, for callers that have no clock of their own.
#[derive(Clone, Copy, Debug)]
pub struct SystemHost {
    start: Instant,
}

impl SystemHost {
    /// A host whose time begins at `start`.
    #[must_use]
    pub const fn new(start: Instant) -> Self {
        Self { start }
    }
}

/// Rounds of waiting after which the thread yields the processor, perhaps to a thread that serves the controller.
const ROUNDS_BEFORE_YIELD: u32 = 256;
/// Rounds of a long wait, a few milliseconds in all, after which the thread sleeps: each time a little longer, up to a
/// limit that is short beside the wait.
const ROUNDS_BEFORE_SLEEP: u32 = 4096;
const SLEEP_US_MAX: u32 = 1000;

impl Host for SystemHost {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn relax(&self, round: u32) {
        if round < ROUNDS_BEFORE_YIELD {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }

    fn rest(&self, round: u32) {
        match round.checked_sub(ROUNDS_BEFORE_SLEEP) {
            None => self.relax(round),
            Some(rounds) => {
                let sleep_us = rounds.clamp(50, SLEEP_US_MAX);
                std::thread::sleep(Duration::from_micros(sleep_us.into()));
            }
        }
    }
}
