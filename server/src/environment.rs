//! Time, randomness and memory of the server, as the libraries are given them.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use millrace_value::Environment;

use crate::clock::Clock;
use crate::memory::{MemoryBudget, Share};

/// A source of random numbers. Any thread may draw.
pub trait Entropy: Send + Sync + Debug + 'static {
    /// 64 random bits; unguessable in production.
    fn number(&self) -> u64;
}

/// The random source of the operating system (getrandom(2)).
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn number(&self) -> u64 {
        getrandom::u64().expect("the system has a random source")
    }
}

/// A clock, a random source, and the share of sorts of the memory budget.
#[derive(Debug)]
pub struct ServerEnvironment {
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    budget: Arc<MemoryBudget>,
}

impl ServerEnvironment {
    /// An environment of a clock, a random source and a memory budget.
    #[must_use]
    pub const fn new(
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        budget: Arc<MemoryBudget>,
    ) -> Self {
        Self {
            clock,
            entropy,
            budget,
        }
    }

    /// The clock that all parts of the server read.
    #[must_use]
    pub const fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }
}

impl Environment for ServerEnvironment {
    fn wall_clock_ms(&self) -> i64 {
        self.clock.wall_clock_ms()
    }

    fn monotonic(&self) -> Duration {
        self.clock.now()
    }

    fn random(&self) -> u64 {
        self.entropy.number()
    }

    fn try_reserve_memory(&self, bytes: usize) -> bool {
        self.budget.try_reserve(Share::Sorts, bytes)
    }

    fn release_memory(&self, bytes: usize) {
        self.budget.release(Share::Sorts, bytes);
    }
}
