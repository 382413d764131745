//! Epoch of a controller: generation and condition in one word.
//!
//! Each reset begins a new epoch. A queue pair stores the epoch in which its queues were created; they exist as long as
//! the word is unchanged. A check is one load a poll.
//!
//! | writer | new value |
//! |---|---|
//! | a reset, with the admin lock | resetting, of the next generation |
//! | the same reset, at its end | ready, failed or gone, of that generation |

use std::sync::atomic::{AtomicU64, Ordering};

/// Whether a controller can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The controller accepts commands.
    Ready,
    /// It is being reset; soon again.
    Resetting,
    /// The controller has failed for good.
    Failed,
    /// The device was removed from the bus.
    Gone,
}

/// Generation and condition of a controller.
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

    /// Number of resets so far.
    pub(crate) const fn generation(self) -> u64 {
        self.0 >> 2
    }

    /// Epoch of the reset that follows this one.
    pub(crate) const fn next(self) -> Self {
        Self::new((self.0 >> 2) + 1, Condition::Resetting)
    }

    /// This generation in another condition.
    pub(crate) const fn with(self, condition: Condition) -> Self {
        Self::new(self.0 >> 2, condition)
    }
}

/// Atomic cell of the current epoch.
#[derive(Debug)]
pub(crate) struct EpochCell(AtomicU64);

impl EpochCell {
    pub(crate) const fn new(epoch: Epoch) -> Self {
        Self(AtomicU64::new(epoch.0))
    }

    /// Pairs with the release in [`EpochCell::store`]: a reader that sees the controller ready sees all effects of the
    /// reset.
    #[inline]
    pub(crate) fn load(&self) -> Epoch {
        Epoch(self.0.load(Ordering::Acquire))
    }

    /// Pairs with the acquire in [`EpochCell::load`].
    pub(crate) fn store(&self, epoch: Epoch) {
        self.0.store(epoch.0, Ordering::Release);
    }
}
