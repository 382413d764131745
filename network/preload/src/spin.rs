//! Looking again and again before going to sleep.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::wait::now;

/// How long a thread spins at most, in nanoseconds.
static BUDGET_MAX: AtomicU32 = AtomicU32::new(50_000);
const BUDGET_MIN: u32 = 1_000;
/// Looks between two readings of the clock.
const LOOKS: u32 = 64;

thread_local! {
    static BUDGET: Cell<u32> = const { Cell::new(50_000) };
}

/// Sets how long a thread spins at most, in microseconds; 0: not at all.
pub(crate) fn limit(us: u32) {
    BUDGET_MAX.store(us.saturating_mul(1000), Ordering::Relaxed);
}

/// Looks until something is there, or it has not been worth it. A success makes the next spin longer, a failure
/// shorter.
pub(crate) fn spin(mut is_there: impl FnMut() -> bool) -> bool {
    let budget = BUDGET.with(Cell::get);
    let end = now() + Duration::from_nanos(u64::from(budget));
    loop {
        for _ in 0..LOOKS {
            if is_there() {
                BUDGET.with(|kept| {
                    kept.set(
                        budget
                            .saturating_mul(2)
                            .min(BUDGET_MAX.load(Ordering::Relaxed)),
                    )
                });
                return true;
            }
            std::hint::spin_loop();
        }
        if now() >= end {
            BUDGET.with(|kept| kept.set((budget / 2).max(BUDGET_MIN)));
            return false;
        }
        rustix::thread::sched_yield();
    }
}
