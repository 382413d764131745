//! Counters for monitoring.

use rocksdb::properties::{self, PropName};
use rocksdb::statistics::Ticker;

use crate::database::Database;

/// What RocksDB counts, under stable names.
const TICKERS: &[(&str, Ticker)] = &[
    ("block_cache_hits_total", Ticker::BlockCacheHit),
    ("block_cache_misses_total", Ticker::BlockCacheMiss),
    ("bloom_filter_useful_total", Ticker::BloomFilterUseful),
    ("compaction_read_bytes_total", Ticker::CompactReadBytes),
    ("compaction_written_bytes_total", Ticker::CompactWriteBytes),
    ("flush_written_bytes_total", Ticker::FlushWriteBytes),
    ("wal_written_bytes_total", Ticker::WalFileBytes),
    ("write_stall_microseconds_total", Ticker::StallMicros),
];

/// What RocksDB reports of the data's column family, under stable names.
const PROPERTIES: &[(&str, &PropName)] = &[
    (
        "compaction_pending_bytes",
        properties::ESTIMATE_PENDING_COMPACTION_BYTES,
    ),
    ("compactions_running", properties::NUM_RUNNING_COMPACTIONS),
    ("flushes_running", properties::NUM_RUNNING_FLUSHES),
    ("keys_estimate", properties::ESTIMATE_NUM_KEYS),
    ("live_sst_bytes", properties::LIVE_SST_FILES_SIZE),
    ("snapshots", properties::NUM_SNAPSHOTS),
    ("sst_bytes", properties::TOTAL_SST_FILES_SIZE),
    ("table_reader_bytes", properties::ESTIMATE_TABLE_READERS_MEM),
];

/// Appends what `database` knows of itself.
pub(crate) fn collect(database: &Database, out: &mut Vec<(&'static str, u64)>) {
    let bytes = |bytes: usize| bytes as u64;
    out.push(("block_cache_bytes", bytes(database.cache.get_usage())));
    out.push((
        "block_cache_pinned_bytes",
        bytes(database.cache.get_pinned_usage()),
    ));
    out.push(("memtable_bytes", bytes(database.write_buffers.get_usage())));
    out.push(("wal_replayed_bytes", database.wal_replayed_bytes));
    for &(name, ticker) in TICKERS {
        out.push((name, database.options.get_ticker_count(ticker)));
    }
    for &(name, property) in PROPERTIES {
        // A property that cannot be read now is left out rather than reported as zero.
        if let Ok(Some(value)) = database.db().property_int_value(property) {
            out.push((name, value));
        }
    }
}
