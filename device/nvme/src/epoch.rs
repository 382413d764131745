//! Which life of the controller it is, and whether it can be used.
//!
//! Each reset begins a new epoch. A queue pair remembers in which one its queues were made; as long as the
//! word is the same they are there. It is one load a poll.
//!
//! | who | changes it to |
//! |---|---|
//! | whoever resets, with the admin lock | resetting, of the next generation |
//! | the same, at the end | ready, failed or gone, of that generation |

use std::sync::atomic::{AtomicU64, Ordering};

/// Whether a controller can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It can.
    Ready,
    /// It is being reset; soon again.
    Resetting,
    /// It has failed for good.
    Failed,
    /// It was pulled out.
    Gone,
}

/// A generation and a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch(u64);

impl Epoch {
    pub(crate) const fn first() -> Self {
        Self::new(0, Condition::Ready)
    }

    const fn new(generation: u64, condition: Condition) -> Self {
        let bits = match condition {
            Condition::Ready => 0,
            Condition::Resetting => 1,
            Condition::Failed => 2,
            Condition::Gone => 3,
        };
        Self(generation << 2 | bits)
    }

    pub(crate) const fn condition(self) -> Condition {
        match self.0 & 3 {
            0 => Condition::Ready,
            1 => Condition::Resetting,
            2 => Condition::Failed,
            _ => Condition::Gone,
        }
    }

    /// How many resets there were.
    pub(crate) const fn generation(self) -> u64 {
        self.0 >> 2
    }

    /// The reset that follows it.
    pub(crate) const fn next(self) -> Self {
        Self::new((self.0 >> 2) + 1, Condition::Resetting)
    }

    /// The same generation in another condition.
    pub(crate) const fn with(self, condition: Condition) -> Self {
        Self::new(self.0 >> 2, condition)
    }
}

/// The word that holds it.
#[derive(Debug)]
pub(crate) struct EpochCell(AtomicU64);

impl EpochCell {
    pub(crate) const fn new(epoch: Epoch) -> Self {
        Self(AtomicU64::new(epoch.0))
    }

    /// Pairs with the release in [`EpochCell::store`]: who sees a controller ready again sees what the reset
    /// left behind.
    #[inline]
    pub(crate) fn load(&self) -> Epoch {
        Epoch(self.0.load(Ordering::Acquire))
    }

    /// Pairs with the acquire in [`EpochCell::load`].
    pub(crate) fn store(&self, epoch: Epoch) {
        self.0.store(epoch.0, Ordering::Release);
    }
}
