//! The open database of RocksDB, shared by the engine and all that it handed out.

use std::path::{Path, PathBuf};

use millrace_engine::{CommitSeq, Counter, Error, ErrorKind, KeyRange, Result};
use rocksdb::{
    Cache, ColumnFamilyDescriptor, DBWithThreadMode, MultiThreaded, Range, ReadOptions,
    WriteBufferManager,
};

use crate::configuration::Configuration;
use crate::error::engine_error;
use crate::files::Files;
use crate::poison::Poison;
use crate::{folder, keys};

/// RocksDB's handle. In a scratch database column families come and go from any thread.
pub(crate) type Db = DBWithThreadMode<MultiThreaded>;

/// The name of the column family of the data.
const DATA_FAMILY: &str = "default";

/// The most entries an estimate of a size looks at one by one.
const SIZE_ENTRIES_MAX: usize = 2048;

/// An open database. Dropping the last share closes it.
pub(crate) struct Database {
    db: Db,
    pub(crate) poison: Poison,
    /// The options the database was opened with; the statistics are read through them.
    pub(crate) options: rocksdb::Options,
    pub(crate) cache: Cache,
    pub(crate) write_buffers: WriteBufferManager,
    pub(crate) wal_replayed_bytes: u64,
    pub(crate) files: Files,
    folder: PathBuf,
}

impl Database {
    /// Opens the database in `folder` and replays its log.
    pub(crate) fn open(folder: &Path, configuration: Configuration) -> Result<Self> {
        let Configuration {
            mut data,
            cache,
            write_buffers,
            files,
            ..
        } = configuration;
        folder::prepare(&files, folder)?;
        let wal_replayed_bytes = folder::log_bytes(&files, folder)?;
        if let Some(environment) = files.environment(folder)? {
            data.set_env(&environment);
        }
        let family = ColumnFamilyDescriptor::new(DATA_FAMILY, data.clone());
        let db = Db::open_cf_descriptors(&data, files.rocksdb_name(folder), [family])
            .map_err(|error| open_error(folder, error))?;
        let folder = folder.to_path_buf();
        Ok(Self {
            db,
            poison: Poison::default(),
            options: data,
            cache,
            write_buffers,
            wal_replayed_bytes,
            files,
            folder,
        })
    }

    pub(crate) const fn db(&self) -> &Db {
        &self.db
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The commit sequence number stored in the state that `options` name.
    pub(crate) fn stored_commit_seq(&self, options: &ReadOptions) -> Result<CommitSeq> {
        let stored = self
            .db
            .get_pinned_opt(keys::COMMIT_SEQ, options)
            .map_err(|error| engine_error("cannot read the commit sequence number", error))?;
        let Some(stored) = stored else {
            return Ok(CommitSeq::ZERO);
        };
        let bytes: [u8; 8] = stored[..].try_into().map_err(|_| {
            Error::new(
                ErrorKind::Corruption,
                "the stored commit sequence number is not 8 bytes long",
            )
        })?;
        Ok(CommitSeq::new(u64::from_le_bytes(bytes)))
    }

    /// The sum of the counter `key` in the state that `options` name; zero if none is stored.
    pub(crate) fn stored_counter(&self, key: &[u8], options: &ReadOptions) -> Result<Counter> {
        let stored = self
            .db
            .get_pinned_opt(keys::counter(key), options)
            .map_err(|error| engine_error("cannot read a counter", error))?;
        stored.map_or_else(|| Ok(Counter::default()), |sum| Counter::from_bytes(&sum))
    }

    /// All stored counters with their keys.
    pub(crate) fn stored_counters(&self) -> Result<Vec<(Vec<u8>, Counter)>> {
        let mut options = ReadOptions::default();
        options.set_iterate_lower_bound(keys::COUNTERS);
        options.set_iterate_upper_bound(keys::COUNTERS_END);
        let mut iterator = self.db.raw_iterator_opt(options);
        let mut counters = Vec::new();
        iterator.seek_to_first();
        while let Some((key, value)) = iterator.item() {
            counters.push((
                key[keys::COUNTERS.len()..].to_vec(),
                Counter::from_bytes(value)?,
            ));
            iterator.next();
        }
        iterator
            .status()
            .map_err(|error| engine_error("cannot read the counters", error))?;
        Ok(counters)
    }

    /// As [`millrace_engine::Engine::get_with`], in the state that `options` name.
    pub(crate) fn get_with(
        &self,
        key: &[u8],
        options: &ReadOptions,
        visit: &mut dyn FnMut(&[u8]),
    ) -> Result<bool> {
        let value = keys::with_stored(key, |stored| self.db.get_pinned_opt(stored, options))
            .map_err(|error| engine_error("cannot read a key", error))?;
        Ok(value.map(|value| visit(&value)).is_some())
    }

    /// As [`millrace_engine::Engine::multi_get`], in the state that `options` name.
    pub(crate) fn multi_get(
        &self,
        user_keys: &[&[u8]],
        options: &ReadOptions,
        visit: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let mut arena = Vec::with_capacity(user_keys.iter().map(|key| key.len() + 1).sum());
        let mut ends = Vec::with_capacity(user_keys.len());
        for key in user_keys {
            keys::push_stored(&mut arena, key);
            ends.push(arena.len());
        }
        let mut start = 0;
        let stored = ends
            .iter()
            .map(|&end| &arena[std::mem::replace(&mut start, end)..end]);
        let sorted = user_keys.is_sorted();
        let family = self
            .db
            .cf_handle(DATA_FAMILY)
            .expect("the data's column family is open");
        let values = self
            .db
            .batched_multi_get_cf_opt(&family, stored, sorted, options);
        for (index, value) in values.into_iter().enumerate() {
            let value = value.map_err(|error| engine_error("cannot read a key", error))?;
            visit(index, value.as_deref());
        }
        Ok(())
    }

    /// As [`millrace_engine::Engine::size_estimate`].
    ///
    /// RocksDB estimates what lies in files. The first entries of the range are looked at one by one, so
    /// that a small collection that is still in the memtable does not count as empty; what a large one
    /// has in the memtable beyond them, less than one memtable, is left out.
    pub(crate) fn size_estimate(&self, range: &KeyRange) -> Result<u64> {
        if range.is_empty() {
            return Ok(0);
        }
        let (start, end) = keys::stored_bounds(range);
        let in_files: u64 = self
            .db
            .get_approximate_sizes(&[Range::new(&start, &end)])
            .iter()
            .sum();
        let mut options = ReadOptions::default();
        options.set_iterate_lower_bound(start);
        options.set_iterate_upper_bound(end);
        let mut iterator = self.db.raw_iterator_opt(options);
        iterator.seek_to_first();
        let mut seen = 0;
        for _ in 0..SIZE_ENTRIES_MAX {
            let Some((key, value)) = iterator.item() else {
                break;
            };
            seen += (keys::user_key(key).len() + value.len()) as u64;
            iterator.next();
        }
        iterator
            .status()
            .map_err(|error| engine_error("cannot read a range", error))?;
        Ok(in_files.max(seen))
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if !self.poison.is_recorded() {
            if let Err(error) = self.db.flush_wal(true) {
                tracing::error!(%error, folder = %self.folder.display(), "cannot sync the log");
            }
        }
        self.db.cancel_all_background_work(true);
    }
}

/// A failure to open `folder`, with advice where there is any.
fn open_error(folder: &Path, source: rocksdb::Error) -> Error {
    let error = engine_error(
        format!("cannot open the data folder {}", folder.display()),
        source,
    );
    if error.kind() != ErrorKind::Locked {
        return error;
    }
    let context = format!(
        "the data folder {} is in use by another process: stop that one, or choose another folder",
        folder.display()
    );
    Error::new(ErrorKind::Locked, context).with_source(error)
}
