//! Spins on a simulated processor.

use std::cell::Cell;

use super::*;

const POLICY: SpinPolicy = SpinPolicy {
    step_ns: 1_000,
    probe_ns: 5_000,
    probe_every: 64,
    sleep_short_ns: 200_000,
    clock_every: 16,
    yield_every: 64,
    yield_every_contended: 4,
    yield_after_ns: 4_000,
    yield_alone_ns: 2_000,
    alone_min: 16,
};
const LIMITS: SpinLimits = SpinLimits {
    min_ns: 0,
    max_ns: 50_000,
};
const NEVER: SpinLimits = SpinLimits {
    min_ns: 0,
    max_ns: 0,
};
const CONTENTION: ContentionPolicy = ContentionPolicy {
    late_ns: 250_000,
    backoff_min_ns: 100_000_000,
    backoff_max_ns: 4_000_000_000,
    growth: 4,
    on_time_min: 16,
};

/// A processor whose clock moves by pauses and yields alone.
struct Simulated {
    now_ns: Cell<u64>,
    pause_ns: u64,
    yield_ns: Cell<u64>,
    yields: Cell<u32>,
}

impl Simulated {
    fn new() -> Self {
        Self {
            now_ns: Cell::new(1_000_000_000),
            pause_ns: 50,
            yield_ns: Cell::new(500),
            yields: Cell::new(0),
        }
    }

    fn pass(&self, ns: u64) {
        self.now_ns.set(self.now_ns.get() + ns);
    }
}

impl Processor for Simulated {
    fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    fn yield_now(&self) {
        self.yields.set(self.yields.get() + 1);
        self.pass(self.yield_ns.get());
    }

    fn pause(&self) {
        self.pass(self.pause_ns);
    }
}

/// A wait that finds something `after_ns` nanoseconds after its begin; the time that it spun.
fn wait(
    processor: &Simulated,
    contention: &Contention,
    state: &mut SpinState,
    after_ns: u64,
) -> u64 {
    let began_ns = processor.now_ns();
    let mut spin = Spin::begin(&POLICY, LIMITS, Some(contention), *state, processor);
    let mut is_hit = false;
    while !is_hit && spin.again(processor) {
        is_hit = processor.now_ns() - began_ns >= after_ns;
    }
    *state = spin.end(is_hit, processor);
    processor.now_ns() - began_ns
}

#[test]
fn hits_double_to_the_maximum() {
    let mut budget_ns = 1_000;
    for _ in 0..10 {
        budget_ns = POLICY.next_budget(budget_ns, LIMITS, true);
    }
    assert_eq!(budget_ns, 50_000);
}

#[test]
fn misses_end_in_nothing_but_probes() {
    let mut budget_ns = 50_000;
    for _ in 0..6 {
        budget_ns = POLICY.next_budget(budget_ns, LIMITS, false);
    }
    assert_eq!(budget_ns, 0);
    assert_eq!(POLICY.allowance(budget_ns, 50_000, 0), 0);
    let allowed_ns = POLICY.allowance(budget_ns, 50_000, POLICY.probe_every);
    assert_eq!(allowed_ns, POLICY.probe_ns);
}

#[test]
fn no_spin_at_all_if_the_maximum_is_zero() {
    assert_eq!(POLICY.allowance(POLICY.probe_ns, 0, 0), 0);
    assert_eq!(POLICY.allowance(50_000, 0, POLICY.probe_every), 0);
    assert_eq!(POLICY.next_budget(0, NEVER, true), 0);
    let processor = Simulated::new();
    let mut spin = Spin::begin(&POLICY, NEVER, None, SpinState::new(5_000), &processor);
    assert!(!spin.again(&processor));
    assert_eq!(processor.now_ns(), Simulated::new().now_ns());
}

#[test]
fn a_budget_with_a_minimum_halves_to_it_and_doubles_again() {
    let limits = SpinLimits {
        min_ns: 1_250,
        max_ns: 20_000,
    };
    let policy = SpinPolicy {
        step_ns: 1,
        ..POLICY
    };
    let mut budget_ns = limits.max_ns;
    for _ in 0..10 {
        budget_ns = policy.next_budget(budget_ns, limits, false);
    }
    assert_eq!(budget_ns, limits.min_ns);
    for _ in 0..10 {
        budget_ns = policy.next_budget(budget_ns, limits, true);
    }
    assert_eq!(budget_ns, limits.max_ns);
    assert_eq!(policy.next_budget(0, NEVER, true), 0);
}

#[test]
fn a_spin_without_success_ends_after_its_budget() {
    let (processor, contention) = (Simulated::new(), Contention::new(CONTENTION));
    let mut state = SpinState::new(50_000);
    let spun_ns = wait(&processor, &contention, &mut state, u64::MAX);
    // The clock is read in every sixteenth round, and for the first time after as many.
    assert!((50_000..53_000).contains(&spun_ns), "{spun_ns}");
    assert_eq!(state.budget_ns, 25_000);
}

#[test]
fn a_short_sleep_restores_the_budget_and_a_long_one_does_not() {
    let (processor, contention) = (Simulated::new(), Contention::new(CONTENTION));
    for (sleep_ns, spins) in [(POLICY.sleep_short_ns, false), (150_000, true)] {
        let mut state = SpinState::new(0);
        assert_eq!(wait(&processor, &contention, &mut state, u64::MAX), 0);
        processor.pass(sleep_ns);
        let spun_ns = wait(&processor, &contention, &mut state, u64::MAX);
        assert_eq!(spun_ns > 0, spins, "{sleep_ns}");
    }
}

#[test]
fn one_wait_in_many_without_a_budget_probes() {
    let (processor, contention) = (Simulated::new(), Contention::new(CONTENTION));
    let mut state = SpinState::new(0);
    let mut spins = Vec::new();
    for number in 0..=2 * POLICY.probe_every + 1 {
        processor.pass(1_000_000);
        if wait(&processor, &contention, &mut state, u64::MAX) > 0 {
            spins.push(number);
        }
        state.budget_ns = 0;
    }
    assert_eq!(spins, [POLICY.probe_every, 2 * POLICY.probe_every + 1]);
}

#[test]
fn a_contended_processor_is_yielded_from_the_beginning() {
    let (processor, contention) = (Simulated::new(), Contention::new(CONTENTION));
    let mut state = SpinState::new(50_000);
    // Nobody yields within the first microseconds.
    wait(&processor, &contention, &mut state, 3_000);
    assert_eq!(processor.yields.get(), 0);
    processor.yield_ns.set(10_000);
    wait(&processor, &contention, &mut state, u64::MAX);
    assert!(state.is_contended);
    processor.yields.set(0);
    wait(&processor, &contention, &mut state, 3_000);
    assert_eq!(processor.yields.get(), 1);
    // Many yields without another thread: the processor is free again.
    processor.yield_ns.set(500);
    wait(&processor, &contention, &mut state, u64::MAX);
    assert!(!state.is_contended);
}

#[test]
fn a_long_yield_ends_the_spin_and_the_next_ones_are_short() {
    let (processor, contention) = (Simulated::new(), Contention::new(CONTENTION));
    let mut state = SpinState::new(50_000);
    processor.yield_ns.set(3_000_000);
    wait(&processor, &contention, &mut state, u64::MAX);
    assert_eq!((processor.yields.get(), state.budget_ns), (1, 0));
    state = SpinState::new(50_000);
    let spun_ns = wait(&processor, &contention, &mut state, u64::MAX);
    assert!((5_000..7_000).contains(&spun_ns), "{spun_ns}");
    assert_eq!(processor.yields.get(), 1, "it must not yield");
    // After the backoff time one spin with short yields is enough.
    processor.pass(CONTENTION.backoff_min_ns);
    processor.yield_ns.set(500);
    wait(&processor, &contention, &mut state, u64::MAX);
    assert!(processor.yields.get() > CONTENTION.on_time_min);
    assert_eq!(contention.mode(|| processor.now_ns()), SpinMode::Yield);
}
