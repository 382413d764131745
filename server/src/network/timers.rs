//! Deadlines of connections, at most one each.

use std::collections::BTreeSet;
use std::time::Duration;

use super::slab::Token;

/// An ordered set of deadlines.
#[derive(Debug, Default)]
pub(super) struct Timers {
    deadlines: BTreeSet<(Duration, Token)>,
}

impl Timers {
    /// Moves a connection's deadline; `slot` is where the connection keeps it.
    pub(super) fn set(
        &mut self,
        token: Token,
        slot: &mut Option<Duration>,
        deadline: Option<Duration>,
    ) {
        if *slot == deadline {
            return;
        }
        if let Some(before) = *slot {
            self.deadlines.remove(&(before, token));
        }
        if let Some(after) = deadline {
            self.deadlines.insert((after, token));
        }
        *slot = deadline;
    }

    /// How long it is until the first deadline.
    pub(super) fn until_next(&self, now: Duration) -> Option<Duration> {
        self.deadlines
            .first()
            .map(|(deadline, _)| deadline.saturating_sub(now))
    }

    /// A connection whose deadline has passed. The deadline stays until it is moved.
    pub(super) fn expired(&self, now: Duration) -> Vec<Token> {
        self.deadlines
            .iter()
            .take_while(|(deadline, _)| *deadline <= now)
            .map(|(_, token)| *token)
            .collect()
    }
}
