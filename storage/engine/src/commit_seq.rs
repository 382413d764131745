//! The place of a commit in the engine's total order.

use std::fmt;

/// The place of a commit in the engine's dense order: the first commit is 1, each next one 1 more.
/// Zero stands for the state before the first commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommitSeq(u64);

impl CommitSeq {
    /// The commit sequence number before the first commit.
    pub const ZERO: Self = Self(0);

    /// The commit sequence number of the commit with this number: 1 for the first commit, 0 for none.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number of the commit: 1 for the first, 0 for none.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The commit sequence number that follows this one.
    ///
    /// # Panics
    /// When the 2^64 commit sequence numbers are used up, which takes 500 years at a billion commits a second.
    #[must_use]
    pub const fn next(self) -> Self {
        match self.0.checked_add(1) {
            Some(number) => Self(number),
            None => panic!("commit_seqs are used up"),
        }
    }
}

impl fmt::Display for CommitSeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
