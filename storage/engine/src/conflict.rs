//! Detection of conflicting commits in fixed memory.
//!
//! Every commit stamps the slots of the keys it wrote with its commit sequence number. A transaction remembers the
//! commit sequence number at which it began and the keys it read; at commit, under the engine's commit lock, it is
//! refused if any of those slots carries a later stamp. Two keys may share a slot, so a refusal may be
//! spurious, never an acceptance. A removed range stamps all slots at once, through one commit sequence number beside
//! the slots: removals of ranges are rare, and what they cost is a retry of the transactions under way. This is the
//! resolver of an optimistic scheme (Kung and Robinson, "On Optimistic Methods for Concurrency Control", 1981, serial
//! validation), with the write sets of the past folded into one word a slot so that memory does not grow.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Batch, CommitSeq, Operation};

/// The keys a transaction read and the commit sequence number from which they must not have changed.
#[derive(Clone, Debug)]
pub struct ReadSet {
    start: CommitSeq,
    keys: Vec<Vec<u8>>,
}

impl ReadSet {
    /// The empty read set: the commit never conflicts.
    #[must_use]
    pub const fn none() -> Self {
        Self {
            start: CommitSeq::ZERO,
            keys: Vec::new(),
        }
    }

    /// A read set for reads made after `start` was read from the engine.
    #[must_use]
    pub const fn starting_at(start: CommitSeq) -> Self {
        Self {
            start,
            keys: Vec::new(),
        }
    }

    /// Registers a read of `key` (present or absent).
    pub fn add(&mut self, key: &[u8]) {
        self.keys.push(key.to_vec());
    }

    /// The commit sequence number from which the keys must be unchanged.
    #[must_use]
    pub const fn start(&self) -> CommitSeq {
        self.start
    }

    /// The guarded keys, in the order in which they were added; a key may occur twice.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(Vec::as_slice)
    }
}

/// The last commit sequence number that wrote to each slot of keys.
///
/// Thread safety: stamped and checked only by the holder of the engine's commit lock, which orders all
/// accesses; the words are atomic so that the table needs no lock of its own, and `Relaxed` suffices.
#[derive(Debug)]
pub struct ConflictTable {
    slots: Box<[AtomicU64]>,
    /// The last commit sequence number that removed a range.
    range: AtomicU64,
    hasher: RandomState,
}

impl ConflictTable {
    /// A table of `1 << slots_log2` slots of 8 bytes.
    ///
    /// # Panics
    /// When `slots_log2` is over 32.
    #[must_use]
    pub fn new(slots_log2: u32) -> Self {
        assert!(
            slots_log2 <= 32,
            "a conflict table of 2^{slots_log2} slots is too large"
        );
        let slots = (0..1_u64 << slots_log2)
            .map(|_| AtomicU64::new(0))
            .collect();
        Self {
            slots,
            range: AtomicU64::new(0),
            hasher: RandomState::new(),
        }
    }

    fn slot(&self, key: &[u8]) -> &AtomicU64 {
        let mask = self.slots.len() as u64 - 1;
        let index = self.hasher.hash_one(key) & mask;
        &self.slots[usize::try_from(index).expect("the mask keeps the index below a usize length")]
    }

    /// Whether a guarded key may have been committed after the read set began.
    #[must_use]
    pub fn conflicts(&self, read_set: &ReadSet) -> bool {
        let start = read_set.start.get();
        !read_set.keys.is_empty()
            && (self.range.load(Ordering::Relaxed) > start
                || read_set
                    .keys()
                    .any(|key| self.slot(key).load(Ordering::Relaxed) > start))
    }

    /// Records that the commit `commit_seq` wrote the keys of `batch`.
    pub fn stamp_batch(&self, batch: &Batch, commit_seq: CommitSeq) {
        for operation in batch.operations() {
            match operation {
                Operation::Put { key, .. } | Operation::Delete { key } => {
                    self.stamp(key, commit_seq)
                }
                Operation::DeleteRange { .. } => {
                    self.range.store(commit_seq.get(), Ordering::Relaxed)
                }
            }
        }
    }

    /// Records that the commit `commit_seq` wrote `key`.
    fn stamp(&self, key: &[u8], commit_seq: CommitSeq) {
        self.slot(key).store(commit_seq.get(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KeyRange;

    fn guarding(start: u64, key: &[u8]) -> ReadSet {
        let mut read_set = ReadSet::starting_at(CommitSeq::new(start));
        read_set.add(key);
        read_set
    }

    #[test]
    fn later_writes_of_a_guarded_key_conflict() {
        let table = ConflictTable::new(16);
        let mut batch = Batch::new();
        batch.put(b"put", b"");
        batch.delete(b"deleted");
        table.stamp_batch(&batch, CommitSeq::new(5));
        for key in [&b"put"[..], b"deleted"] {
            assert!(table.conflicts(&guarding(4, key)));
            assert!(!table.conflicts(&guarding(5, key)));
        }
        assert!(!table.conflicts(&ReadSet::starting_at(CommitSeq::ZERO)));
        assert!(!table.conflicts(&ReadSet::none()));
    }

    #[test]
    fn a_removed_range_conflicts_with_every_guard_before_it() {
        let table = ConflictTable::new(4);
        let mut batch = Batch::new();
        batch.delete_range(&KeyRange::all());
        table.stamp_batch(&batch, CommitSeq::new(7));
        assert!(table.conflicts(&guarding(6, b"any")));
        assert!(!table.conflicts(&guarding(7, b"any")));
        assert!(!table.conflicts(&ReadSet::none()));
    }

    #[test]
    fn one_slot_refuses_too_much_but_never_too_little() {
        let table = ConflictTable::new(0);
        let mut batch = Batch::new();
        batch.put(b"a", b"");
        table.stamp_batch(&batch, CommitSeq::new(1));
        assert!(table.conflicts(&guarding(0, b"a")));
        assert!(table.conflicts(&guarding(0, b"b")));
    }
}
