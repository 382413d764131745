//! An engine whose log is synced in the middle of commands.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use millrace_engine::{
    Batch, Counter, Cursor, Durability, Engine, Guards, KeyRange, Optime, Result, Scratch, Snapshot,
};
use millrace_rocksdb::RocksEngine;

/// One commit in so many is followed by a sync.
const COMMITS_PER_SYNC: u64 = 5;

/// The engine under test, beside which another client waits for the device now and then: without it,
/// what is lost would always begin where a command does.
#[derive(Debug)]
pub(crate) struct Restless {
    inner: RocksEngine,
    commits: AtomicU64,
}

impl Restless {
    pub(crate) const fn new(inner: RocksEngine) -> Self {
        Self {
            inner,
            commits: AtomicU64::new(0),
        }
    }
}

impl Engine for Restless {
    fn commit(&self, batch: &Batch, guards: &Guards, durability: Durability) -> Result<Optime> {
        let optime = self.inner.commit(batch, guards, durability)?;
        if self.commits.fetch_add(1, Ordering::Relaxed) % COMMITS_PER_SYNC == 0 {
            // If it fails that is the other client's error; this one's next commit will have its own.
            self.inner.sync().ok();
        }
        Ok(optime)
    }

    fn get_with(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.inner.get_with(key, visit)
    }

    fn multi_get(&self, keys: &[&[u8]], visit: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        self.inner.multi_get(keys, visit)
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        self.inner.snapshot()
    }

    fn cursor(&self, range: KeyRange) -> Result<Box<dyn Cursor>> {
        self.inner.cursor(range)
    }

    fn counter(&self, key: &[u8]) -> Result<Counter> {
        self.inner.counter(key)
    }

    fn last_optime(&self) -> Optime {
        self.inner.last_optime()
    }

    fn durable_optime(&self) -> Optime {
        self.inner.durable_optime()
    }

    fn sync(&self) -> Result<Optime> {
        self.inner.sync()
    }

    fn scratch(&self) -> Result<Box<dyn Scratch>> {
        self.inner.scratch()
    }

    fn checkpoint(&self, target: &Path) -> Result<Optime> {
        self.inner.checkpoint(target)
    }

    fn size_estimate(&self, range: &KeyRange) -> Result<u64> {
        self.inner.size_estimate(range)
    }

    fn compact(&self, range: &KeyRange) -> Result<()> {
        self.inner.compact(range)
    }

    fn statistics(&self) -> Vec<(&'static str, u64)> {
        self.inner.statistics()
    }
}
