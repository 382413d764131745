//! The ordered key-value engine on a folder of RocksDB files, of the operating system or of a volume.
//!
//! # Purpose
//! [`RocksEngine`] implements [`millrace_engine::Engine`]; see there for the invariants. What it adds to
//! RocksDB is the dense order of commits, the refusal of conflicting ones, group commit, poisoning, and
//! counters that change with a batch.
//!
//! # Life of a commit
//! One lock is held from the check of the read set to the publication of the commit sequence number. Under it a commit
//! takes its commit sequence number, adds the commit sequence number and the new sums of its counters to the batch,
//! and gives it to RocksDB, which appends it to the log's buffer and inserts it into the memtable: no system call,
//! except when the buffer of 1 MiB is full and is written out. A commit that must be durable then waits, without the
//! lock, until a sync covers it. One waiter at a time syncs for all; commits go on meanwhile.
//!
//! # Format
//! A folder holds the file `FORMAT` (the line `millrace-rocksdb 1`) and RocksDB's files. The column family
//! `default` holds
//!
//! ```text
//! 0x00 'c' key   the sum of the counter `key`: count and bytes, 8 bytes each, little-endian
//! 0x00 'o'       the commit sequence number of the last commit: 8 bytes, little-endian
//! 0x01 key       the value of `key`
//! ```
//!
//! The folder `scratch` in it is a database of RocksDB with the scratch space, which is never logged.
//!
//! # Recovery
//! The commit sequence number is part of every batch, so what the log holds is a prefix of the commits. Recovery
//! replays the log up to the first record that is torn, which can only lie behind the last sync: an acknowledged
//! commit is never dropped and a torn tail never refuses the folder (RocksDB's "point in time" mode). The price is
//! that a log damaged by the device before its end is cut there too; files of tables are checksummed and refused. The
//! log is bounded, and with it the work; the statistic `wal_replayed_bytes` is the length of that log. Scratch space
//! is removed.
//!
//! # Durability
//! [`Durability::Synced`](millrace_engine::Durability::Synced) and
//! [`Engine::sync`](millrace_engine::Engine::sync) return after `fdatasync` of the log. A log overwrites
//! one that is no longer needed, so that the file does not grow and a sync writes no metadata; each record
//! names its log, so nothing of the old one comes back.
//!
//! # On a volume
//! With `FileSystem::Blobfs`, which the feature `blobfs` adds, the folder is one of a `millrace_blobfs::Volume`: all files of the engine, its
//! lock, its checkpoints and its scratch space are there, and its threads drive the device. A sync of the log is then
//! one write to the volume's journal, and logs are not overwritten, as a growing file costs no more there. Any number
//! of engines can share a volume, each in a folder of its own. The names of checkpoints are names of the volume. The
//! last owner of the volume unmounts it; an engine that is dropped keeps it only through what it handed out.
//! `docs/decisions/rocksdb-on-blobfs.md` says how RocksDB is joined to it.
//!
//! # Features
//! `blobfs` (default): engines on a volume. Without it the folder is one of the operating system, and the crate uses
//! neither `millrace-blobfs` nor what is below it.
//!
//! # Memory
//! Memtables are charged to the block cache, and so are index and filter blocks: all stay within
//! [`Options::cache_bytes`], but for what open cursors pin. A cursor pins the memtables and blocks it
//! reads; one that has to wait for its client for long should be dropped and opened again from its last
//! key, through the [`Snapshot`](millrace_engine::Snapshot), which pins nothing but old versions.
//! Beside the cache there are 8 MiB of conflict table and the counters. A volume has buffers of its own.
//!
//! # Threads
//! RocksDB runs [`Options::background_jobs`] threads for flushes and compactions. Dropping the engine
//! syncs the log and waits for them; a cursor, snapshot or scratch space that is still there keeps the
//! folder open.
//!
//! # Example
//! ```
//! use millrace_engine::{Batch, Durability, Engine, ReadSet};
//! use millrace_rocksdb::{Options, RocksEngine};
//!
//! let folder = tempfile::tempdir().expect("a temporary folder");
//! let engine = RocksEngine::open(folder.path(), Options::default())?;
//! let mut batch = Batch::new();
//! batch.put(b"k", b"v");
//! let commit_seq = engine.commit(&batch, &ReadSet::none(), Durability::Synced)?;
//! drop(engine);
//!
//! let engine = RocksEngine::open(folder.path(), Options::default())?;
//! assert_eq!(engine.last_commit_seq(), commit_seq);
//! assert_eq!(engine.get(b"k")?.as_deref(), Some(&b"v"[..]));
//! # Ok::<(), millrace_engine::Error>(())
//! ```

#[cfg(feature = "blobfs")]
mod blobfs;
mod commits;
mod configuration;
mod cursor;
mod database;
mod engine;
mod error;
mod files;
mod folder;
mod group_sync;
mod held;
mod keys;
mod options;
mod poison;
mod scratch;
mod snapshot;
mod statistics;
mod unsynced_loss_fs;

pub use engine::RocksEngine;
pub use options::{FileSystem, Options};
pub use unsynced_loss_fs::{Fault, UnsyncedLossFs};
