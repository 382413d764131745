//! Replies that wait until their write has come far enough.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use millrace_engine::CommitSeq;

use crate::acknowledgement::{Acknowledgement, Level, Reached};

/// What a parked reply has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The write has reached its level: the reply is sent as it is.
    Reached,
    /// It never will: the reply becomes an error.
    Failed,
    /// It has not within its time: the reply gets a `writeConcernError`.
    TimedOut,
}

/// The parked replies of one worker, each under a token of the worker's. Waits for no clock and no lock: the worker
/// asks what is released.
///
/// # Invariants
/// 1. A token is parked at most once.
/// 2. Each deadline is that of a reply that is parked.
#[derive(Debug)]
pub(crate) struct ParkedReplies<T> {
    /// By level, in the order of what they wait for, each with its deadline.
    waiting: [BTreeMap<(CommitSeq, T), Option<Duration>>; Level::ALL.len()],
    deadlines: BTreeSet<(Duration, T, Level, CommitSeq)>,
}

impl<T: Copy + Ord> ParkedReplies<T> {
    pub(crate) const fn new() -> Self {
        Self {
            waiting: [BTreeMap::new(), BTreeMap::new(), BTreeMap::new()],
            deadlines: BTreeSet::new(),
        }
    }

    fn waiting(&mut self, level: Level) -> &mut BTreeMap<(CommitSeq, T), Option<Duration>> {
        let [visible, durable, majority] = &mut self.waiting;
        match level {
            Level::Visible => visible,
            Level::Durable => durable,
            Level::Majority => majority,
        }
    }

    /// Parks a reply that is not parked.
    pub(crate) fn park(&mut self, token: T, wanted: &Acknowledgement) {
        let (level, commit_seq) = (wanted.level, wanted.commit_seq);
        self.waiting(level)
            .insert((commit_seq, token), wanted.until);
        if let Some(until) = wanted.until {
            self.deadlines.insert((until, token, level, commit_seq));
        }
    }

    /// Takes back a reply that was parked with `wanted`; nothing if it is released already.
    pub(crate) fn remove(&mut self, token: T, wanted: &Acknowledgement) {
        self.take(wanted.level, wanted.commit_seq, token);
    }

    fn take(&mut self, level: Level, commit_seq: CommitSeq, token: T) {
        let until = self.waiting(level).remove(&(commit_seq, token));
        if let Some(until) = until.flatten() {
            self.deadlines.remove(&(until, token, level, commit_seq));
        }
    }

    /// How many replies are parked.
    pub(crate) fn len(&self) -> usize {
        self.waiting.iter().map(BTreeMap::len).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.iter().all(BTreeMap::is_empty)
    }

    /// The last commit that a reply waits for.
    pub(crate) fn last_commit_seq(&self) -> Option<CommitSeq> {
        let last =
            |waiting: &BTreeMap<(CommitSeq, T), _>| waiting.keys().next_back().map(|key| key.0);
        self.waiting.iter().filter_map(last).max()
    }

    /// The first deadline, as monotonic time.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.deadlines.first().map(|(until, ..)| *until)
    }

    /// Takes out a reply that waits no more at `now`: one that has `reached` its level, or any after a failure, or one
    /// whose time is over.
    pub(crate) fn pop(&mut self, reached: &Reached, now: Duration) -> Option<(T, Verdict)> {
        for level in Level::ALL {
            let first = self.waiting(level).first_key_value();
            let Some((commit_seq, token)) = first.map(|(key, _)| *key) else {
                continue;
            };
            let has_reached = commit_seq <= reached.commit_seq(level);
            if has_reached || reached.has_failed {
                self.take(level, commit_seq, token);
                let verdict = if has_reached {
                    Verdict::Reached
                } else {
                    Verdict::Failed
                };
                return Some((token, verdict));
            }
        }
        let (until, token, level, commit_seq) = self.deadlines.first().copied()?;
        if until > now {
            return None;
        }
        self.take(level, commit_seq, token);
        Some((token, Verdict::TimedOut))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acknowledgement::Watermarks;

    fn wanted(commit_seq: u64, level: Level, until_ms: Option<u64>) -> Acknowledgement {
        Acknowledgement {
            commit_seq: CommitSeq::new(commit_seq),
            level,
            until: until_ms.map(Duration::from_millis),
        }
    }

    const START: Duration = Duration::ZERO;

    #[test]
    fn a_reply_waits_for_the_watermark_of_its_own_level() {
        let mut parked = ParkedReplies::new();
        for (token, level) in ["visible", "durable", "majority"]
            .into_iter()
            .zip(Level::ALL)
        {
            parked.park(token, &wanted(3, level, None));
        }
        assert_eq!(
            (parked.len(), parked.last_commit_seq()),
            (3, Some(CommitSeq::new(3)))
        );
        let watermarks = Watermarks::alone(CommitSeq::new(2));
        assert_eq!(parked.pop(&watermarks.reached(), START), None);
        watermarks.raise(Level::Visible, CommitSeq::new(3));
        let reached = watermarks.reached();
        assert_eq!(
            parked.pop(&reached, START),
            Some(("visible", Verdict::Reached))
        );
        assert_eq!(parked.pop(&reached, START), None);
        watermarks.raise(Level::Durable, CommitSeq::new(3));
        let reached = watermarks.reached();
        assert_eq!(
            parked.pop(&reached, START),
            Some(("durable", Verdict::Reached))
        );
        assert_eq!(
            parked.pop(&reached, START),
            Some(("majority", Verdict::Reached))
        );
        assert!(parked.is_empty());
    }

    #[test]
    fn a_reply_is_given_up_at_its_deadline_and_no_other_with_it() {
        let mut parked = ParkedReplies::new();
        parked.park("patient", &wanted(1, Level::Majority, None));
        parked.park("first", &wanted(2, Level::Majority, Some(5)));
        parked.park("later", &wanted(1, Level::Majority, Some(9)));
        let nothing = Watermarks::alone(CommitSeq::ZERO).reached();
        let at = Duration::from_millis;
        assert_eq!(parked.next_deadline(), Some(at(5)));
        assert_eq!(parked.pop(&nothing, at(4)), None);
        assert_eq!(
            parked.pop(&nothing, at(5)),
            Some(("first", Verdict::TimedOut))
        );
        assert_eq!(parked.pop(&nothing, at(5)), None);
        let one = Watermarks::alone(CommitSeq::new(1)).reached();
        assert_eq!(
            parked.pop(&one, at(9)),
            Some(("later", Verdict::Reached)),
            "in time"
        );
        assert_eq!(parked.next_deadline(), None);
        assert_eq!(parked.len(), 1);
    }

    #[test]
    fn a_reply_of_a_closed_connection_leaves_nothing_behind() {
        let mut parked = ParkedReplies::new();
        let acknowledgement = wanted(1, Level::Majority, Some(5));
        parked.park("gone", &acknowledgement);
        parked.remove("gone", &acknowledgement);
        assert!(parked.is_empty());
        assert_eq!(parked.next_deadline(), None);
        parked.remove("gone", &acknowledgement);
    }

    #[test]
    fn after_a_failure_what_is_not_covered_fails_and_nothing_waits() {
        let mut parked = ParkedReplies::new();
        parked.park("covered", &wanted(1, Level::Durable, None));
        parked.park("lost", &wanted(2, Level::Durable, Some(5)));
        let watermarks = Watermarks::alone(CommitSeq::new(1));
        watermarks.fail();
        let reached = watermarks.reached();
        assert_eq!(
            parked.pop(&reached, START),
            Some(("covered", Verdict::Reached))
        );
        assert_eq!(parked.pop(&reached, START), Some(("lost", Verdict::Failed)));
        assert_eq!(
            (parked.pop(&reached, START), parked.next_deadline()),
            (None, None)
        );
    }
}
