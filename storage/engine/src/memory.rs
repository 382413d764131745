//! The plain in-memory engine: the oracle of the tests.
//!
//! All state lies in one ordered map and a map of counters behind one lock. A snapshot shares both maps, a
//! cursor the first, and the next commit copies what is shared (keys and values themselves stay shared).
//! That makes a commit beside an open snapshot linear in the number of keys, which an oracle may be.

mod checkpoint;
mod cursor;

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use self::cursor::MapCursor;
use crate::{
    Batch, CommitSeq, ConflictTable, Counter, Cursor, Durability, Engine, Error, ErrorKind,
    KeyRange, Operation, ReadSet, Result, Scratch, Snapshot,
};

/// Keys and values, each shared between the versions of the map that hold it.
type Map = BTreeMap<Arc<[u8]>, Arc<[u8]>>;

/// The counters that were added to, by key.
type Counters = HashMap<Vec<u8>, Counter>;

/// The slots of the conflict table as a power of two. Few, so that tests meet spurious conflicts too.
const CONFLICT_SLOTS_LOG2: u32 = 12;

/// An [`Engine`] that keeps everything in memory and loses it when dropped.
///
/// Its durability is simulated: a sync moves the durable commit sequence number and nothing else.
#[derive(Debug)]
pub struct MemoryEngine {
    state: Mutex<State>,
    conflicts: ConflictTable,
}

/// What one commit changes at once.
#[derive(Debug, Default)]
struct State {
    map: Arc<Map>,
    counters: Arc<Counters>,
    last: CommitSeq,
    durable: CommitSeq,
    syncs: u64,
    poisoned: bool,
}

impl Default for MemoryEngine {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryEngine {
    /// An engine without keys and counters, at [`CommitSeq::ZERO`].
    #[must_use]
    pub fn new() -> Self {
        Self::holding(State::default())
    }

    /// The engine that [`Engine::checkpoint`] wrote into `folder`.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] when the folder cannot be read, [`ErrorKind::Corruption`] when it holds
    /// something else.
    pub fn open_checkpoint(folder: &Path) -> Result<Self> {
        checkpoint::read(folder).map(Self::holding)
    }

    fn holding(state: State) -> Self {
        Self {
            state: Mutex::new(state),
            conflicts: ConflictTable::new(CONFLICT_SLOTS_LOG2),
        }
    }

    /// Poisons the engine as if a write had failed, so that a test can see what is made of it.
    pub fn poison(&self) {
        self.state().poisoned = true;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the lock panics")
    }

    fn map(&self) -> Arc<Map> {
        Arc::clone(&self.state().map)
    }
}

impl State {
    fn check_poison(&self) -> Result<()> {
        if self.poisoned {
            return Err(Error::new(
                ErrorKind::Poisoned,
                "an earlier write failed: nothing is acknowledged any more",
            ));
        }
        Ok(())
    }

    fn sync(&mut self) -> CommitSeq {
        if self.durable < self.last {
            self.durable = self.last;
            self.syncs += 1;
        }
        self.durable
    }

    fn apply(&mut self, batch: &Batch) {
        let map = Arc::make_mut(&mut self.map);
        for operation in batch.operations() {
            match operation {
                Operation::Put { key, value } => {
                    map.insert(key.into(), value.into());
                }
                Operation::Delete { key } => {
                    map.remove(key);
                }
                Operation::DeleteRange { start, end } => remove_range(map, start, end),
            }
        }
        let mut deltas = batch.counters().peekable();
        if deltas.peek().is_some() {
            let counters = Arc::make_mut(&mut self.counters);
            for (key, delta) in deltas {
                let sum = counters.entry(key.to_vec()).or_default();
                *sum = sum.plus(delta);
            }
        }
        self.last = self.last.next();
    }
}

fn remove_range(map: &mut Map, start: &[u8], end: Option<&[u8]>) {
    if end.is_some_and(|end| end <= start) {
        return;
    }
    let bounds = (
        Bound::Included(start),
        end.map_or(Bound::Unbounded, Bound::Excluded),
    );
    let doomed: Vec<_> = map
        .range::<[u8], _>(bounds)
        .map(|(key, _)| Arc::clone(key))
        .collect();
    for key in doomed {
        map.remove(&key);
    }
}

impl Engine for MemoryEngine {
    fn get_with(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        // The value is taken out of the lock, and not the map: sharing the map costs the next commit.
        let value = self.state().map.get(key).cloned();
        Ok(value.map(|value| visit(&value)).is_some())
    }

    fn multi_get(&self, keys: &[&[u8]], visit: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let values: Vec<_> = {
            let state = self.state();
            keys.iter()
                .map(|key| state.map.get(*key).cloned())
                .collect()
        };
        for (index, value) in values.iter().enumerate() {
            visit(index, value.as_deref());
        }
        Ok(())
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        let state = self.state();
        Ok(Box::new(MapSnapshot {
            map: Arc::clone(&state.map),
            counters: Arc::clone(&state.counters),
            commit_seq: state.last,
        }))
    }

    fn cursor(&self, range: KeyRange) -> Result<Box<dyn Cursor>> {
        Ok(Box::new(MapCursor::new(self.map(), range)))
    }

    fn commit(
        &self,
        batch: &Batch,
        read_set: &ReadSet,
        durability: Durability,
    ) -> Result<CommitSeq> {
        batch.validate()?;
        let mut state = self.state();
        state.check_poison()?;
        if self.conflicts.conflicts(read_set) {
            return Err(Error::new(
                ErrorKind::Conflict,
                "a guarded key was committed meanwhile",
            ));
        }
        if !batch.is_empty() {
            state.apply(batch);
            self.conflicts.stamp_batch(batch, state.last);
        }
        let commit_seq = state.last;
        if durability == Durability::Synced {
            state.sync();
        }
        Ok(commit_seq)
    }

    fn counter(&self, key: &[u8]) -> Result<Counter> {
        Ok(self.state().counters.get(key).copied().unwrap_or_default())
    }

    fn last_commit_seq(&self) -> CommitSeq {
        self.state().last
    }

    fn durable_commit_seq(&self) -> CommitSeq {
        self.state().durable
    }

    fn sync(&self) -> Result<CommitSeq> {
        let mut state = self.state();
        state.check_poison()?;
        Ok(state.sync())
    }

    fn scratch(&self) -> Result<Box<dyn Scratch>> {
        Ok(Box::new(MapScratch::default()))
    }

    fn checkpoint(&self, target: &Path) -> Result<CommitSeq> {
        let state = self.state();
        checkpoint::write(&state, target)?;
        Ok(state.last)
    }

    fn size_estimate(&self, range: &KeyRange) -> Result<u64> {
        let mut cursor = MapCursor::new(self.map(), range.clone());
        let mut bytes = 0;
        let mut standing = cursor.seek_first()?;
        while standing {
            bytes += (cursor.key().len() + cursor.value().len()) as u64;
            standing = cursor.next()?;
        }
        Ok(bytes)
    }

    fn compact(&self, _range: &KeyRange) -> Result<()> {
        // A key removed from the map takes no space that could be given back.
        Ok(())
    }

    fn statistics(&self) -> Vec<(&'static str, u64)> {
        let state = self.state();
        vec![
            ("keys", state.map.len() as u64),
            ("commits_total", state.last.get()),
            ("wal_syncs_total", state.syncs),
        ]
    }
}

/// Shared maps that no commit changes any more.
#[derive(Debug)]
struct MapSnapshot {
    map: Arc<Map>,
    counters: Arc<Counters>,
    commit_seq: CommitSeq,
}

impl Snapshot for MapSnapshot {
    fn commit_seq(&self) -> CommitSeq {
        self.commit_seq
    }

    fn get_with(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.map.get(key).map(|value| visit(value)).is_some())
    }

    fn multi_get(&self, keys: &[&[u8]], visit: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        for (index, key) in keys.iter().enumerate() {
            visit(index, self.map.get(*key).map(AsRef::as_ref));
        }
        Ok(())
    }

    fn cursor(&self, range: KeyRange) -> Result<Box<dyn Cursor>> {
        Ok(Box::new(MapCursor::new(Arc::clone(&self.map), range)))
    }

    fn counter(&self, key: &[u8]) -> Result<Counter> {
        Ok(self.counters.get(key).copied().unwrap_or_default())
    }
}

/// Scratch space in a map of its own.
#[derive(Debug, Default)]
struct MapScratch {
    map: Arc<Map>,
    bytes_stored: u64,
}

impl Scratch for MapScratch {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        Batch::validate_put(key, value)?;
        Arc::make_mut(&mut self.map).insert(key.into(), value.into());
        self.bytes_stored += (key.len() + value.len()) as u64;
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.map.get(key).map(|value| value.to_vec()))
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>> {
        Ok(Box::new(MapCursor::new(
            Arc::clone(&self.map),
            KeyRange::all(),
        )))
    }

    fn bytes_stored(&self) -> u64 {
        self.bytes_stored
    }
}
