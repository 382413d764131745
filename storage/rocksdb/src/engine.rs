//! The engine itself: the order of commits, the syncs, and the reads of one database.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use millrace_engine::{
    Batch, CommitSeq, Counter, Cursor, Durability, Engine, Error, ErrorKind, KeyRange, ReadSet,
    Result, Scratch, Snapshot,
};
use rocksdb::ReadOptions;
use rocksdb::checkpoint::Checkpoint;

use crate::commits::Commits;
use crate::configuration::Configuration;
use crate::cursor::RocksCursor;
use crate::database::Database;
use crate::error::engine_error;
use crate::group_sync::GroupSync;
use crate::held::HeldIterator;
use crate::scratch::{RocksScratch, ScratchSpaces};
use crate::snapshot::RocksSnapshot;
use crate::{Options, folder, keys, statistics};

/// An [`Engine`] on a folder of RocksDB files. See the [crate's page](crate).
pub struct RocksEngine {
    commits: Commits,
    group: GroupSync,
    scratch: Arc<ScratchSpaces>,
    read_options: ReadOptions,
    database: Arc<Database>,
}

impl RocksEngine {
    /// Opens the engine in `folder`, which is created if it is missing.
    ///
    /// # Errors
    /// [`ErrorKind::Locked`] when a process has the folder open, [`ErrorKind::NewerFormat`] when a later
    /// version wrote it, [`ErrorKind::InvalidArgument`] when it holds another database,
    /// [`ErrorKind::Corruption`], [`ErrorKind::Io`], [`ErrorKind::NoSpace`].
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the options are the engine's from then on"
    )]
    pub fn open(folder: &Path, options: Options) -> Result<Self> {
        let configuration = Configuration::new(&options);
        let scratch_options = configuration.scratch.clone();
        let database = Arc::new(Database::open(folder, configuration)?);
        let scratch = ScratchSpaces::new(Arc::clone(&database), scratch_options)?;
        let commits = Commits::resume(&database, options.commit_clock)?;
        // RocksDB writes what it replays from the log to a table file and syncs that, so everything that is
        // visible after opening is durable.
        let group = GroupSync::new(commits.last());
        Ok(Self {
            commits,
            group,
            scratch: Arc::new(scratch),
            read_options: ReadOptions::default(),
            database,
        })
    }

    /// Makes everything up to `target` durable.
    fn make_durable(&self, target: CommitSeq) -> Result<CommitSeq> {
        let poison = &self.database.poison;
        let sync = || {
            poison.check()?;
            self.database
                .db()
                .flush_wal(true)
                .map_err(|error| poison.record(engine_error("cannot sync the log", error)))
        };
        self.group.wait(target, || self.commits.last(), sync)
    }
}

impl Engine for RocksEngine {
    fn get_with(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.database.get_with(key, &self.read_options, visit)
    }

    fn multi_get(&self, keys: &[&[u8]], visit: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        self.database.multi_get(keys, &self.read_options, visit)
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        Ok(Box::new(RocksSnapshot::new(Arc::clone(&self.database))?))
    }

    fn cursor(&self, range: KeyRange) -> Result<Box<dyn Cursor>> {
        let bounds = RocksCursor::bounds(&range);
        let iterator = HeldIterator::of_data(Arc::clone(&self.database), bounds, None);
        Ok(Box::new(RocksCursor::new(iterator)))
    }

    fn commit(
        &self,
        batch: &Batch,
        read_set: &ReadSet,
        durability: Durability,
    ) -> Result<CommitSeq> {
        let commit_seq = self.commits.commit(&self.database, batch, read_set)?;
        if durability == Durability::Synced {
            self.make_durable(commit_seq)?;
        }
        Ok(commit_seq)
    }

    fn counter(&self, key: &[u8]) -> Result<Counter> {
        Ok(self.commits.counter(key))
    }

    fn last_commit_seq(&self) -> CommitSeq {
        self.commits.last()
    }

    fn durable_commit_seq(&self) -> CommitSeq {
        self.group.durable()
    }

    fn sync(&self) -> Result<CommitSeq> {
        self.database.poison.check()?;
        self.make_durable(self.commits.last())
    }

    fn scratch(&self) -> Result<Box<dyn Scratch>> {
        Ok(Box::new(RocksScratch::new(Arc::clone(&self.scratch))))
    }

    fn checkpoint(&self, target: &Path) -> Result<CommitSeq> {
        let files = &self.database.files;
        if files.exists(target) {
            let context = format!(
                "the checkpoint's folder {} exists already",
                target.display()
            );
            return Err(Error::new(ErrorKind::InvalidArgument, context));
        }
        let context = || format!("cannot write the checkpoint {}", target.display());
        let db = self.database.db();
        // A checkpoint flushes the memtables and links their files. The bulk is flushed while commits go
        // on, the rest while they wait, so that the copy ends with a known commit sequence number.
        db.flush().map_err(|error| engine_error(context(), error))?;
        let name = files.rocksdb_name_of(self.database.folder(), target);
        let commit_seq = self.commits.between_commits(|last| {
            let checkpoint = Checkpoint::new(db)?;
            checkpoint.create_checkpoint(&name).map(|()| last)
        });
        let commit_seq = commit_seq.map_err(|error| engine_error(context(), error))?;
        folder::write_format(files, target)?;
        Ok(commit_seq)
    }

    fn size_estimate(&self, range: &KeyRange) -> Result<u64> {
        self.database.size_estimate(range)
    }

    fn compact(&self, range: &KeyRange) -> Result<()> {
        if !range.is_empty() {
            let (start, end) = keys::stored_bounds(range);
            self.database.db().compact_range(Some(start), Some(end));
        }
        Ok(())
    }

    fn statistics(&self) -> Vec<(&'static str, u64)> {
        let mut out = vec![
            ("commits_total", self.commits.commits()),
            ("wal_syncs_total", self.group.syncs()),
            (
                "wal_sync_acknowledgements_total",
                self.group.acknowledgements(),
            ),
        ];
        // Without a clock there is no such figure, and a zero would be a wrong one.
        let lock_ns = self.commits.lock_ns();
        out.extend(lock_ns.map(|ns| ("commit_lock_nanoseconds_total", ns)));
        statistics::collect(&self.database, &mut out);
        #[cfg(feature = "blobfs")]
        self.database.files.collect(&mut out);
        out
    }
}

impl fmt::Debug for RocksEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RocksEngine")
            .field("folder", &self.database.folder())
            .field("last_commit_seq", &self.last_commit_seq())
            .field("durable_commit_seq", &self.durable_commit_seq())
            .finish_non_exhaustive()
    }
}
