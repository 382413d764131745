//! The one memory budget of the process.
//!
//! # Shares
//! The budget is cut into shares once, at start. Code that allocates memory that a client can make grow
//! reserves it from a share first and releases it when it frees the memory:
//!
//! | share | taken by | when it is used up |
//! |---|---|---|
//! | `EngineCache` | the storage engine, as a whole, at start | the engine evicts |
//! | `Messages` | connections' read and write buffers | connections stop being read |
//! | `Sorts` | blocking stages of queries | they spill or fail |
//! | `Cursors` | cursors that wait for their next `getMore` | the oldest are closed |
//!
//! # Threads
//! Each share is one atomic counter. Reservations only bound a sum and publish no data, so `Relaxed`
//! suffices everywhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A share of the memory budget, named for the memory it limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// The storage engine's block cache and write buffers.
    EngineCache,
    /// Requests being received and replies being sent.
    Messages,
    /// Sorts and groups.
    Sorts,
    /// Idle cursors.
    Cursors,
}

impl Share {
    /// All shares, in the order of their indexes.
    pub const ALL: [Self; 4] = [
        Self::EngineCache,
        Self::Messages,
        Self::Sorts,
        Self::Cursors,
    ];

    /// The name of the share in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::EngineCache => "engine_cache",
            Self::Messages => "messages",
            Self::Sorts => "sorts",
            Self::Cursors => "cursors",
        }
    }

    const fn index(self) -> usize {
        match self {
            Self::EngineCache => 0,
            Self::Messages => 1,
            Self::Sorts => 2,
            Self::Cursors => 3,
        }
    }
}

/// The limits of the shares, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The limit of [`Share::EngineCache`], in bytes.
    pub engine_cache: usize,
    /// The limit of [`Share::Messages`], in bytes.
    pub messages: usize,
    /// The limit of [`Share::Sorts`], in bytes.
    pub sorts: usize,
    /// The limit of [`Share::Cursors`], in bytes.
    pub cursors: usize,
}

impl Default for Limits {
    fn default() -> Self {
        const MIB: usize = 1024 * 1024;
        Self {
            engine_cache: 256 * MIB,
            messages: 128 * MIB,
            sorts: 256 * MIB,
            cursors: 64 * MIB,
        }
    }
}

#[derive(Debug)]
struct ShareState {
    limit: usize,
    used: AtomicUsize,
    refused: AtomicU64,
}

/// The limit and the use of a share at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gauge {
    /// The share that the numbers are about.
    pub share: Share,
    /// The limit of the share, in bytes.
    pub limit: usize,
    /// How many bytes are taken, never more than the limit.
    pub used: usize,
    /// How many reservations were refused since the start.
    pub refused: u64,
}

/// The memory budget. See the [module's page](self).
#[derive(Debug)]
pub struct MemoryBudget {
    shares: [ShareState; 4],
}

impl MemoryBudget {
    /// A budget of the given shares.
    #[must_use]
    pub fn new(limits: Limits) -> Arc<Self> {
        let share = |limit| ShareState {
            limit,
            used: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
        };
        Arc::new(Self {
            shares: [
                share(limits.engine_cache),
                share(limits.messages),
                share(limits.sorts),
                share(limits.cursors),
            ],
        })
    }

    /// Takes `bytes` from `share` if that many are left.
    #[must_use]
    pub fn try_reserve(&self, share: Share, bytes: usize) -> bool {
        let state = &self.shares[share.index()];
        let taken = state
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|sum| *sum <= state.limit)
            });
        if taken.is_err() {
            state.refused.fetch_add(1, Ordering::Relaxed);
        }
        taken.is_ok()
    }

    /// Returns reserved `bytes` to their share.
    pub fn release(&self, share: Share, bytes: usize) {
        let before = self.shares[share.index()]
            .used
            .fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "more memory is released than was reserved");
    }

    /// The limit and the use of one share at this moment.
    #[must_use]
    pub fn gauge(&self, share: Share) -> Gauge {
        let state = &self.shares[share.index()];
        Gauge {
            share,
            limit: state.limit,
            used: state.used.load(Ordering::Relaxed),
            refused: state.refused.load(Ordering::Relaxed),
        }
    }

    /// Whether more than three quarters of a share are taken.
    #[must_use]
    pub fn is_scarce(&self, share: Share) -> bool {
        let gauge = self.gauge(share);
        gauge.used > gauge.limit / 4 * 3
    }
}

/// Bytes taken from a share, given back on drop.
#[derive(Debug)]
pub struct Charge {
    budget: Arc<MemoryBudget>,
    share: Share,
    bytes: usize,
}

impl Charge {
    /// A charge of 0 bytes on `share`.
    #[must_use]
    pub const fn new(budget: Arc<MemoryBudget>, share: Share) -> Self {
        Self {
            budget,
            share,
            bytes: 0,
        }
    }

    /// The number of bytes that the charge holds of its share.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes the charge at least `bytes`; `false` if the share does not have them.
    #[must_use]
    pub fn try_raise_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        if more > 0 && !self.budget.try_reserve(self.share, more) {
            return false;
        }
        self.bytes += more;
        true
    }

    /// Makes the charge exactly `bytes`, even past the share's limit: for memory that is already
    /// taken, such as a reply that has been written.
    pub fn set(&mut self, bytes: usize) {
        if bytes > self.bytes {
            let more = bytes - self.bytes;
            self.budget.shares[self.share.index()]
                .used
                .fetch_add(more, Ordering::Relaxed);
        } else if bytes < self.bytes {
            self.budget.release(self.share, self.bytes - bytes);
        }
        self.bytes = bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(messages: usize) -> Arc<MemoryBudget> {
        MemoryBudget::new(Limits {
            messages,
            ..Limits::default()
        })
    }

    #[test]
    fn a_share_never_gives_more_than_it_has() {
        let budget = budget(100);
        assert!(budget.try_reserve(Share::Messages, 60));
        assert!(!budget.try_reserve(Share::Messages, 41));
        assert!(!budget.try_reserve(Share::Messages, usize::MAX));
        assert!(budget.try_reserve(Share::Messages, 40));
        let gauge = budget.gauge(Share::Messages);
        assert_eq!((gauge.used, gauge.refused), (100, 2));
        assert!(
            budget.try_reserve(Share::Cursors, 1),
            "shares are independent"
        );
        budget.release(Share::Messages, 100);
        assert_eq!(budget.gauge(Share::Messages).used, 0);
    }

    #[test]
    fn a_charge_gives_back_what_it_holds() {
        let budget = budget(100);
        let mut charge = Charge::new(Arc::clone(&budget), Share::Messages);
        assert!(charge.try_raise_to(80));
        assert!(charge.try_raise_to(10), "it already holds more");
        assert!(!charge.try_raise_to(101));
        charge.set(500);
        assert!(budget.is_scarce(Share::Messages));
        charge.set(20);
        assert_eq!(budget.gauge(Share::Messages).used, 20);
        drop(charge);
        assert_eq!(budget.gauge(Share::Messages).used, 0);
    }
}
