//! The time that a thread spins before it sleeps, by [`millrace_sync::spin`]: at most `MILLRACE_SPIN_US` microseconds.
//!
//! Each thread has a state of its own. All threads of the process share what they find about contention for processors.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

use millrace_sync::spin::{
    self, Contention, ContentionPolicy, Processor, SpinLimits, SpinPolicy, SpinState,
};

use crate::clock;

use super::kernel;

/// Microseconds, if the environment does not say otherwise.
const MAX_US_DEFAULT: u32 = 50;
/// Upper limit of the environment variable, in microseconds.
const MAX_US_LIMIT: u32 = 10_000;
/// Budget of a thread's first spin, and of a probe, in nanoseconds.
const PROBE_NS: u64 = 5_000;

static POLICY: SpinPolicy = SpinPolicy {
    step_ns: 1_000,
    probe_ns: PROBE_NS,
    probe_every: 64,
    sleep_short_ns: 200_000,
    clock_every: 16,
    yield_every: 64,
    yield_every_contended: 4,
    yield_after_ns: 4_000,
    yield_alone_ns: 2_000,
    alone_min: 16,
};

static CONTENTION: Contention = Contention::new(ContentionPolicy {
    late_ns: 250_000,
    backoff_min_ns: 100_000_000,
    backoff_max_ns: 4_000_000_000,
    growth: 4,
    on_time_min: 16,
});

/// The environment was not looked at yet.
const UNKNOWN: u32 = u32::MAX;

static MAX_US: AtomicU32 = AtomicU32::new(UNKNOWN);

thread_local! {
    static STATE: Cell<SpinState> = const { Cell::new(SpinState::new(PROBE_NS)) };
}

/// The machine's clock, and its processor.
struct Machine;

impl Processor for Machine {
    fn now_ns(&self) -> u64 {
        let now = clock::now();
        now.as_secs() * 1_000_000_000 + u64::from(now.subsec_nanos())
    }

    fn yield_now(&self) {
        kernel::yield_now();
    }
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

/// Spinning of one wait: `while spin.again() { if poll() { spin.hit(); .. } }`; a drop without [`Spin::hit`] is a miss.
#[derive(Debug)]
pub(crate) struct Spin {
    spin: spin::Spin<'static>,
    is_hit: bool,
}

impl Spin {
    pub(crate) fn begin() -> Self {
        let limits = SpinLimits {
            min_ns: 0,
            max_ns: u64::from(max_us()) * 1_000,
        };
        let spin = spin::Spin::begin(&POLICY, limits, Some(&CONTENTION), STATE.get(), &Machine);
        Self {
            spin,
            is_hit: false,
        }
    }

    /// Pauses or yields once; false when the budget is used up.
    #[inline]
    pub(crate) fn again(&mut self) -> bool {
        self.spin.again(&Machine)
    }

    /// Records a hit, and so doubles the thread's budget.
    #[inline]
    pub(crate) fn hit(mut self) {
        self.is_hit = true;
    }
}

impl Drop for Spin {
    fn drop(&mut self) {
        STATE.set(self.spin.end(self.is_hit, &Machine));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spin_without_success_ends() {
        let mut spin = Spin::begin();
        while spin.again() {}
    }
}
