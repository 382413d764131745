//! The choice whether a waiting thread yields.
//!
//! Waiting threads that yield hand a processor on within microseconds. A thread that computes keeps it to the end of
//! its time slice, for milliseconds, and a thread that yielded to it misses all wake-ups until then; a thread that
//! sleeps is scheduled ahead of it when its wake-up fd becomes readable. So after a long yield no thread yields for a
//! backoff time, and each spins only briefly before it sleeps. After another long yield the backoff time is longer.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a waiting thread may do before it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpinMode {
    /// The thread yields while it spins.
    Yield,
    /// The thread yields, and reports how long that took, while others must not.
    Probe,
    /// The thread spins briefly, and must not yield.
    Short,
}

/// When a [`Contention`] lets threads spin, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct ContentionPolicy {
    /// Longest yield that counts as short, in nanoseconds: a longer one was to a thread that computes, or to very many
    /// that wait.
    pub late_ns: u64,
    /// Backoff time after the first long yield, in nanoseconds, above 0.
    pub backoff_min_ns: u64,
    /// Longest backoff time in nanoseconds.
    pub backoff_max_ns: u64,
    /// Each backoff time divided by the last one.
    pub growth: u64,
    /// Short yields in a row, by the caller's count, after which the backoff time is the shortest again.
    pub on_time_min: u32,
}

/// Contention for processors, as the threads that share this value have found it by the clock. Only a hint: all accesses
/// are relaxed.
#[derive(Debug)]
#[repr(C)]
pub struct Contention {
    policy: ContentionPolicy,
    /// End of the backoff time in nanoseconds; 0 while all threads may yield.
    until_ns: AtomicU64,
    /// Length of the last backoff time in nanoseconds; 0 if there was none since the last reset.
    backoff_ns: AtomicU64,
}

impl Contention {
    /// A processor that is not contended.
    #[must_use]
    pub const fn new(policy: ContentionPolicy) -> Self {
        Self {
            policy,
            until_ns: AtomicU64::new(0),
            backoff_ns: AtomicU64::new(0),
        }
    }

    /// Mode of a wait that begins. After a backoff time one thread probes; during the probe the others keep the
    /// backoff. The clock, in nanoseconds, is read only after a long yield.
    #[inline]
    pub fn mode(&self, now_ns: impl FnOnce() -> u64) -> SpinMode {
        match self.until_ns.load(Ordering::Relaxed) {
            0 => SpinMode::Yield,
            until_ns => self.mode_at(until_ns, now_ns()),
        }
    }

    #[cold]
    fn mode_at(&self, until_ns: u64, now_ns: u64) -> SpinMode {
        if now_ns < until_ns {
            return SpinMode::Short;
        }
        let next_ns = now_ns.saturating_add(self.backoff_ns.load(Ordering::Relaxed));
        let relaxed = Ordering::Relaxed;
        let is_first = self
            .until_ns
            .compare_exchange(until_ns, next_ns, relaxed, relaxed);
        match is_first {
            Ok(_) => SpinMode::Probe,
            Err(_) => SpinMode::Short,
        }
    }

    /// Whether the backoff time is not over; for a thread that shares this value with no other, and needs no probe.
    pub fn is_contended(&self, now_ns: u64) -> bool {
        now_ns < self.until_ns.load(Ordering::Relaxed)
    }

    /// Records a yield from `before_ns` to `now_ns`, by the probing thread or while all may yield. True if it was long.
    pub fn on_yield(&self, before_ns: u64, now_ns: u64) -> bool {
        let policy = &self.policy;
        if now_ns.saturating_sub(before_ns) <= policy.late_ns {
            return false;
        }
        let last_ns = self.backoff_ns.load(Ordering::Relaxed);
        let grown_ns = last_ns.saturating_mul(policy.growth);
        let backoff_ns = grown_ns.clamp(policy.backoff_min_ns, policy.backoff_max_ns);
        self.backoff_ns.store(backoff_ns, Ordering::Relaxed);
        let until_ns = now_ns.saturating_add(backoff_ns);
        self.until_ns.store(until_ns, Ordering::Relaxed);
        true
    }

    /// Records the number of short yields in a row after a backoff time. True if that is enough: all threads yield
    /// again, and the next backoff time is the shortest.
    pub fn on_time(&self, yields: u32) -> bool {
        if yields < self.policy.on_time_min {
            return false;
        }
        if self.backoff_ns.load(Ordering::Relaxed) != 0 {
            self.backoff_ns.store(0, Ordering::Relaxed);
            self.until_ns.store(0, Ordering::Relaxed);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START_NS: u64 = 1_000_000_000;
    const POLICY: ContentionPolicy = ContentionPolicy {
        late_ns: 250_000,
        backoff_min_ns: 100_000_000,
        backoff_max_ns: 4_000_000_000,
        growth: 4,
        on_time_min: 16,
    };

    fn mode(contention: &Contention, now_ns: u64) -> SpinMode {
        contention.mode(|| now_ns)
    }

    #[test]
    fn all_yield_while_that_is_short() {
        let contention = Contention::new(POLICY);
        assert!(!contention.on_yield(START_NS, START_NS + POLICY.late_ns));
        assert_eq!(mode(&contention, START_NS), SpinMode::Yield);
        assert!(!contention.is_contended(START_NS));
    }

    #[test]
    fn after_a_long_one_nobody_does_until_one_probes() {
        let contention = Contention::new(POLICY);
        assert!(contention.on_yield(START_NS - 2 * POLICY.late_ns, START_NS));
        assert_eq!(mode(&contention, START_NS), SpinMode::Short);
        let end_ns = START_NS + POLICY.backoff_min_ns;
        assert!(contention.is_contended(end_ns - 1));
        assert!(!contention.is_contended(end_ns));
        assert_eq!(mode(&contention, end_ns), SpinMode::Probe);
        assert_eq!(mode(&contention, end_ns), SpinMode::Short);
        assert!(!contention.on_time(POLICY.on_time_min - 1));
        assert!(contention.on_time(POLICY.on_time_min));
        assert_eq!(mode(&contention, end_ns), SpinMode::Yield);
    }

    #[test]
    fn each_backoff_is_longer_up_to_the_longest() {
        let contention = Contention::new(POLICY);
        let mut now_ns = START_NS;
        let mut expected_ns = POLICY.backoff_min_ns;
        for _ in 0..8 {
            assert!(contention.on_yield(now_ns - 2 * POLICY.late_ns, now_ns));
            assert_eq!(mode(&contention, now_ns + expected_ns - 1), SpinMode::Short);
            now_ns += expected_ns;
            assert_eq!(mode(&contention, now_ns), SpinMode::Probe);
            expected_ns = (expected_ns * POLICY.growth).min(POLICY.backoff_max_ns);
        }
        assert_eq!(expected_ns, POLICY.backoff_max_ns);
    }
}
