//! When to sync: the journal without its thread, its lock, its clock and its engine.
//!
//! ```text
//!            request, interval or stop              enough replies, or time is over
//!   Idle ------------------------------> Gathering ---------------------------------> Syncing
//!    ^ |                                                                                 |
//!    | '--- begin_alone ---> SyncingAlone --- synced ---.                                |
//!    '--------------------------------------------------+------------- synced -----------'
//! ```
//! A driver calls [`JournalState::poll`] and does what it says; [`JournalState::synced`] ends each sync. Between two
//! polls [`JournalState::request`], [`JournalState::begin_alone`] and [`JournalState::stop`] may be called; they, and
//! the end of a sync of a lone writer, say whether the driver is to be woken.
//!
//! # Invariants
//! 1. One sync at a time.
//! 2. What was requested before a sync began is covered by it, since a commit is visible before it is requested.
//! 3. After a failed sync there is no other.

use std::time::Duration;

use millrace_engine::CommitSeq;

use super::{GATHERING_MAX, INLINE_MAX};

/// What the driver of a journal has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Sync the engine, and say what came of it.
    Sync,
    /// Poll again when woken, at the latest at this monotonic time.
    WaitUntil(Duration),
    /// Poll again when woken.
    Wait,
    /// Poll no more: the journal was stopped, or a sync failed.
    Stop,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// Nothing is wanted.
    #[default]
    Idle,
    /// More replies may join, at the latest until this monotonic time.
    Gathering { until: Duration },
    /// The driver syncs.
    Syncing,
    /// A writer that is alone syncs by itself.
    SyncingAlone,
}

/// The journal's state machine. See the [module's page](self).
#[derive(Debug)]
pub struct JournalState {
    interval: Option<Duration>,
    /// Monotonic time at which the interval is over; known from the first poll that has nothing else to do.
    interval_end: Option<Duration>,
    durable: CommitSeq,
    wanted: CommitSeq,
    phase: Phase,
    /// Replies that were parked after the last sync began.
    waiting: u64,
    /// Replies that the running sync releases.
    releasing: u64,
    /// Replies to gather before the next sync.
    expected: u64,
    /// Monotonic time at which the running sync began, and how long the last one took.
    sync_began: Duration,
    sync_time: Duration,
    stopping: bool,
    failed: bool,
}

impl JournalState {
    /// A journal of an engine whose commits up to `durable` are on stable storage. With an `interval` it also syncs
    /// that often by itself.
    #[must_use]
    pub fn new(durable: CommitSeq, interval: Option<Duration>) -> Self {
        Self {
            interval,
            interval_end: None,
            durable,
            wanted: CommitSeq::ZERO,
            phase: Phase::Idle,
            waiting: 0,
            releasing: 0,
            expected: 0,
            sync_began: Duration::ZERO,
            sync_time: Duration::ZERO,
            stopping: false,
            failed: false,
        }
    }

    /// Asks for a sync that covers `commit_seq`, for so many `replies` that were parked since the last request. Returns
    /// whether the driver is to be woken.
    #[must_use]
    pub fn request(&mut self, commit_seq: CommitSeq, replies: u64) -> bool {
        self.wanted = self.wanted.max(commit_seq);
        self.waiting += replies;
        match self.phase {
            Phase::Idle => true,
            Phase::Gathering { .. } => self.waiting >= self.expected,
            // The end of the sync looks for what came meanwhile.
            Phase::Syncing | Phase::SyncingAlone => false,
        }
    }

    /// Begins a sync by the one writer whose reply waits for `commit_seq`, and returns whether it may: it was alone at
    /// the last sync, which was short, and nothing else is going on.
    #[must_use]
    pub fn begin_alone(&mut self, commit_seq: CommitSeq, now: Duration) -> bool {
        let is_quiet = self.phase == Phase::Idle && !self.stopping && !self.failed;
        let is_alone = self.waiting == 0 && self.expected == 1;
        if !is_quiet || !is_alone || self.sync_time >= INLINE_MAX {
            return false;
        }
        self.wanted = self.wanted.max(commit_seq);
        self.phase = Phase::SyncingAlone;
        self.releasing = 1;
        self.sync_began = now;
        true
    }

    /// Has the journal end after a last sync. The driver is to be woken.
    pub const fn stop(&mut self) {
        self.stopping = true;
    }

    /// What the driver has to do at the monotonic time `now`, when the engine's last commit is `last`.
    #[must_use]
    pub fn poll(&mut self, now: Duration, last: CommitSeq) -> Action {
        if self.failed {
            return Action::Stop;
        }
        if self.phase == Phase::Idle {
            let is_due = self.is_interval_over(now);
            if !is_due && !self.stopping && self.wanted <= self.durable {
                return self.interval_end.map_or(Action::Wait, Action::WaitUntil);
            }
            let until = now.saturating_add(self.sync_time.min(GATHERING_MAX));
            self.phase = Phase::Gathering { until };
        }
        let Phase::Gathering { until } = self.phase else {
            // The end of the running sync wakes the driver if the interval is over by then.
            let is_over = self.is_interval_over(now);
            let end = self.interval_end.filter(|_| !is_over);
            return end.map_or(Action::Wait, Action::WaitUntil);
        };
        let is_pressing = self.stopping || self.is_interval_over(now);
        if !is_pressing && self.waiting < self.expected && now < until {
            return Action::WaitUntil(until);
        }
        self.interval_end = None;
        if last > self.durable {
            self.phase = Phase::Syncing;
            self.releasing = std::mem::take(&mut self.waiting);
            self.sync_began = now;
            return Action::Sync;
        }
        self.phase = Phase::Idle;
        if self.stopping {
            return Action::Stop;
        }
        let _ = self.is_interval_over(now); // the next one begins
        self.interval_end.map_or(Action::Wait, Action::WaitUntil)
    }

    /// Ends a sync at the monotonic time `now`: the commit sequence number that it covers, or `None` if it failed.
    /// Returns whether the driver is to be woken if it was not the driver that synced.
    ///
    /// # Panics
    /// If no sync is running.
    pub fn synced(&mut self, covered: Option<CommitSeq>, now: Duration) -> bool {
        assert!(
            matches!(self.phase, Phase::Syncing | Phase::SyncingAlone),
            "a sync that ends was begun"
        );
        match covered {
            Some(covered) => self.durable = self.durable.max(covered),
            None => self.failed = true,
        }
        self.phase = Phase::Idle;
        self.expected = self.releasing + self.waiting;
        self.sync_time = now.saturating_sub(self.sync_began);
        self.failed
            || self.stopping
            || self.wanted > self.durable
            || self.interval_end.is_some_and(|end| end <= now)
    }

    /// Whether the interval is over; it begins now if none is running.
    fn is_interval_over(&mut self, now: Duration) -> bool {
        let Some(interval) = self.interval else {
            return false;
        };
        let end = *self
            .interval_end
            .get_or_insert_with(|| now.saturating_add(interval));
        end <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC_TIME: Duration = Duration::from_micros(100);

    fn at(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    fn commit_seq(number: u64) -> CommitSeq {
        CommitSeq::new(number)
    }

    /// A journal whose last sync released so many replies and took [`SYNC_TIME`]; it ended at 100 us, at commit
    /// sequence number 1.
    fn after_a_sync(replies: u64, interval: Option<Duration>) -> JournalState {
        let mut state = JournalState::new(CommitSeq::ZERO, interval);
        assert!(state.request(commit_seq(1), replies));
        assert_eq!(
            state.poll(at(0), commit_seq(1)),
            Action::Sync,
            "nobody is expected"
        );
        assert!(!state.synced(Some(commit_seq(1)), at(100)));
        state
    }

    #[test]
    fn a_sync_waits_for_those_whom_the_last_one_released_and_who_came_meanwhile() {
        let mut state = after_a_sync(2, None);
        assert_eq!(state.poll(at(100), commit_seq(1)), Action::Wait);
        assert!(state.request(commit_seq(2), 1), "the first one wakes");
        assert_eq!(
            state.poll(at(110), commit_seq(2)),
            Action::WaitUntil(at(210))
        );
        assert!(state.request(commit_seq(3), 1), "all are there");
        assert_eq!(state.poll(at(120), commit_seq(3)), Action::Sync);
        assert!(!state.request(commit_seq(4), 1), "the sync goes on");
        assert_eq!(state.poll(at(121), commit_seq(4)), Action::Wait);
        assert!(
            state.synced(Some(commit_seq(3)), at(220)),
            "one is not covered"
        );
        assert_eq!(state.expected, 3);
    }

    #[test]
    fn writers_who_left_are_waited_for_once_and_no_longer_than_a_sync() {
        let mut state = after_a_sync(100, None);
        assert!(state.request(commit_seq(2), 1));
        assert_eq!(
            state.poll(at(1_000), commit_seq(2)),
            Action::WaitUntil(at(1_100))
        );
        assert_eq!(
            state.poll(at(1_099), commit_seq(2)),
            Action::WaitUntil(at(1_100))
        );
        assert_eq!(state.poll(at(1_100), commit_seq(2)), Action::Sync);
        assert!(!state.synced(Some(commit_seq(2)), at(9_000)));
        assert_eq!(state.expected, 1);
        state.expected = 2;
        assert!(state.request(commit_seq(3), 1));
        let longest = Action::WaitUntil(at(9_000) + GATHERING_MAX);
        assert_eq!(
            state.poll(at(9_000), commit_seq(3)),
            longest,
            "after a slow sync"
        );
    }

    #[test]
    fn a_lone_writer_syncs_by_itself() {
        let mut state = JournalState::new(CommitSeq::ZERO, None);
        assert!(
            !state.begin_alone(commit_seq(1), at(0)),
            "nobody knows who is about"
        );
        let mut state = after_a_sync(1, None);
        assert!(state.begin_alone(commit_seq(2), at(200)));
        assert_eq!(state.poll(at(200), commit_seq(2)), Action::Wait, "it syncs");
        assert!(!state.begin_alone(commit_seq(2), at(200)), "one at a time");
        assert!(
            !state.synced(Some(commit_seq(2)), at(300)),
            "the driver sleeps on"
        );
        assert!(state.begin_alone(commit_seq(3), at(400)));
        assert!(!state.request(commit_seq(4), 1), "the sync goes on");
        assert!(
            state.synced(Some(commit_seq(3)), at(500)),
            "the driver takes over"
        );
        assert!(
            !state.begin_alone(commit_seq(5), at(500)),
            "another one waits"
        );
        assert_eq!(
            state.poll(at(500), commit_seq(5)),
            Action::WaitUntil(at(600))
        );
    }

    #[test]
    fn a_lone_writer_leaves_a_slow_device_to_the_driver() {
        let mut state = after_a_sync(1, None);
        state.sync_time = INLINE_MAX;
        assert!(!state.begin_alone(commit_seq(2), at(200)));
        state.sync_time = SYNC_TIME;
        state.stop();
        assert!(
            !state.begin_alone(commit_seq(2), at(200)),
            "the end has come"
        );
    }

    #[test]
    fn the_end_is_not_put_off_and_takes_everything_along() {
        let mut state = after_a_sync(100, None);
        assert!(state.request(commit_seq(2), 1));
        assert_eq!(
            state.poll(at(200), commit_seq(2)),
            Action::WaitUntil(at(300))
        );
        state.stop();
        assert_eq!(state.poll(at(201), commit_seq(3)), Action::Sync);
        assert!(state.synced(Some(commit_seq(3)), at(300)));
        assert_eq!(state.poll(at(300), commit_seq(3)), Action::Stop);
    }

    #[test]
    fn the_end_waits_for_a_lone_writer() {
        let mut state = after_a_sync(1, None);
        assert!(state.begin_alone(commit_seq(2), at(200)));
        state.stop();
        assert_eq!(state.poll(at(200), commit_seq(2)), Action::Wait);
        assert!(
            state.synced(Some(commit_seq(2)), at(300)),
            "the driver is to end"
        );
        assert_eq!(state.poll(at(300), commit_seq(2)), Action::Stop);
    }

    #[test]
    fn an_interval_syncs_what_nobody_waits_for_and_nothing_else() {
        let mut state = JournalState::new(CommitSeq::ZERO, Some(at(1_000)));
        assert_eq!(
            state.poll(at(0), commit_seq(0)),
            Action::WaitUntil(at(1_000))
        );
        assert_eq!(
            state.poll(at(999), commit_seq(1)),
            Action::WaitUntil(at(1_000))
        );
        assert_eq!(state.poll(at(1_000), commit_seq(1)), Action::Sync);
        assert!(!state.synced(Some(commit_seq(1)), at(1_100)));
        assert_eq!(
            state.poll(at(1_100), commit_seq(1)),
            Action::WaitUntil(at(2_100))
        );
        let nothing = state.poll(at(2_100), commit_seq(1));
        assert_eq!(nothing, Action::WaitUntil(at(3_100)), "there is no commit");
    }

    #[test]
    fn an_interval_that_ends_while_a_lone_writer_syncs_is_not_forgotten() {
        let mut state = after_a_sync(1, Some(at(1_000)));
        assert!(state.begin_alone(commit_seq(2), at(200)));
        assert_eq!(
            state.poll(at(200), commit_seq(2)),
            Action::WaitUntil(at(1_200))
        );
        assert_eq!(state.poll(at(1_200), commit_seq(3)), Action::Wait);
        assert!(
            state.synced(Some(commit_seq(2)), at(1_300)),
            "the driver takes over"
        );
        assert_eq!(state.poll(at(1_300), commit_seq(3)), Action::Sync);
    }

    #[test]
    fn nothing_is_synced_after_a_failure() {
        let mut state = after_a_sync(1, None);
        assert!(state.request(commit_seq(2), 1));
        assert_eq!(state.poll(at(200), commit_seq(2)), Action::Sync);
        assert!(state.synced(None, at(300)));
        assert_eq!(state.poll(at(300), commit_seq(3)), Action::Stop);
        assert!(!state.begin_alone(commit_seq(3), at(300)));
    }
}
