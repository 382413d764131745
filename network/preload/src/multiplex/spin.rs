//! The time that a thread spins before it sleeps.
//!
//! Each thread has a budget: a hit doubles it, up to `MILLRACE_SPIN_US` microseconds; a miss halves it, down to zero.
//! Without a budget one wait in [`PROBE_EVERY`] tries a short spin.
//!
//! Two sides that sleep would never learn that spinning pays: each finds the other asleep, and waits for its wake-up.
//! So a thread whose wait was short, and whose processor no other thread needs, spins with the full budget next time.
//!
//! A spinning thread pauses. After some time it also yields now and then; if another thread ran meanwhile, the
//! processor is contended (perhaps by the peer's own thread), and the thread yields from the beginning next time. After
//! a long yield, [`Contention`] decides which threads still may.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::clock;

use super::contention::{Contention, SpinMode};
use super::kernel;

/// Microseconds, if the environment does not say otherwise.
const MAX_US_DEFAULT: u32 = 50;
/// Upper limit of the environment variable, in microseconds.
const MAX_US_LIMIT: u32 = 10_000;
/// Budget of a thread's first spin, and of a probe, in microseconds.
const PROBE_US: u32 = 5;
/// Waits without a budget from one probe to the next.
const PROBE_EVERY: u32 = 64;
/// Rounds from one look at the clock to the next.
const CLOCK_EVERY: u32 = 16;
/// Rounds from one yield to the next, once pausing took long.
const YIELD_EVERY: u32 = 64;
/// The same where the processor is wanted.
const YIELD_EVERY_CROWDED: u32 = 4;
/// From when on a thread yields.
const CALM: Duration = Duration::from_micros(4);
/// Longest yield during which no other thread ran.
const YIELD_ALONE: Duration = Duration::from_micros(2);
/// Number of such yields in a row after which the processor counts as free.
const ALONE_ENOUGH: u32 = 16;

/// Longest time between two waits that counts as short.
const SHORT: Duration = Duration::from_micros(200);

/// The environment was not looked at yet.
const UNKNOWN: u32 = u32::MAX;

static MAX_US: AtomicU32 = AtomicU32::new(UNKNOWN);
static CONTENTION: Contention = Contention::new();

thread_local! {
    static BUDGET_US: Cell<u32> = const { Cell::new(UNKNOWN) };
    static SKIPPED: Cell<u32> = const { Cell::new(0) };
    static CROWDED: Cell<bool> = const { Cell::new(false) };
    /// When the last wait gave up looking.
    static MISSED: Cell<Option<Duration>> = const { Cell::new(None) };
}

fn max_us() -> u32 {
    match MAX_US.load(Ordering::Relaxed) {
        UNKNOWN => {
            let given = std::env::var("MILLRACE_SPIN_US").ok();
            let max = given
                .and_then(|text| text.trim().parse().ok())
                .unwrap_or(MAX_US_DEFAULT);
            let max = max.min(MAX_US_LIMIT);
            MAX_US.store(max, Ordering::Relaxed);
            max
        }
        max => max,
    }
}

/// Sets the maximum time of a spin in microseconds, unless the environment variable does.
pub(crate) fn limit(us: u32) {
    if std::env::var_os("MILLRACE_SPIN_US").is_none() {
        MAX_US.store(us.min(MAX_US_LIMIT), Ordering::Relaxed);
    }
}

/// Spins until the condition holds, or the budget is used up; true if it holds.
pub(crate) fn spin(mut is_there: impl FnMut() -> bool) -> bool {
    if is_there() {
        return true;
    }
    let mut spin = Spin::begin();
    while spin.again() {
        if is_there() {
            spin.hit();
            return true;
        }
    }
    false
}

/// Microseconds that a wait may spin.
fn allowance(budget: u32, max: u32, skipped: u32) -> u32 {
    match budget {
        UNKNOWN => PROBE_US.min(max),
        0 if skipped >= PROBE_EVERY => PROBE_US.min(max),
        budget => budget.min(max),
    }
}

/// The budget after a wait that was allowed `spent`.
fn next_budget(spent: u32, max: u32, is_hit: bool) -> u32 {
    if is_hit {
        spent.max(1).saturating_mul(2).min(max)
    } else {
        spent / 2
    }
}

/// Spinning of one wait: `while spin.again() { if look() { spin.hit(); .. } }`; a drop without [`Spin::hit`] is a miss.
#[derive(Debug)]
pub(crate) struct Spin {
    allowed_us: u32,
    mode: SpinMode,
    began: Option<Duration>,
    rounds: u32,
    yields: u32,
    alone: u32,
    is_late: bool,
    is_hit: bool,
}

impl Spin {
    pub(crate) fn begin() -> Self {
        let mode = CONTENTION.mode(clock::now);
        if let Some(missed) = MISSED.take() {
            let is_calm = !CROWDED.get() && mode == SpinMode::Yield;
            if is_calm && clock::now().saturating_sub(missed) < SHORT {
                BUDGET_US.set(max_us());
            }
        }
        let max = match mode {
            SpinMode::Short => PROBE_US.min(max_us()),
            SpinMode::Yield | SpinMode::Probe => max_us(),
        };
        let budget = match mode {
            SpinMode::Probe => max,
            SpinMode::Yield | SpinMode::Short => BUDGET_US.get(),
        };
        let skipped = SKIPPED.get();
        let allowed_us = allowance(budget, max, skipped);
        SKIPPED.set(if allowed_us == 0 { skipped + 1 } else { 0 });
        if allowed_us == 0 && max_us() > 0 {
            MISSED.set(Some(clock::now()));
        }
        Self {
            allowed_us,
            mode,
            began: None,
            rounds: 0,
            yields: 0,
            alone: 0,
            is_late: false,
            is_hit: false,
        }
    }

    /// Pauses or yields once; false when the budget is used up.
    #[inline]
    pub(crate) fn again(&mut self) -> bool {
        if self.allowed_us == 0 {
            return false;
        }
        self.rounds += 1;
        if self.rounds % CLOCK_EVERY == 0 && !self.look_at_clock() {
            return false;
        }
        let is_crowded = CROWDED.get() || self.mode == SpinMode::Probe;
        let every = if is_crowded {
            YIELD_EVERY_CROWDED
        } else {
            YIELD_EVERY
        };
        let is_due = (is_crowded || self.is_late) && self.rounds % every == 0;
        if is_due && self.mode != SpinMode::Short {
            self.give_way();
        } else {
            std::hint::spin_loop();
        }
        true
    }

    /// Records a hit, and so doubles the thread's budget.
    #[inline]
    pub(crate) fn hit(mut self) {
        self.is_hit = true;
    }

    fn look_at_clock(&mut self) -> bool {
        let now = clock::now();
        let began = *self.began.get_or_insert(now);
        let passed = now.saturating_sub(began);
        self.is_late = passed >= CALM;
        passed < Duration::from_micros(u64::from(self.allowed_us))
    }

    #[cold]
    fn give_way(&mut self) {
        let before = clock::now();
        kernel::yield_now();
        let now = clock::now();
        if CONTENTION.yielded(before, now) {
            // One more look, and to sleep.
            self.allowed_us = 0;
            BUDGET_US.set(0);
            return;
        }
        self.yields += 1;
        if self.mode == SpinMode::Probe && CONTENTION.tried(self.yields) {
            self.mode = SpinMode::Yield;
        }
        if now.saturating_sub(before) > YIELD_ALONE {
            CROWDED.set(true);
            self.alone = 0;
        } else {
            self.alone += 1;
            if self.alone >= ALONE_ENOUGH {
                CROWDED.set(false);
            }
        }
    }
}

impl Drop for Spin {
    fn drop(&mut self) {
        if self.allowed_us > 0 {
            BUDGET_US.set(next_budget(self.allowed_us, max_us(), self.is_hit));
            if !self.is_hit {
                MISSED.set(Some(clock::now()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_double_to_the_maximum() {
        let mut budget = 1;
        for _ in 0..10 {
            budget = next_budget(budget, 50, true);
        }
        assert_eq!(budget, 50);
    }

    #[test]
    fn misses_end_in_nothing_but_probes() {
        let mut budget = 50;
        for _ in 0..6 {
            budget = next_budget(budget, 50, false);
        }
        assert_eq!(budget, 0);
        assert_eq!(allowance(budget, 50, 0), 0);
        assert_eq!(allowance(budget, 50, PROBE_EVERY), PROBE_US);
    }

    #[test]
    fn no_spin_at_all_if_the_maximum_is_zero() {
        assert_eq!(allowance(UNKNOWN, 0, 0), 0);
        assert_eq!(allowance(50, 0, PROBE_EVERY), 0);
        assert_eq!(next_budget(0, 0, true), 0);
    }

    #[test]
    fn a_spin_without_success_ends() {
        let mut spin = Spin::begin();
        while spin.again() {}
    }
}
