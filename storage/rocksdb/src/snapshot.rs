//! One state of the engine.

use std::fmt;
use std::sync::Arc;

use millrace_engine::{CommitSeq, Counter, Cursor, KeyRange, Result, Snapshot};
use rocksdb::ReadOptions;

use crate::cursor::RocksCursor;
use crate::database::Database;
use crate::held::{HeldIterator, HeldSnapshot};

/// A snapshot of RocksDB and the commit sequence number that is stored in it.
pub(crate) struct RocksSnapshot {
    // Dropped before the snapshot it refers to.
    options: ReadOptions,
    held: Arc<HeldSnapshot>,
    commit_seq: CommitSeq,
}

impl RocksSnapshot {
    /// The present state. Its commit sequence number is read from the state itself, so the two agree without a lock
    /// that would let readers wait for commits.
    pub(crate) fn new(database: Arc<Database>) -> Result<Self> {
        let held = Arc::new(HeldSnapshot::new(database));
        let options = held.read_options();
        let commit_seq = held.database().stored_commit_seq(&options)?;
        Ok(Self {
            options,
            held,
            commit_seq,
        })
    }
}

impl Snapshot for RocksSnapshot {
    fn commit_seq(&self) -> CommitSeq {
        self.commit_seq
    }

    fn get_with(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.held.database().get_with(key, &self.options, visit)
    }

    fn multi_get(&self, keys: &[&[u8]], visit: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        self.held.database().multi_get(keys, &self.options, visit)
    }

    fn cursor(&self, range: KeyRange) -> Result<Box<dyn Cursor>> {
        let owner = Arc::clone(self.held.database());
        let bounds = RocksCursor::bounds(&range);
        let iterator = HeldIterator::of_data(owner, bounds, Some(Arc::clone(&self.held)));
        Ok(Box::new(RocksCursor::new(iterator)))
    }

    fn counter(&self, key: &[u8]) -> Result<Counter> {
        self.held.database().stored_counter(key, &self.options)
    }
}

impl fmt::Debug for RocksSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RocksSnapshot")
            .field("commit_seq", &self.commit_seq)
            .finish_non_exhaustive()
    }
}
