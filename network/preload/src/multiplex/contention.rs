//! The choice whether a waiting thread yields.
//!
//! Waiting threads that yield hand a processor on within microseconds. A thread that computes keeps it to the end of
//! its time slice, for milliseconds, and a thread that yielded to it misses all wake-ups until then; a thread that
//! sleeps is scheduled ahead of it when its wake-up fd becomes readable. So after a long yield no thread of this
//! process yields for a backoff time, and each spins only briefly before it sleeps. Then one thread probes. After
//! another long yield the backoff time is four times as long.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Longest yield that counts as short: a longer one was to a thread that computes, or to very many that wait.
const LONG: Duration = Duration::from_micros(250);
/// Backoff time after the first long yield, and the longest one.
const WHILE_MIN: Duration = Duration::from_millis(100);
const WHILE_MAX: Duration = Duration::from_secs(4);
/// How much longer each while is than the last.
const GROWTH: u32 = 4;
/// Number of short yields of the probing thread after which all threads yield again.
const TRIES: u32 = 16;

/// Behaviour of a waiting thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpinMode {
    /// It yields while it spins.
    Yield,
    /// It yields, and says how that went, while others must not.
    Probe,
    /// It spins briefly, and must not yield.
    Short,
}

/// Contention for processors, as all threads of the process have found it. Only a hint: all accesses are relaxed.
#[derive(Debug)]
pub(super) struct Contention {
    /// End of the backoff time in nanoseconds; 0 while all threads may yield.
    until: AtomicU64,
    /// How long the last while was.
    length: AtomicU64,
}

impl Contention {
    pub(super) const fn new() -> Self {
        Self {
            until: AtomicU64::new(0),
            length: AtomicU64::new(0),
        }
    }

    /// Mode of a wait that begins.
    #[inline]
    pub(super) fn mode(&self, now: impl FnOnce() -> Duration) -> SpinMode {
        match self.until.load(Ordering::Relaxed) {
            0 => SpinMode::Yield,
            until => self.mode_at(until, nanos(now())),
        }
    }

    #[cold]
    fn mode_at(&self, until: u64, now: u64) -> SpinMode {
        if now < until {
            return SpinMode::Short;
        }
        // During the probe the other threads keep the backoff.
        let next = now + self.length.load(Ordering::Relaxed);
        let is_first =
            self.until
                .compare_exchange(until, next, Ordering::Relaxed, Ordering::Relaxed);
        match is_first {
            Ok(_) => SpinMode::Probe,
            Err(_) => SpinMode::Short,
        }
    }

    /// Records a yield from `before` to `now`, by the probing thread or while all may yield. True if it was long.
    pub(super) fn yielded(&self, before: Duration, now: Duration) -> bool {
        if now.saturating_sub(before) <= LONG {
            return false;
        }
        let last = self.length.load(Ordering::Relaxed);
        let length = (last * u64::from(GROWTH)).clamp(nanos(WHILE_MIN), nanos(WHILE_MAX));
        self.length.store(length, Ordering::Relaxed);
        self.until.store(nanos(now) + length, Ordering::Relaxed);
        true
    }

    /// Records the number of short yields of the probing thread. True if that is enough: all threads yield again.
    pub(super) fn tried(&self, yields: u32) -> bool {
        if yields < TRIES {
            return false;
        }
        self.length.store(0, Ordering::Relaxed);
        self.until.store(0, Ordering::Relaxed);
        true
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(1);

    fn mode(contention: &Contention, now: Duration) -> SpinMode {
        contention.mode(|| now)
    }

    #[test]
    fn all_yield_while_that_is_short() {
        let contention = Contention::new();
        assert!(!contention.yielded(START, START + LONG));
        assert_eq!(mode(&contention, START), SpinMode::Yield);
    }

    #[test]
    fn after_a_long_one_nobody_does_until_one_tries() {
        let contention = Contention::new();
        assert!(contention.yielded(START - 2 * LONG, START));
        assert_eq!(mode(&contention, START), SpinMode::Short);
        let end = START + WHILE_MIN;
        assert_eq!(mode(&contention, end), SpinMode::Probe);
        assert_eq!(mode(&contention, end), SpinMode::Short);
        assert!(!contention.tried(TRIES - 1));
        assert!(contention.tried(TRIES));
        assert_eq!(mode(&contention, end), SpinMode::Yield);
    }

    #[test]
    fn each_while_is_longer_up_to_the_longest() {
        let contention = Contention::new();
        let mut now = START;
        let mut expected = WHILE_MIN;
        for _ in 0..8 {
            assert!(contention.yielded(now - 2 * LONG, now));
            assert_eq!(
                mode(&contention, now + expected - Duration::from_nanos(1)),
                SpinMode::Short
            );
            now += expected;
            assert_eq!(mode(&contention, now), SpinMode::Probe);
            expected = (expected * GROWTH).min(WHILE_MAX);
        }
        assert_eq!(expected, WHILE_MAX);
    }
}
