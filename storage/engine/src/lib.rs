//! An ordered key-value engine: the contract between the document layer and whatever keeps its bytes.
//!
//! # Purpose
//! [`Engine`] is what a document database needs of its storage and no more: point reads, bounded
//! iteration in both directions, snapshots, atomic batches in one dense order, conflict detection
//! for read-modify-write, scratch space, checkpoints. Two engines implement it: [`MemoryEngine`]
//! here, which is small enough to be believed and serves as the oracle of the tests, and
//! `millrace-rocksdb`, which keeps a folder of files.
//!
//! # Invariants every engine keeps
//! 1. **Dense order.** Every commit that succeeds gets the [`CommitSeq`] that follows the one before it;
//!    there are no holes. A reader that saw commit sequence number *n* sees every commit up to *n* and, through a
//!    [`Snapshot`] of commit sequence number *n*, none after it.
//! 2. **Atomicity.** A [`Batch`] is visible and durable as a whole or not at all.
//! 3. **No lost update.** [`Engine::commit`] refuses a batch with [`ErrorKind::Conflict`] when a key
//!    guarded by [`ReadSet`] was committed after the guard was taken. It may also refuse one that did
//!    not conflict (two keys may share a slot of the conflict table); the caller retries.
//! 4. **Durability.** Once [`Engine::durable_commit_seq`] has reached *n*, every commit up to *n* survives
//!    the loss of power.
//! 5. **Poison.** After a write or a sync failed, nothing is acknowledged any more: every later
//!    commit and sync answers [`ErrorKind::Poisoned`]. Reads go on.
//! 6. **One device.** Everything an engine keeps, scratch space included, lives where its data lives.
//!
//! # Threads, clock, randomness
//! An engine is `Send + Sync`; all methods may be called from any thread. This crate spawns no
//! thread and reads neither clock nor random source. Methods block for as long as the device takes.
//!
//! # Limits
//! Keys are at most [`KEY_LEN_MAX`] bytes, values at most [`VALUE_LEN_MAX`] bytes; longer ones are
//! refused with [`ErrorKind::TooLarge`] before anything is written, and so is a [`Batch`] of more than
//! [`BATCH_LEN_MAX`] bytes.
//!
//! # Example
//! ```
//! use millrace_engine::{Batch, Durability, Engine, ReadSet, MemoryEngine};
//!
//! let engine = MemoryEngine::new();
//! let mut batch = Batch::new();
//! batch.put(b"k", b"v");
//! let commit_seq = engine.commit(&batch, &ReadSet::none(), Durability::Synced)?;
//! assert_eq!(engine.last_commit_seq(), commit_seq);
//! assert_eq!(engine.get(b"k")?.as_deref(), Some(&b"v"[..]));
//! # Ok::<(), millrace_engine::Error>(())
//! ```

#![forbid(unsafe_code)]

mod batch;
mod commit_seq;
mod conflict;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
mod memory;
mod range;

use std::fmt::Debug;
use std::path::Path;

pub use batch::{Batch, Counter, Operation};
pub use commit_seq::CommitSeq;
pub use conflict::{ConflictTable, ReadSet};
pub use error::{Error, ErrorKind, Result};
pub use memory::MemoryEngine;
pub use range::KeyRange;

/// The longest key, in bytes: 64 KiB.
pub const KEY_LEN_MAX: usize = 64 * 1024;

/// The longest value, in bytes: a 16 MiB document and room for what the layer above adds.
pub const VALUE_LEN_MAX: usize = 17 * 1024 * 1024;

/// The largest batch, in bytes of its keys and values: an engine holds a few copies of it in memory
/// while it commits.
pub const BATCH_LEN_MAX: usize = 256 * 1024 * 1024;

/// What must have happened before [`Engine::commit`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The batch is visible and in the log's buffer; [`Engine::sync`] makes it durable later.
    Buffered,
    /// The batch and every commit before it are on stable storage. Concurrent callers share syncs.
    Synced,
}

/// An ordered key-value engine. See the [crate's page](crate) for the invariants.
pub trait Engine: Send + Sync + Debug + 'static {
    /// Calls `visit` with the value of `key`, borrowed from the engine, and returns whether there was
    /// one. `visit` must not call the engine.
    fn get_with(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// The value of `key`, copied.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = None;
        self.get_with(key, &mut |bytes| value = Some(bytes.to_vec()))?;
        Ok(value)
    }

    /// Reads many keys at once: `visit` is called once for each, in the order of `keys`, with its
    /// index and its value if there is one. All are read from one state of the engine.
    fn multi_get(&self, keys: &[&[u8]], visit: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()>;

    /// The state of the engine at its last commit sequence number. Holding one keeps old versions on disk.
    fn snapshot(&self) -> Result<Box<dyn Snapshot>>;

    /// A cursor over `range` as of now; commits made later are not seen.
    fn cursor(&self, range: KeyRange) -> Result<Box<dyn Cursor>>;

    /// Applies `batch` atomically if no key in `read_set` has been committed since it was guarded, and
    /// returns the commit sequence number. With an empty batch only the read set is checked: it gets no commit
    /// sequence number of its own, the last one is returned (and is durable if that was asked for).
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] (retry from the read), [`ErrorKind::TooLarge`], [`ErrorKind::Poisoned`],
    /// [`ErrorKind::Io`] (the engine is poisoned from then on).
    fn commit(
        &self,
        batch: &Batch,
        read_set: &ReadSet,
        durability: Durability,
    ) -> Result<CommitSeq>;

    /// Starts guarding: reads made after this call and registered in the result are checked by
    /// [`Engine::commit`].
    fn read_set(&self) -> ReadSet {
        ReadSet::starting_at(self.last_commit_seq())
    }

    /// The current value of a counter kept by [`Batch::add`]; zero if it was never added to.
    fn counter(&self, key: &[u8]) -> Result<Counter>;

    /// The commit sequence number of the last commit that is visible; zero before the first.
    fn last_commit_seq(&self) -> CommitSeq;

    /// The commit sequence number up to which commits are on stable storage.
    fn durable_commit_seq(&self) -> CommitSeq;

    /// Makes every commit visible at the time of the call durable and returns the durable commit sequence number,
    /// which may be later. Concurrent callers share syncs (group commit).
    fn sync(&self) -> Result<CommitSeq>;

    /// Scratch space for spilled sorts and groups. It is lost on restart and freed on drop.
    fn scratch(&self) -> Result<Box<dyn Scratch>>;

    /// Writes a consistent copy of everything up to some commit sequence number, which is returned, into the folder
    /// `target`, which must not exist. The copy opens as an engine of its own.
    fn checkpoint(&self, target: &Path) -> Result<CommitSeq>;

    /// About how many bytes the keys and values of `range` take on storage.
    fn size_estimate(&self, range: &KeyRange) -> Result<u64>;

    /// Gives the space of deleted keys in `range` back to the device.
    fn compact(&self, range: &KeyRange) -> Result<()>;

    /// Counters for monitoring, as `(name, value)`; names are stable, in snake case, and end in their
    /// unit (`block_cache_bytes`) or in `_total` when they only rise.
    fn statistics(&self) -> Vec<(&'static str, u64)>;
}

/// One state of an engine, unchanged by later commits.
pub trait Snapshot: Send + Sync + Debug {
    /// The last commit in this state.
    fn commit_seq(&self) -> CommitSeq;
    /// As [`Engine::get_with`].
    fn get_with(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool>;
    /// As [`Engine::get`].
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = None;
        self.get_with(key, &mut |bytes| value = Some(bytes.to_vec()))?;
        Ok(value)
    }
    /// As [`Engine::multi_get`].
    fn multi_get(&self, keys: &[&[u8]], visit: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()>;
    /// As [`Engine::cursor`], over this state.
    fn cursor(&self, range: KeyRange) -> Result<Box<dyn Cursor>>;
    /// As [`Engine::counter`]: the sum that the commits up to [`commit_seq`](Self::commit_seq) made.
    fn counter(&self, key: &[u8]) -> Result<Counter>;
}

/// A position in a bounded range of keys.
///
/// A new cursor stands nowhere; [`seek_first`](Cursor::seek_first), [`seek_last`](Cursor::seek_last),
/// [`seek`](Cursor::seek) or [`seek_back`](Cursor::seek_back) puts it on a key. Each positioning call
/// returns whether the cursor stands on a key of the range; when it does not, [`key`](Cursor::key) and
/// [`value`](Cursor::value) must not be called (they panic), and [`next`](Cursor::next) and
/// [`previous`](Cursor::previous) answer `false` and leave it standing nowhere.
pub trait Cursor: Send + Debug {
    /// Moves to the first key of the range.
    fn seek_first(&mut self) -> Result<bool>;
    /// Moves to the last key of the range.
    fn seek_last(&mut self) -> Result<bool>;
    /// Moves to the first key that is not less than `key`.
    fn seek(&mut self, key: &[u8]) -> Result<bool>;
    /// Moves to the last key that is not greater than `key`.
    fn seek_back(&mut self, key: &[u8]) -> Result<bool>;
    /// Moves to the next key.
    fn next(&mut self) -> Result<bool>;
    /// Moves to the previous key.
    fn previous(&mut self) -> Result<bool>;
    /// The key under the cursor.
    fn key(&self) -> &[u8];
    /// The value under the cursor.
    fn value(&self) -> &[u8];
}

/// A private ordered space for intermediate results, on the engine's own device.
pub trait Scratch: Send + Debug {
    /// Stores `value` under `key`, replacing what was there.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;
    /// The value of `key`, copied.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;
    /// A cursor over everything stored so far; what is stored later is not seen.
    fn cursor(&self) -> Result<Box<dyn Cursor>>;
    /// How many bytes of keys and values were ever stored, those replaced included.
    fn bytes_stored(&self) -> u64;
}
