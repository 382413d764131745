//! Adaptive spinning on connections with a wake-up fd, before the worker sleeps.
//!
//! A connection with a wake-up fd is *hot* or *armed*. Hot ones are polled in every round, which costs a few loads
//! each and spares the client every system call. One that stays idle for [`IDLE_MAX`] is armed, and so are all of them
//! when the worker has nothing to do and has spun without success: their clients will send a wake-up. An armed one
//! costs nothing until then. So the cost of a round is proportional to the connections in use.
//!
//! # Invariants
//! 1. A connection is hot exactly if its token is in the list; a token in the list may be of no connection.
//! 2. The worker sleeps only when the list is empty: each connection was polled once more after it was armed.
//! 3. The poller watches every wake-up fd, hot or not, so that a closed one is found while others are busy.
//! 4. While hot connections are busy the kernel is asked every [`PASSES_MAX`] rounds, or after [`UNASKED_MAX`]; and
//!    always before the worker spins for longer than one round.

use std::time::Duration;

use super::{Disposition, Worker};
use crate::network::Service;
use crate::network::connection::{Connection, Watch};
use crate::network::poller::{Interest, Readiness};
use crate::network::slab::Token;

/// For how long a hot connection may be idle while others are busy.
const IDLE_MAX: Duration = Duration::from_micros(50);

/// For how many rounds, and for how long, the kernel need not be asked.
const PASSES_MAX: u32 = 16;
const UNASKED_MAX: Duration = Duration::from_micros(50);

/// The number of passes over the hot connections between two calls of `sched_yield`, each with a reading of the clock.
const PASSES_PER_YIELD: u32 = 16;

/// The longest spin time divided by the shortest.
const SHORTEST_PART: u32 = 16;

/// The hot connections, and the time to spin on them.
#[derive(Debug)]
pub(in crate::network) struct Hot {
    tokens: Vec<Token>,
    /// The time to spin before sleeping, between `spin_time_max / SHORTEST_PART` and `spin_time_max`.
    spin_time: Duration,
    spin_time_max: Duration,
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
        Self {
            tokens: Vec::new(),
            spin_time: spin_time_max,
            spin_time_max,
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

    /// Doubles the spin time after a success and halves it after a failure, within its limits.
    fn adapt(&mut self, has_found: bool) {
        self.spin_time = if has_found {
            (self.spin_time * 2).min(self.spin_time_max)
        } else {
            (self.spin_time / 2).max(self.spin_time_max / SHORTEST_PART)
        };
    }
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
        if !matches!(connection.watch, Watch::Hot { .. }) {
            self.hot.tokens.push(token);
        }
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
        let is_active = |token: &Token| {
            connections
                .get_mut(*token)
                .is_some_and(|c| matches!(c.interest, Interest::Read | Interest::Write))
        };
        !hot.spin_time.is_zero() && hot.tokens.iter().any(is_active)
    }

    /// Polls the hot connections until one is ready or the spin time is over, and returns the present time.
    fn spin(&mut self, began: Duration, found: &mut Vec<Readiness>) -> Duration {
        let mut now = began;
        while found.is_empty() && now.saturating_sub(began) < self.hot.spin_time {
            for _ in 0..PASSES_PER_YIELD {
                std::hint::spin_loop();
                self.poll_once(now, IDLE_MAX, found);
                if !found.is_empty() {
                    break;
                }
            }
            if found.is_empty() {
                // The client may wait for this core.
                std::thread::yield_now();
            }
            now = self.shared.clock.now();
        }
        self.hot.adapt(!found.is_empty());
        now
    }

    /// Polls each hot connection once, and arms those that have been idle for `idle_max`.
    fn poll_once(&mut self, now: Duration, idle_max: Duration, found: &mut Vec<Readiness>) {
        let mut index = 0;
        while let Some(token) = self.hot.tokens.get(index).copied() {
            match self.poll_connection(token, now, idle_max) {
                Polled::Ready(interest) => {
                    found.push(Readiness::of(token.key(), interest));
                    index += 1;
                }
                Polled::NotReady => index += 1,
                Polled::Cold => drop(self.hot.tokens.swap_remove(index)),
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

    #[test]
    fn spin_time_halves_after_failures_and_doubles_after_successes() {
        let longest = Duration::from_micros(20);
        let mut hot = Hot::new(longest);
        for _ in 0..10 {
            hot.adapt(false);
        }
        assert_eq!(hot.spin_time, longest / SHORTEST_PART);
        for _ in 0..10 {
            hot.adapt(true);
        }
        assert_eq!(hot.spin_time, longest);
        let mut never = Hot::new(Duration::ZERO);
        never.adapt(true);
        assert!(never.spin_time.is_zero());
    }
}
