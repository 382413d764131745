//! The options of an engine, chosen by its owner.

#[cfg(feature = "blobfs")]
use millrace_blobfs::Volume;

use crate::UnsyncedLossFs;

/// The memory, threads, files and clock that an engine is opened with.
#[derive(Clone, Debug)]
pub struct Options {
    /// How much memory the engine may use for cached blocks and memtables together. At least 8 MiB are
    /// used.
    pub cache_bytes: usize,
    /// How many flushes and compactions may run at once, each in a thread of RocksDB.
    pub background_jobs: u16,
    /// How many table files are kept open at once.
    pub open_files_max: u16,
    /// The file system that the engine's folder is on.
    pub file_system: FileSystem,
    /// Monotonic clock, in nanoseconds from any start. With it the statistic
    /// `commit_lock_nanoseconds_total` counts how long commits held their lock; without it commits read no
    /// clock.
    pub commit_clock: Option<fn() -> u64>,
}

impl Default for Options {
    /// A cache of 256 MiB, two background jobs, 512 open files, the operating system's files,
    /// no clock.
    fn default() -> Self {
        Self {
            cache_bytes: 256 * 1024 * 1024,
            background_jobs: 2,
            open_files_max: 512,
            file_system: FileSystem::Default,
            commit_clock: None,
        }
    }
}

/// The file system an engine works on.
#[derive(Clone, Debug, Default)]
pub enum FileSystem {
    /// The operating system's.
    #[default]
    Default,
    /// One for tests that forgets what was not synced when the process is killed.
    UnsyncedLoss(UnsyncedLossFs),
    /// A volume on a device that this process drives. The engine's folder, and those of checkpoints, are folders
    /// of the volume. Absent without the feature `blobfs`.
    #[cfg(feature = "blobfs")]
    Blobfs(Volume),
}
