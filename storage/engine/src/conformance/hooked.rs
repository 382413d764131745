//! An engine that calls a test's hooks before and after its operations, so that the test can act in between.

use std::fmt;
use std::path::Path;

use crate::{
    Batch, CommitSeq, Counter, Cursor, Durability, Engine, KeyRange, ReadSet, Result, Scratch,
    Snapshot,
};

/// The actions of a test before and after the operations of a [`Hooked`] engine; each does nothing by default.
pub trait Hooks: Send + Sync + fmt::Debug + 'static {
    /// Before a commit: what it read may change under it.
    fn before_commit(&self) {}

    /// Before a commit, after [`before_commit`](Self::before_commit).
    ///
    /// # Errors
    /// What the commit is to fail with; the engine below is then not asked.
    fn refuse_commit(&self) -> Result<()> {
        Ok(())
    }

    /// After a commit has become visible and before its caller knows. `engine` is the one below.
    fn after_commit(&self, engine: &dyn Engine) {
        let _ = engine;
    }

    /// Before a cursor is opened on the present state.
    fn before_cursor(&self) {}

    /// Before a sync.
    ///
    /// # Errors
    /// What the sync is to fail with; the engine below is then not asked.
    fn before_sync(&self) -> Result<()> {
        Ok(())
    }
}

/// The engine `inner`, with `hooks` called before and after its operations.
#[derive(Debug)]
pub struct Hooked<E, H> {
    inner: E,
    hooks: H,
}

impl<E: Engine, H: Hooks> Hooked<E, H> {
    /// Puts `hooks` before and after the calls to `inner`.
    pub const fn new(inner: E, hooks: H) -> Self {
        Self { inner, hooks }
    }

    /// The hooks that the engine was made with.
    pub const fn hooks(&self) -> &H {
        &self.hooks
    }
}

impl<E: Engine, H: Hooks> Engine for Hooked<E, H> {
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
        self.hooks.before_cursor();
        self.inner.cursor(range)
    }

    fn commit(
        &self,
        batch: &Batch,
        read_set: &ReadSet,
        durability: Durability,
    ) -> Result<CommitSeq> {
        self.hooks.before_commit();
        self.hooks.refuse_commit()?;
        let commit_seq = self.inner.commit(batch, read_set, durability)?;
        self.hooks.after_commit(&self.inner);
        Ok(commit_seq)
    }

    fn counter(&self, key: &[u8]) -> Result<Counter> {
        self.inner.counter(key)
    }

    fn last_commit_seq(&self) -> CommitSeq {
        self.inner.last_commit_seq()
    }

    fn durable_commit_seq(&self) -> CommitSeq {
        self.inner.durable_commit_seq()
    }

    fn sync(&self) -> Result<CommitSeq> {
        self.hooks.before_sync()?;
        self.inner.sync()
    }

    fn scratch(&self) -> Result<Box<dyn Scratch>> {
        self.inner.scratch()
    }

    fn checkpoint(&self, target: &Path) -> Result<CommitSeq> {
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
