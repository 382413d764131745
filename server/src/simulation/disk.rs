//! An engine over a disk that loses power: what was not synced may be gone.

use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use millrace_engine::{
    Batch, CommitSeq, Counter, Cursor, Durability, Engine, KeyRange, MemoryEngine, ReadSet, Result,
    Scratch, Snapshot,
};

/// The log of an engine as its disk has it.
#[derive(Debug, Default)]
struct Log {
    /// Every commit, in order: the first one has commit sequence number 1.
    commits: Vec<Batch>,
    /// How many of them are on stable storage.
    synced: usize,
    /// Whether no more of them ever will be.
    is_cut: bool,
}

/// The in-memory engine with a log that only [`VolatileEngine::sync_up_to`] makes durable.
#[derive(Debug, Default)]
pub(crate) struct VolatileEngine {
    memory: MemoryEngine,
    log: Mutex<Log>,
}

impl VolatileEngine {
    /// Ends a sync that covers the commits up to `commit_seq`.
    pub(crate) fn sync_up_to(&self, commit_seq: CommitSeq) {
        let mut log = self.log();
        let covered = usize::try_from(commit_seq.get()).expect("few commits");
        assert!(covered <= log.commits.len(), "a sync covers what is there");
        if !log.is_cut {
            log.synced = log.synced.max(covered);
        }
    }

    /// A sync fails: the system drops the pages that were to be written and takes them for clean, so that no later sync
    /// writes them.
    pub(crate) fn drop_unsynced(&self) {
        self.log().is_cut = true;
    }

    /// Fails every later write.
    pub(crate) fn poison(&self) {
        self.memory.poison();
    }

    /// How many commits a loss of power may take.
    pub(crate) fn unsynced(&self) -> usize {
        let log = self.log();
        log.commits.len() - log.synced
    }

    /// The engine that is found after a loss of power of which so many commits that were not synced have survived.
    pub(crate) fn after_power_loss(&self, survivors: usize) -> Self {
        let log = self.log();
        let found = &log.commits[..log.synced + survivors];
        let memory = MemoryEngine::new();
        for commit in found {
            memory
                .commit(commit, &ReadSet::none(), Durability::Buffered)
                .expect("it was committed before");
        }
        Self {
            memory,
            log: Mutex::new(Log {
                commits: found.to_vec(),
                synced: found.len(),
                is_cut: false,
            }),
        }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().expect("no holder of the lock panics")
    }
}

impl Engine for VolatileEngine {
    fn get_with(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.memory.get_with(key, visit)
    }

    fn multi_get(&self, keys: &[&[u8]], visit: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        self.memory.multi_get(keys, visit)
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        self.memory.snapshot()
    }

    fn cursor(&self, range: KeyRange) -> Result<Box<dyn Cursor>> {
        self.memory.cursor(range)
    }

    fn commit(
        &self,
        batch: &Batch,
        read_set: &ReadSet,
        durability: Durability,
    ) -> Result<CommitSeq> {
        let commit_seq = self.memory.commit(batch, read_set, Durability::Buffered)?;
        if !batch.is_empty() {
            self.log().commits.push(batch.clone());
        }
        if durability == Durability::Synced {
            self.sync_up_to(commit_seq);
        }
        Ok(commit_seq)
    }

    fn counter(&self, key: &[u8]) -> Result<Counter> {
        self.memory.counter(key)
    }

    fn last_commit_seq(&self) -> CommitSeq {
        self.memory.last_commit_seq()
    }

    fn durable_commit_seq(&self) -> CommitSeq {
        CommitSeq::new(self.log().synced as u64)
    }

    fn sync(&self) -> Result<CommitSeq> {
        self.memory.sync()?;
        self.sync_up_to(self.last_commit_seq());
        Ok(self.durable_commit_seq())
    }

    fn scratch(&self) -> Result<Box<dyn Scratch>> {
        self.memory.scratch()
    }

    fn checkpoint(&self, target: &Path) -> Result<CommitSeq> {
        self.memory.checkpoint(target)
    }

    fn size_estimate(&self, range: &KeyRange) -> Result<u64> {
        self.memory.size_estimate(range)
    }

    fn compact(&self, range: &KeyRange) -> Result<()> {
        self.memory.compact(range)
    }

    fn statistics(&self) -> Vec<(&'static str, u64)> {
        self.memory.statistics()
    }
}
