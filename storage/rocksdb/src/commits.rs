//! The one order of commits.
//!
//! Ownership:
//!
//! | field       | writer                                | readers                   |
//! |-------------|---------------------------------------|---------------------------|
//! | `commit_lock`      | held by the commit under way          |                           |
//! | `conflicts` | the holder of `commit_lock`                  | the holder of `commit_lock`      |
//! | `counters`  | the holder of `commit_lock`, after its write | any thread                |
//! | `last`      | the holder of `commit_lock`, after its write | any thread                |
//!
//! Invariants:
//! 1. `last` is the commit sequence number stored in RocksDB, except between a commit's write and its publication.
//! 2. A key is stamped before the commit sequence number that wrote it is published. So a thread that reads `last` =
//!    *n* and then the key sees every commit up to *n*, and every later one conflicts with guards that start at *n*.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, RwLock};

use millrace_engine::{
    Batch, CommitSeq, ConflictTable, Counter, Error, ErrorKind, Operation, ReadSet, Result,
};
use rocksdb::{ReadOptions, WriteBatch, WriteOptions};

use crate::database::Database;
use crate::error::engine_error;
use crate::keys;

/// The slots of the conflict table as a power of two: 8 MiB.
const CONFLICT_SLOTS_LOG2: u32 = 20;

/// What RocksDB's batches add to each key and value: a tag and two lengths.
const RECORD_BYTES: usize = 12;

pub(crate) struct Commits {
    commit_lock: Mutex<()>,
    conflicts: ConflictTable,
    counters: RwLock<HashMap<Vec<u8>, Counter>>,
    /// The `Release` store pairs with the `Acquire` loads of readers and of the leader of a sync.
    last: AtomicU64,
    commits: AtomicU64,
    clock: Option<fn() -> u64>,
    /// Time for which commits held `commit_lock`, in nanoseconds of `clock`.
    lock_ns: AtomicU64,
    write_options: WriteOptions,
}

impl Commits {
    /// Goes on where the database was left.
    pub(crate) fn resume(database: &Database, clock: Option<fn() -> u64>) -> Result<Self> {
        let last = database.stored_commit_seq(&ReadOptions::default())?;
        let counters = database.stored_counters()?.into_iter().collect();
        Ok(Self {
            commit_lock: Mutex::new(()),
            conflicts: ConflictTable::new(CONFLICT_SLOTS_LOG2),
            counters: RwLock::new(counters),
            last: AtomicU64::new(last.get()),
            commits: AtomicU64::new(0),
            clock,
            lock_ns: AtomicU64::new(0),
            write_options: WriteOptions::default(),
        })
    }

    pub(crate) fn last(&self) -> CommitSeq {
        CommitSeq::new(self.last.load(Ordering::Acquire))
    }

    /// How many commits succeeded since the database was opened.
    pub(crate) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Nanoseconds for which commits held the lock; `None` without a clock.
    pub(crate) fn lock_ns(&self) -> Option<u64> {
        self.clock.map(|_| self.lock_ns.load(Ordering::Relaxed))
    }

    pub(crate) fn counter(&self, key: &[u8]) -> Counter {
        let counters = self.counters.read().expect("no holder of the lock panics");
        counters.get(key).copied().unwrap_or_default()
    }

    /// Puts `batch` in the order, visible and buffered, if its read set holds.
    pub(crate) fn commit(
        &self,
        database: &Database,
        batch: &Batch,
        read_set: &ReadSet,
    ) -> Result<CommitSeq> {
        batch.validate()?;
        let records = encode(batch);
        let _commit_lock = self
            .commit_lock
            .lock()
            .expect("no holder of the lock panics");
        let began = self.clock.map(|clock| clock());
        let committed = self.commit_locked(database, batch, read_set, records);
        if let (Some(clock), Some(began)) = (self.clock, began) {
            self.lock_ns.fetch_add(clock() - began, Ordering::Relaxed);
        }
        committed
    }

    /// The part of [`Commits::commit`] under the lock.
    fn commit_locked(
        &self,
        database: &Database,
        batch: &Batch,
        read_set: &ReadSet,
        mut records: WriteBatch,
    ) -> Result<CommitSeq> {
        database.poison.check()?;
        if self.conflicts.conflicts(read_set) {
            return Err(Error::new(
                ErrorKind::Conflict,
                "a guarded key was committed meanwhile",
            ));
        }
        // Only the holder of the lock changes `last`.
        let last = CommitSeq::new(self.last.load(Ordering::Relaxed));
        if batch.is_empty() {
            return Ok(last);
        }
        let commit_seq = last.next();
        let sums = self.sums(batch);
        for (key, sum) in &sums {
            // A counter at zero is as good as none, and collections come and go.
            if *sum == Counter::default() {
                records.delete(keys::counter(key));
            } else {
                records.put(keys::counter(key), sum.to_bytes());
            }
        }
        records.put(keys::COMMIT_SEQ, commit_seq.get().to_le_bytes());
        database
            .db()
            .write_opt(records, &self.write_options)
            .map_err(|error| {
                database
                    .poison
                    .record(engine_error("cannot write a commit to the log", error))
            })?;
        self.conflicts.stamp_batch(batch, commit_seq);
        self.publish_sums(sums);
        self.last.store(commit_seq.get(), Ordering::Release);
        self.commits.fetch_add(1, Ordering::Relaxed);
        Ok(commit_seq)
    }

    /// Runs `run` with the last commit sequence number while no commit goes on.
    pub(crate) fn between_commits<R>(&self, run: impl FnOnce(CommitSeq) -> R) -> R {
        let _commit_lock = self
            .commit_lock
            .lock()
            .expect("no holder of the lock panics");
        run(self.last())
    }

    /// The counters of `batch` as they will be after it.
    fn sums<'a>(&self, batch: &'a Batch) -> Vec<(&'a [u8], Counter)> {
        let mut deltas = batch.counters().peekable();
        if deltas.peek().is_none() {
            return Vec::new();
        }
        let counters = self.counters.read().expect("no holder of the lock panics");
        deltas
            .map(|(key, delta)| {
                (
                    key,
                    counters.get(key).copied().unwrap_or_default().plus(delta),
                )
            })
            .collect()
    }

    fn publish_sums(&self, sums: Vec<(&[u8], Counter)>) {
        if sums.is_empty() {
            return;
        }
        let mut counters = self.counters.write().expect("no holder of the lock panics");
        for (key, sum) in sums {
            if sum == Counter::default() {
                counters.remove(key);
            } else if let Some(counter) = counters.get_mut(key) {
                *counter = sum;
            } else {
                counters.insert(key.to_vec(), sum);
            }
        }
    }
}

/// The changes of `batch` as RocksDB's records, with room for the commit sequence number.
fn encode(batch: &Batch) -> WriteBatch {
    let operations = batch.operations();
    let count = operations.size_hint().0 + 2;
    let mut records = WriteBatch::with_capacity_bytes(batch.bytes() + count * RECORD_BYTES);
    for operation in operations {
        match operation {
            Operation::Put { key, value } => {
                keys::with_stored(key, |stored| records.put(stored, value));
            }
            Operation::Delete { key } => keys::with_stored(key, |stored| records.delete(stored)),
            Operation::DeleteRange { start, end } => {
                records.delete_range(keys::stored(start), keys::stored_end(end));
            }
        }
    }
    records
}
