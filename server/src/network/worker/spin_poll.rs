//! Adaptive spinning on connections with a wake-up fd, before the worker sleeps.
//!
//! A connection with a wake-up fd is *hot* or *armed*. Hot ones are polled in every round, which costs a few loads
//! each and spares the client every system call. One that stays idle for [`IDLE_MAX`] is armed, and so are all of them
//! when the worker has nothing to do and has spun without success: their clients will send a wake-up. An armed one
//! costs nothing until then. So the cost of a round is proportional to the connections in use.
//!
//! # Invariants
//! 1. A connection is hot exactly if its token is in the set; a token in the set may be of no connection.
//! 2. The worker sleeps only when the set is empty: each connection was polled once more after it was armed.
//! 3. The poller watches every wake-up fd, hot or not, so that a closed one is found while others are busy.
//! 4. While hot connections are busy the kernel is asked every [`PASSES_MAX`] rounds, or after [`UNASKED_MAX`]; and
//!    always before the worker spins for longer than one round.

use std::time::Duration;

use millrace_sync::HotSet;
use millrace_sync::spin::{Processor, Spin, SpinLimits, SpinPolicy, SpinState};

use super::{Disposition, Worker};
use crate::clock::Clock;
use crate::network::Service;
use crate::network::connection::{Connection, Watch};
use crate::network::poller::{Interest, Readiness};
use crate::network::slab::Token;

/// For how long a hot connection may be idle while others are busy.
const IDLE_MAX: Duration = Duration::from_micros(50);

/// For how many rounds, and for how long, the kernel need not be asked.
const PASSES_MAX: u32 = 16;
const UNASKED_MAX: Duration = Duration::from_micros(50);

/// The longest spin time divided by the shortest.
const SHORTEST_PART: u64 = 16;

/// A worker spins in any case, if only for a sixteenth of the longest time, and yields in every sixteenth pass: the
/// client may wait for its core.
const POLICY: SpinPolicy = SpinPolicy {
    step_ns: 1,
    probe_ns: 0,
    probe_every: u32::MAX,
    sleep_short_ns: 0,
    clock_every: 16,
    yield_every: 16,
    yield_every_contended: 16,
    yield_after_ns: 0,
    yield_alone_ns: 0,
    alone_min: 0,
};

/// The hot connections, and the time to spin on them.
#[derive(Debug)]
pub(in crate::network) struct Hot {
    tokens: HotSet<Token>,
    /// The range of the time to spin before sleeping.
    limits: SpinLimits,
    spin_state: SpinState,
    /// Rounds since the kernel was asked, and when that was.
    passes: u32,
    asked: Duration,
    /// Whether the last round found nothing, neither here nor at the kernel.
    is_quiet: bool,
}

/// Whether a round asks the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::network) enum Polling {
    /// It does, and may wait that long.
    Wait(Option<Duration>),
    /// It does not.
    Skip,
}

/// The result of polling one connection.
enum Polled {
    Ready(Interest),
    NotReady,
    /// It is not hot any more.
    Cold,
}

impl Hot {
    pub(in crate::network) fn new(spin_time_max: Duration) -> Self {
        let max_ns = nanos(spin_time_max);
        Self {
            tokens: HotSet::new(),
            limits: SpinLimits {
                min_ns: max_ns / SHORTEST_PART,
                max_ns,
            },
            spin_state: SpinState::new(max_ns),
            passes: 0,
            asked: Duration::ZERO,
            is_quiet: false,
        }
    }

    /// Says whether a round has found nothing at all.
    pub(in crate::network) const fn set_quiet(&mut self, is_quiet: bool) {
        self.is_quiet = is_quiet;
    }

    /// The kernel is asked, and has nothing to wait for.
    const fn ask(&mut self, now: Duration) -> Polling {
        self.passes = 0;
        self.asked = now;
        Polling::Wait(Some(Duration::ZERO))
    }
}

/// The worker's clock, and its processor.
struct WorkerProcessor<'a>(&'a dyn Clock);

impl Processor for WorkerProcessor<'_> {
    fn now_ns(&self) -> u64 {
        nanos(self.0.now())
    }

    fn yield_now(&self) {
        std::thread::yield_now();
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl<S: Service> Worker<S> {
    /// Appends the readiness of hot connections to `found`, and says whether the kernel is to be asked.
    pub(in crate::network) fn poll_hot(&mut self, found: &mut Vec<Readiness>) -> Polling {
        let timeout = self.timeout();
        if self.hot.tokens.is_empty() {
            return Polling::Wait(timeout);
        }
        let mut now = self.shared.clock.now();
        self.poll_once(now, IDLE_MAX, found);
        if found.is_empty() && timeout != Some(Duration::ZERO) {
            if !self.hot.is_quiet {
                // Events that the kernel has already come before events that may come.
                return self.hot.ask(now);
            }
            if self.is_worth_spinning() {
                now = self.spin(now, found);
            }
            if found.is_empty() {
                self.poll_once(now, Duration::ZERO, found);
            }
        }
        if found.is_empty() && self.hot.tokens.is_empty() {
            return Polling::Wait(timeout);
        }
        self.hot.passes += 1;
        let is_due =
            self.hot.passes >= PASSES_MAX || now.saturating_sub(self.hot.asked) >= UNASKED_MAX;
        if is_due || !self.runnable.is_empty() {
            return self.hot.ask(now);
        }
        Polling::Skip
    }

    /// Makes a connection hot.
    pub(in crate::network) fn warm(
        &mut self,
        token: Token,
        connection: &mut Connection<S::Session>,
    ) {
        let since = self.now;
        self.hot.tokens.insert(token);
        connection.watch = Watch::Hot { since };
    }

    /// Handles the readiness that polling has found.
    pub(in crate::network) fn on_found(&mut self, readiness: Readiness) {
        let token = Token::from_key(readiness.key);
        self.with_connection(token, |worker, token, connection| {
            worker.on_connection_ready(token, connection, readiness)
        });
    }

    /// Handles the poller's event for a connection, or for its wake-up fd.
    pub(in crate::network) fn on_event(
        &mut self,
        token: Token,
        connection: &mut Connection<S::Session>,
        readiness: Readiness,
    ) -> Disposition {
        if connection.watch == Watch::Poller {
            return self.on_connection_ready(token, connection, readiness);
        }
        let is_gone = connection.transport.drain_wakeup();
        self.warm(token, connection);
        if is_gone || readiness.broken {
            let end = Readiness::end(readiness.key);
            return self.on_connection_ready(token, connection, end);
        }
        if connection.transport.is_ready(connection.interest) != Some(true) {
            return Disposition::Keep;
        }
        let found = Readiness::of(readiness.key, connection.interest);
        self.on_connection_ready(token, connection, found)
    }

    /// Whether there is a hot connection that may become ready soon.
    fn is_worth_spinning(&mut self) -> bool {
        let Self {
            hot, connections, ..
        } = self;
        let is_active = |token: Token| {
            connections
                .get_mut(token)
                .is_some_and(|c| matches!(c.interest, Interest::Read | Interest::Write))
        };
        hot.limits.max_ns > 0 && hot.tokens.iter().any(is_active)
    }

    /// Polls the hot connections until one is ready or the spin time is over, and returns the present time.
    fn spin(&mut self, mut now: Duration, found: &mut Vec<Readiness>) -> Duration {
        let Hot {
            limits, spin_state, ..
        } = self.hot;
        let mut spin = Spin::begin(&POLICY, limits, None, spin_state, &self.processor());
        while found.is_empty() && spin.again(&self.processor()) {
            now = spin.last_ns().map_or(now, Duration::from_nanos);
            self.poll_once(now, IDLE_MAX, found);
        }
        self.hot.spin_state = spin.end(!found.is_empty(), &self.processor());
        self.shared.clock.now()
    }

    fn processor(&self) -> WorkerProcessor<'_> {
        WorkerProcessor(&*self.shared.clock)
    }

    /// Polls each hot connection once, and arms those that have been idle for `idle_max`.
    fn poll_once(&mut self, now: Duration, idle_max: Duration, found: &mut Vec<Readiness>) {
        for _ in 0..self.hot.tokens.len() {
            let Some(token) = self.hot.tokens.front() else {
                break;
            };
            self.hot.tokens.rotate();
            match self.poll_connection(token, now, idle_max) {
                Polled::Ready(interest) => found.push(Readiness::of(token.key(), interest)),
                Polled::NotReady => {}
                Polled::Cold => {
                    self.hot.tokens.remove(token);
                }
            }
        }
    }

    fn poll_connection(&mut self, token: Token, now: Duration, idle_max: Duration) -> Polled {
        let Some(connection) = self.connections.get_mut(token) else {
            return Polled::Cold;
        };
        let Watch::Hot { since } = &mut connection.watch else {
            return Polled::Cold;
        };
        let interest = connection.interest;
        if connection.transport.is_ready(interest) == Some(true) {
            *since = now;
            return Polled::Ready(interest);
        }
        if now.saturating_sub(*since) < idle_max {
            return Polled::NotReady;
        }
        if connection.transport.arm_wakeup(interest) {
            *since = now;
            return Polled::Ready(interest);
        }
        connection.watch = Watch::Armed(interest);
        Polled::Cold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A processor whose clock moves by 100 ns in each pause.
    #[derive(Default)]
    struct Simulated(std::cell::Cell<u64>);

    impl Processor for Simulated {
        fn now_ns(&self) -> u64 {
            self.0.get()
        }

        fn yield_now(&self) {
            self.pause();
        }

        fn pause(&self) {
            self.0.set(self.0.get() + 100);
        }
    }

    /// The time of one spin, of which the poll succeeds at once or never.
    fn spin(hot: &mut Hot, is_hit: bool) -> u64 {
        let processor = Simulated::default();
        let mut spin = Spin::begin(&POLICY, hot.limits, None, hot.spin_state, &processor);
        while spin.again(&processor) && !is_hit {}
        hot.spin_state = spin.end(is_hit, &processor);
        processor.now_ns()
    }

    #[test]
    fn spin_time_halves_after_failures_and_doubles_after_successes() {
        let longest = Duration::from_micros(20);
        // The clock is read in every sixteenth pass.
        let tolerance_ns = 2 * 1600;
        let mut hot = Hot::new(longest);
        let mut expected_ns = 20_000;
        for _ in 0..10 {
            let spun_ns = spin(&mut hot, false);
            assert!((expected_ns..=expected_ns + tolerance_ns).contains(&spun_ns));
            expected_ns = (expected_ns / 2).max(20_000 / SHORTEST_PART);
        }
        assert_eq!(expected_ns, 20_000 / SHORTEST_PART);
        for _ in 0..10 {
            spin(&mut hot, true);
        }
        assert!(spin(&mut hot, false) >= 20_000);
        let mut never = Hot::new(Duration::ZERO);
        assert_eq!(spin(&mut never, true), 0);
        assert_eq!(spin(&mut never, false), 0);
    }
}
