//! How RocksDB is set up.

use rocksdb::statistics::StatsLevel;
use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, DBCompressionType, DBRecoveryMode,
    DataBlockIndexType, LogLevel, WriteBufferManager,
};

use crate::Options;
use crate::files::Files;

/// The least cache that leaves room for two memtables and some blocks.
const CACHE_BYTES_MIN: usize = 8 * 1024 * 1024;

/// The largest memtable.
const MEMTABLE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How many memtables of one column family there may be: one being filled, the others being flushed.
const MEMTABLES_MAX: i32 = 3;

/// The most log a restart has to replay, beside what the memtables being flushed hold.
const WAL_BYTES_MAX: u64 = 192 * 1024 * 1024;

/// How many logs are kept to be overwritten.
const RECYCLED_LOGS_MAX: usize = 2;

/// How many bytes of the log may wait in memory for a sync or, when it is full, be written out.
const WAL_BUFFER_BYTES: u64 = 1024 * 1024;

/// RocksDB's options and the objects they share.
pub(crate) struct Configuration {
    /// For the database of the data.
    pub(crate) data: rocksdb::Options,
    /// For the database of scratch spaces and its column families.
    pub(crate) scratch: rocksdb::Options,
    pub(crate) cache: Cache,
    pub(crate) write_buffers: WriteBufferManager,
    /// Where the files are.
    pub(crate) files: Files,
}

impl Configuration {
    pub(crate) fn new(options: &Options) -> Self {
        let cache_bytes = options.cache_bytes.max(CACHE_BYTES_MIN);
        let memtable_bytes = (cache_bytes / 8).min(MEMTABLE_BYTES_MAX);
        // An estimated charge of zero lets the cache's table grow with what is really in it.
        let cache = Cache::new_hyper_clock_cache(cache_bytes, 0);
        // Memtables are charged to the cache, which gives way to them. Flushes start when they take three
        // eighths of it; commits are not stalled for it, the number of memtables bounds them.
        let write_buffers = WriteBufferManager::new_write_buffer_manager_with_cache(
            cache_bytes / 8 * 3,
            false,
            cache.clone(),
        );
        let files = Files::new(&options.file_system);
        let mut data = database_options(options, &files);
        data.set_write_buffer_manager(&write_buffers);
        set_data_family(&mut data, &table_options(&cache), memtable_bytes);
        let mut scratch = database_options(options, &files);
        scratch.set_write_buffer_manager(&write_buffers);
        // It has no log that could be recycled, and no statistics of its own.
        scratch.set_recycle_log_file_num(0);
        set_scratch_family(&mut scratch, &cache, memtable_bytes);
        Self {
            data,
            scratch,
            cache,
            write_buffers,
            files,
        }
    }
}

/// What holds for a database as a whole.
fn database_options(options: &Options, files: &Files) -> rocksdb::Options {
    let mut database = rocksdb::Options::default();
    database.create_if_missing(true);
    database.set_max_background_jobs(i32::from(options.background_jobs.max(1)));
    database.set_max_open_files(i32::from(options.open_files_max.max(64)));

    // The log. A commit only fills its buffer; a sync, or a full buffer, writes it out. Recovery stops at
    // the first torn record: behind it nothing was ever synced.
    database.set_manual_wal_flush(true);
    database.set_writable_file_max_buffer_size(WAL_BUFFER_BYTES);
    database.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
    database.set_max_total_wal_size(WAL_BYTES_MAX);
    match files {
        // A log that overwrites an old one keeps its size and its blocks, so that a sync writes the records
        // and no metadata: about 60 % of the time and of the processor that a growing file costs (ext4).
        Files::System | Files::UnsyncedLoss(_) => {
            database.set_recycle_log_file_num(RECYCLED_LOGS_MAX)
        }
        // There the sync of a file that grows is one write to the journal.
        #[cfg(feature = "blobfs")]
        Files::Blobfs(_) => database.set_recycle_log_file_num(0),
    }

    // Commits come one at a time, so a memtable needs no concurrent insertion, and a thread that waits
    // to write should sleep instead of spinning.
    database.set_allow_concurrent_memtable_write(false);
    database.set_enable_write_thread_adaptive_yield(false);
    // A reader that drops a cursor leaves the deletion of files to a background thread.
    database.set_avoid_unnecessary_blocking_io(true);

    // RocksDB's own log is for the worst day and must not fill the device.
    database.set_log_level(LogLevel::Warn);
    database.set_max_log_file_size(4 * 1024 * 1024);
    database.set_keep_log_file_num(4);
    database.set_stats_dump_period_sec(0);
    database.set_stats_persist_period_sec(0);

    // Tickers cost a few nanoseconds each; histograms and timers read the clock in every operation.
    database.enable_statistics();
    database.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
    database
}

/// How table files of the data are laid out and read.
fn table_options(cache: &Cache) -> BlockBasedOptions {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(cache);
    // Version 6 checks that a block is the one asked for; 7 only adds compression of one's own.
    table.set_format_version(6);
    // A point read finds its entry by hash whatever the size; a scan passes fewer ends of blocks.
    table.set_block_size(16 * 1024);
    table.set_index_type(BlockBasedIndexType::BinarySearch);
    // A point read finds its place in a block by hash instead of by search.
    table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
    table.set_data_block_hash_ratio(0.75);
    table.set_bloom_filter(10.0, false);
    table.set_whole_key_filtering(true);
    // Index and filter blocks count as cache, so that memory is bounded. Those of level 0, which every
    // read asks, stay.
    table.set_cache_index_and_filter_blocks(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    table
}

fn set_data_family(data: &mut rocksdb::Options, table: &BlockBasedOptions, memtable_bytes: usize) {
    data.set_block_based_table_factory(table);
    data.set_write_buffer_size(memtable_bytes);
    data.set_max_write_buffer_number(MEMTABLES_MAX);
    // A read of a key that is not in the memtable, which most are not, asks its filter first.
    data.set_memtable_whole_key_filtering(true);
    data.set_memtable_prefix_bloom_ratio(0.02);
    // Fast compression where data is young and rewritten, strong where most of it lies. The levels are
    // those in use: a small database is level 0 and one more.
    data.set_level_compaction_dynamic_level_bytes(true);
    data.set_compression_per_level(&[
        DBCompressionType::Lz4,
        DBCompressionType::Lz4,
        DBCompressionType::Zstd,
    ]);
}

/// Scratch space is written once, in runs that are read once, and dropped as a whole.
fn set_scratch_family(scratch: &mut rocksdb::Options, cache: &Cache, memtable_bytes: usize) {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(cache);
    table.set_format_version(6);
    table.set_block_size(32 * 1024);
    table.set_cache_index_and_filter_blocks(true);
    scratch.set_block_based_table_factory(&table);
    scratch.set_write_buffer_size((memtable_bytes / 2).max(1024 * 1024));
    scratch.set_max_write_buffer_number(4);
    scratch.set_compression_type(DBCompressionType::Lz4);
    // Never compacted.
    scratch.set_disable_auto_compactions(true);
}
