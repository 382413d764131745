//! Connections with bells: the worker looks at them, and lets them ring before it sleeps.
//!
//! A connection with a bell is *hot* or *armed*. Hot ones are looked at in every round, which costs a few loads
//! each and spares the client every system call. One that stays idle for [`IDLE_MAX`] is armed, and so are all of them
//! when the worker has nothing to do and has looked in vain for a while: their clients will ring. An armed one costs
//! nothing until then. So a round costs as much as there are connections in use.
//!
//! # Invariants
//! 1. A connection is hot exactly if its token is in the list; a token in the list may be of no connection.
//! 2. The worker sleeps only when the list is empty: each connection was looked at once more after it was armed.
//! 3. A bell is watched for rings all the time, hot or not: that its client is gone is found while others are busy.
//! 4. While hot connections are busy the kernel is asked every [`PASSES_MAX`] rounds, or after [`UNASKED_MAX`]; and
//!    always before the worker looks for longer than one round.

use std::time::Duration;

use super::{Fate, Worker};
use crate::network::Service;
use crate::network::connection::{Connection, Watch};
use crate::network::poller::{Interest, Readiness};
use crate::network::slab::Token;

/// For how long a hot connection may be idle while others are busy.
const IDLE_MAX: Duration = Duration::from_micros(50);

/// For how many rounds, and for how long, the kernel need not be asked.
const PASSES_MAX: u32 = 16;
const UNASKED_MAX: Duration = Duration::from_micros(50);

/// How often a worker looks before another thread gets its turn, and the clock is read.
const LOOKS: u32 = 16;

/// The time to look in vain is never shorter than this part of the longest.
const SHORTEST_PART: u32 = 16;

/// The connections that are looked at, and for how long.
#[derive(Debug)]
pub(in crate::network) struct Hot {
    tokens: Vec<Token>,
    look_time: Duration,
    look_time_max: Duration,
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

/// What came of a look at one connection.
enum Look {
    Found(Interest),
    Nothing,
    /// It is not hot any more.
    Cold,
}

impl Hot {
    pub(in crate::network) fn new(look_time_max: Duration) -> Self {
        Self {
            tokens: Vec::new(),
            look_time: look_time_max,
            look_time_max,
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

    /// Looking pays if something is found in half of the cases.
    fn adapt(&mut self, has_found: bool) {
        self.look_time = if has_found {
            (self.look_time * 2).min(self.look_time_max)
        } else {
            (self.look_time / 2).max(self.look_time_max / SHORTEST_PART)
        };
    }
}

impl<S: Service> Worker<S> {
    /// Appends what connections with bells have to `found`, and says whether the kernel is to be asked.
    pub(in crate::network) fn look_around(&mut self, found: &mut Vec<Readiness>) -> Polling {
        let timeout = self.timeout();
        if self.hot.tokens.is_empty() {
            return Polling::Wait(timeout);
        }
        let mut now = self.shared.clock.now();
        self.look(now, IDLE_MAX, found);
        if found.is_empty() && timeout != Some(Duration::ZERO) {
            if !self.hot.is_quiet {
                // Whoever the kernel knows of comes before those who may come.
                return self.hot.ask(now);
            }
            if self.is_worth_looking() {
                now = self.keep_looking(now, found);
            }
            if found.is_empty() {
                self.look(now, Duration::ZERO, found);
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

    /// A look has found something.
    pub(in crate::network) fn on_found(&mut self, readiness: Readiness) {
        let token = Token::from_key(readiness.key);
        self.with_connection(token, |worker, token, connection| {
            worker.on_connection_ready(token, connection, readiness)
        });
    }

    /// The poller reports a connection, or the bell of one.
    pub(in crate::network) fn on_event(
        &mut self,
        token: Token,
        connection: &mut Connection<S::Session>,
        readiness: Readiness,
    ) -> Fate {
        if connection.watch == Watch::Poller {
            return self.on_connection_ready(token, connection, readiness);
        }
        let is_gone = connection.transport.answer();
        self.warm(token, connection);
        if is_gone || readiness.broken {
            let end = Readiness::end(readiness.key);
            return self.on_connection_ready(token, connection, end);
        }
        if connection.transport.look(connection.interest) != Some(true) {
            return Fate::Keep;
        }
        let found = Readiness::of(readiness.key, connection.interest);
        self.on_connection_ready(token, connection, found)
    }

    /// Whether there is a connection whose client may have something soon.
    fn is_worth_looking(&mut self) -> bool {
        let Self {
            hot, connections, ..
        } = self;
        let is_active = |token: &Token| {
            connections
                .get_mut(*token)
                .is_some_and(|c| matches!(c.interest, Interest::Read | Interest::Write))
        };
        !hot.look_time.is_zero() && hot.tokens.iter().any(is_active)
    }

    /// Looks until something is found or the time is over, and returns what time it is.
    fn keep_looking(&mut self, began: Duration, found: &mut Vec<Readiness>) -> Duration {
        let mut now = began;
        while found.is_empty() && now.saturating_sub(began) < self.hot.look_time {
            for _ in 0..LOOKS {
                std::hint::spin_loop();
                self.look(now, IDLE_MAX, found);
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

    /// Looks at each hot connection once, and arms those that have been idle for `idle_max`.
    fn look(&mut self, now: Duration, idle_max: Duration, found: &mut Vec<Readiness>) {
        let mut index = 0;
        while let Some(token) = self.hot.tokens.get(index).copied() {
            match self.look_at(token, now, idle_max) {
                Look::Found(interest) => {
                    found.push(Readiness::of(token.key(), interest));
                    index += 1;
                }
                Look::Nothing => index += 1,
                Look::Cold => drop(self.hot.tokens.swap_remove(index)),
            }
        }
    }

    fn look_at(&mut self, token: Token, now: Duration, idle_max: Duration) -> Look {
        let Some(connection) = self.connections.get_mut(token) else {
            return Look::Cold;
        };
        let Watch::Hot { since } = &mut connection.watch else {
            return Look::Cold;
        };
        let interest = connection.interest;
        if connection.transport.look(interest) == Some(true) {
            *since = now;
            return Look::Found(interest);
        }
        if now.saturating_sub(*since) < idle_max {
            return Look::Nothing;
        }
        if connection.transport.arm(interest) {
            *since = now;
            return Look::Found(interest);
        }
        connection.watch = Watch::Armed(interest);
        Look::Cold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_in_vain_becomes_shorter_and_pays_again() {
        let longest = Duration::from_micros(20);
        let mut hot = Hot::new(longest);
        for _ in 0..10 {
            hot.adapt(false);
        }
        assert_eq!(hot.look_time, longest / SHORTEST_PART);
        for _ in 0..10 {
            hot.adapt(true);
        }
        assert_eq!(hot.look_time, longest);
        let mut never = Hot::new(Duration::ZERO);
        never.adapt(true);
        assert!(never.look_time.is_zero());
    }
}
