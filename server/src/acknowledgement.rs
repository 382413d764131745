//! How far writes have come, and how far one must have come before its reply is sent.
//!
//! ```text
//!   commit -----------> sync of the log ----> copy on a majority
//!   Level::Visible      Level::Durable        Level::Majority
//! ```
//! A commit returns when it is visible, so no reply waits for that. On a server that is alone the majority is the
//! server itself: whatever raises the watermark of `Durable` raises that of `Majority` with it.
//!
//! # Ownership
//! | field | threads that use it |
//! |---|---|
//! | a watermark | the journal raises it; any thread reads it |
//! | the failure | the journal sets it, once; any thread reads it |
//!
//! # Invariants
//! 1. A watermark never goes back.
//! 2. Every commit up to a level's watermark has reached that level.
//! 3. After a failure no watermark rises any more.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use millrace_engine::CommitSeq;

/// How far a write must have come before it is acknowledged. Each level implies those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Reads see it.
    Visible,
    /// Its log record is on stable storage here.
    Durable,
    /// Its log record is on stable storage of a majority of the members.
    Majority,
}

impl Level {
    /// All levels, from the weakest to the strongest.
    pub const ALL: [Self; 3] = [Self::Visible, Self::Durable, Self::Majority];

    const fn index(self) -> usize {
        match self {
            Self::Visible => 0,
            Self::Durable => 1,
            Self::Majority => 2,
        }
    }
}

/// What a finished reply waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    /// The last commit of the request.
    pub commit_seq: CommitSeq,
    /// How far that commit must have come.
    pub level: Level,
    /// Monotonic time at which the reply is sent with a `writeConcernError` instead; `None` for never.
    pub until: Option<Duration>,
}

/// The watermarks of all levels, read at one moment, and whether the journal has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    levels: [CommitSeq; Level::ALL.len()],
    /// Whether no watermark rises any more.
    pub has_failed: bool,
}

impl Reached {
    /// The commit sequence number up to which every commit has reached `level`.
    #[must_use]
    pub const fn commit_seq(&self, level: Level) -> CommitSeq {
        self.levels[level.index()]
    }
}

/// How far the commits of this server have come, by level. See the [module's page](self).
#[derive(Debug)]
pub struct Watermarks {
    /// By [`Level::index`]. Raised with `Release` and read with `Acquire`: a reader that sees a new value also sees
    /// what the sync, or the commit, did.
    levels: [AtomicU64; Level::ALL.len()],
    /// Set with `Release` after the last raise, read with `Acquire` before the levels: a reader that sees the failure
    /// sees the last watermarks.
    failed: AtomicBool,
}

impl Watermarks {
    /// The watermarks of a server that is alone and whose commits up to `durable` are on stable storage.
    #[must_use]
    pub const fn alone(durable: CommitSeq) -> Self {
        let at = durable.get();
        Self {
            levels: [AtomicU64::new(at), AtomicU64::new(at), AtomicU64::new(at)],
            failed: AtomicBool::new(false),
        }
    }

    /// Raises a level's watermark to `commit_seq`; a lower one changes nothing.
    pub fn raise(&self, level: Level, commit_seq: CommitSeq) {
        let reached = match level {
            Level::Visible => &Level::ALL[..1],
            // Alone, one member is the majority.
            Level::Durable | Level::Majority => &Level::ALL[..],
        };
        for level in reached {
            self.levels[level.index()].fetch_max(commit_seq.get(), Ordering::Release);
        }
    }

    /// The commit sequence number up to which every commit has reached `level`.
    #[must_use]
    pub fn commit_seq(&self, level: Level) -> CommitSeq {
        CommitSeq::new(self.levels[level.index()].load(Ordering::Acquire))
    }

    /// Says that no watermark rises any more.
    pub fn fail(&self) {
        self.failed.store(true, Ordering::Release);
    }

    /// Whether no watermark rises any more: what waits for one waits in vain.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// All of it at this moment.
    #[must_use]
    pub fn reached(&self) -> Reached {
        let has_failed = self.has_failed();
        Reached {
            levels: Level::ALL.map(|level| self.commit_seq(level)),
            has_failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_of_a_lone_server_reaches_the_majority_and_nothing_goes_back() {
        let watermarks = Watermarks::alone(CommitSeq::new(2));
        let numbers = || Level::ALL.map(|level| watermarks.commit_seq(level).get());
        assert_eq!(numbers(), [2, 2, 2]);
        watermarks.raise(Level::Visible, CommitSeq::new(5));
        assert_eq!(numbers(), [5, 2, 2], "a commit that is visible may be lost");
        watermarks.raise(Level::Durable, CommitSeq::new(4));
        assert_eq!(numbers(), [5, 4, 4]);
        watermarks.raise(Level::Durable, CommitSeq::new(3));
        assert_eq!(numbers(), [5, 4, 4]);
        assert!(!watermarks.reached().has_failed);
        watermarks.fail();
        let reached = watermarks.reached();
        assert!(reached.has_failed);
        assert_eq!(reached.commit_seq(Level::Majority), CommitSeq::new(4));
    }
}
