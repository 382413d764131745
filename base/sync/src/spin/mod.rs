//! Adaptive spinning: the time that a thread polls before it sleeps.
//!
//! # The law of the budget
//! Each thread has a budget, the longest spin of its next wait. A hit doubles the time that was allowed, up to
//! [`SpinLimits::max_ns`]; a miss halves it, down to [`SpinLimits::min_ns`]. A thread whose budget is zero sleeps at
//! once, but for one wait in [`SpinPolicy::probe_every`], which tries a short spin.
//!
//! Two sides that sleep would never learn that spinning pays: each finds the other asleep, and waits for its wake-up.
//! So a thread whose sleep was shorter than [`SpinPolicy::sleep_short_ns`], and whose processor no other thread needs,
//! spins with the full budget next time.
//!
//! # The law of yields
//! A spinning thread pauses. After [`SpinPolicy::yield_after_ns`] it also yields now and then; if another thread ran
//! meanwhile, the processor is contended (perhaps by the peer's own thread), and the thread yields from the beginning
//! next time. After a long yield, [`Contention`] decides which threads still may.
//!
//! # Users
//! | user | budget | yields |
//! |---|---|---|
//! | a program's wait, in the preload | both laws | one [`Contention`] for each process |
//! | a worker of the server | the law of the budget, with a minimum above zero | regular, without a [`Contention`] |
//! | a forwarder | fixed: it alone serves its connections, and has nothing to learn from one wait | one in each pass, with a [`Contention`] of its own |
//!
//! # Threads, clock, memory
//! Nothing here allocates, reads a clock or calls the kernel: the caller's [`Processor`] does. A [`Spin`] and a
//! [`SpinState`] are plain values of one thread. A [`Contention`] is shared by threads, and may lie in memory that
//! processes share.

mod contention;

pub use contention::{Contention, ContentionPolicy, SpinMode};

/// The clock and the scheduler, as the spinning thread reaches them.
pub trait Processor {
    /// Monotonic time in nanoseconds.
    fn now_ns(&self) -> u64;

    /// Yields the processor to another runnable thread (`sched_yield`).
    fn yield_now(&self);

    /// Pauses for some processor cycles.
    #[inline]
    fn pause(&self) {
        std::hint::spin_loop();
    }
}

/// The parameters of spinning that a program does not change.
#[derive(Clone, Copy, Debug)]
pub struct SpinPolicy {
    /// The unit of budgets in nanoseconds, 1 or more: a halved budget is rounded down to a multiple of it.
    pub step_ns: u64,
    /// Length of a probe, and of a spin while the processor is contended, in nanoseconds.
    pub probe_ns: u64,
    /// Waits without a budget from one probe to the next.
    pub probe_every: u32,
    /// Longest time from a miss to the next wait that counts as a short sleep, in nanoseconds; 0 if the length of
    /// sleeps does not matter.
    pub sleep_short_ns: u64,
    /// Rounds from one reading of the clock to the next: a power of two.
    pub clock_every: u32,
    /// Rounds from one yield to the next: a power of two.
    pub yield_every: u32,
    /// The same while the processor is contended: a power of two.
    pub yield_every_contended: u32,
    /// Time from which on a thread yields on a processor that is not contended, in nanoseconds.
    pub yield_after_ns: u64,
    /// Longest yield during which no other thread ran, in nanoseconds.
    pub yield_alone_ns: u64,
    /// Such yields in a row after which the processor is not contended.
    pub alone_min: u32,
}

/// The range of a budget. A program may change it between two waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpinLimits {
    /// Shortest budget after a miss, in nanoseconds, at most `max_ns`.
    pub min_ns: u64,
    /// Longest budget in nanoseconds; 0 if the thread never spins.
    pub max_ns: u64,
}

/// State of a thread from one wait to the next.
#[derive(Clone, Copy, Debug)]
pub struct SpinState {
    budget_ns: u64,
    /// Waits without a budget since the last spin.
    skipped: u32,
    /// Whether another thread ran during one of the last yields.
    is_contended: bool,
    /// Time at which the last wait ended its spin without a hit.
    missed_ns: Option<u64>,
}

impl SpinState {
    /// The state of a thread whose first budget is `budget_ns` nanoseconds.
    #[must_use]
    pub const fn new(budget_ns: u64) -> Self {
        Self {
            budget_ns,
            skipped: 0,
            is_contended: false,
            missed_ns: None,
        }
    }
}

impl SpinPolicy {
    /// The time in nanoseconds that a wait may spin.
    fn allowance(&self, budget_ns: u64, max_ns: u64, skipped: u32) -> u64 {
        match budget_ns {
            0 if skipped >= self.probe_every => self.probe_ns.min(max_ns),
            budget_ns => budget_ns.min(max_ns),
        }
    }

    /// The budget after a wait that was allowed `spent_ns`.
    fn next_budget(&self, spent_ns: u64, limits: SpinLimits, is_hit: bool) -> u64 {
        if is_hit {
            let doubled = spent_ns.max(self.step_ns).saturating_mul(2);
            doubled.min(limits.max_ns)
        } else {
            (spent_ns / 2 / self.step_ns * self.step_ns).max(limits.min_ns)
        }
    }
}

/// The spin of one wait.
///
/// ```
/// # use millrace_sync::spin::*;
/// # fn wait(policy: &SpinPolicy, limits: SpinLimits, state: &mut SpinState, processor: &impl Processor,
/// #     is_ready: impl Fn() -> bool) -> bool {
/// let mut spin = Spin::begin(policy, limits, None, *state, processor);
/// let mut is_hit = false;
/// while !is_hit && spin.again(processor) {
///     is_hit = is_ready();
/// }
/// *state = spin.end(is_hit, processor);
/// # is_hit
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Spin<'a> {
    policy: &'a SpinPolicy,
    limits: SpinLimits,
    contention: Option<&'a Contention>,
    state: SpinState,
    allowed_ns: u64,
    mode: SpinMode,
    /// Times of the first and the last reading of the clock.
    began_ns: Option<u64>,
    last_ns: Option<u64>,
    rounds: u32,
    yields: u32,
    /// Yields in a row during which no other thread ran.
    alone: u32,
    is_late: bool,
}

impl<'a> Spin<'a> {
    /// Begins a wait of a thread with this state. Without `contention` the thread yields in any case, and the length of
    /// its yields is not measured.
    #[must_use]
    pub fn begin(
        policy: &'a SpinPolicy,
        limits: SpinLimits,
        contention: Option<&'a Contention>,
        mut state: SpinState,
        processor: &impl Processor,
    ) -> Self {
        let now = || processor.now_ns();
        let mode = contention.map_or(SpinMode::Yield, |contention| contention.mode(now));
        if let Some(missed_ns) = state.missed_ns.take() {
            let is_calm = !state.is_contended && mode == SpinMode::Yield;
            if is_calm && now().saturating_sub(missed_ns) < policy.sleep_short_ns {
                state.budget_ns = limits.max_ns;
            }
        }
        let max_ns = match mode {
            SpinMode::Short => policy.probe_ns.min(limits.max_ns),
            SpinMode::Yield | SpinMode::Probe => limits.max_ns,
        };
        let budget_ns = match mode {
            SpinMode::Probe => max_ns,
            SpinMode::Yield | SpinMode::Short => state.budget_ns,
        };
        let allowed_ns = policy.allowance(budget_ns, max_ns, state.skipped);
        if allowed_ns > 0 {
            state.skipped = 0;
        } else {
            state.skipped = state.skipped.saturating_add(1);
            if limits.max_ns > 0 && policy.sleep_short_ns > 0 {
                state.missed_ns = Some(now());
            }
        }
        Self {
            policy,
            limits,
            contention,
            state,
            allowed_ns,
            mode,
            began_ns: None,
            last_ns: None,
            rounds: 0,
            yields: 0,
            alone: 0,
            is_late: false,
        }
    }

    /// Pauses or yields once, before the caller's next poll; false when the budget is used up.
    #[inline]
    pub fn again(&mut self, processor: &impl Processor) -> bool {
        if self.allowed_ns == 0 {
            return false;
        }
        self.rounds = self.rounds.wrapping_add(1);
        if self.is_round(self.policy.clock_every) && !self.read_clock(processor) {
            return false;
        }
        let is_contended = self.state.is_contended || self.mode == SpinMode::Probe;
        let every = if is_contended {
            self.policy.yield_every_contended
        } else {
            self.policy.yield_every
        };
        let is_due = (is_contended || self.is_late) && self.is_round(every);
        if is_due && self.mode != SpinMode::Short {
            self.give_way(processor);
        } else {
            processor.pause();
        }
        true
    }

    /// Time of the last of the regular readings of the clock, in nanoseconds; `None` in the first rounds.
    #[must_use]
    pub const fn last_ns(&self) -> Option<u64> {
        self.last_ns
    }

    /// Ends the wait, and returns the state of the thread for the next one. It is a hit if the caller's poll found what
    /// it waited for.
    #[must_use]
    pub fn end(&self, is_hit: bool, processor: &impl Processor) -> SpinState {
        let mut state = self.state;
        if self.allowed_ns > 0 {
            state.budget_ns = self
                .policy
                .next_budget(self.allowed_ns, self.limits, is_hit);
            if !is_hit && self.policy.sleep_short_ns > 0 {
                state.missed_ns = Some(processor.now_ns());
            }
        }
        state
    }

    /// True in one of `every` rounds, a power of two.
    #[inline]
    const fn is_round(&self, every: u32) -> bool {
        self.rounds & (every - 1) == 0
    }

    fn read_clock(&mut self, processor: &impl Processor) -> bool {
        let now_ns = processor.now_ns();
        let began_ns = *self.began_ns.get_or_insert(now_ns);
        self.last_ns = Some(now_ns);
        let passed_ns = now_ns.saturating_sub(began_ns);
        self.is_late = passed_ns >= self.policy.yield_after_ns;
        passed_ns < self.allowed_ns
    }

    #[cold]
    fn give_way(&mut self, processor: &impl Processor) {
        let Some(contention) = self.contention else {
            return processor.yield_now();
        };
        let before_ns = processor.now_ns();
        processor.yield_now();
        let now_ns = processor.now_ns();
        if contention.on_yield(before_ns, now_ns) {
            // One more poll, and to sleep.
            self.allowed_ns = 0;
            self.state.budget_ns = 0;
            return;
        }
        self.yields += 1;
        if self.mode == SpinMode::Probe && contention.on_time(self.yields) {
            self.mode = SpinMode::Yield;
        }
        if now_ns.saturating_sub(before_ns) > self.policy.yield_alone_ns {
            self.state.is_contended = true;
            self.alone = 0;
        } else {
            self.alone += 1;
            if self.alone >= self.policy.alone_min {
                self.state.is_contended = false;
            }
        }
    }
}

#[cfg(test)]
mod tests;
