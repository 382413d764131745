//! RocksDB's failures as the engine's.

use millrace_engine::{Error, ErrorKind};

/// The failure `source` of RocksDB while doing what `context` says.
pub(crate) fn engine_error(context: impl Into<String>, source: rocksdb::Error) -> Error {
    let message = source.as_ref();
    let kind = match source.kind() {
        rocksdb::ErrorKind::Corruption => ErrorKind::Corruption,
        rocksdb::ErrorKind::InvalidArgument => ErrorKind::InvalidArgument,
        // RocksDB keeps the reason of an I/O error in its text alone.
        rocksdb::ErrorKind::IOError if message.contains("No space left on device") => {
            ErrorKind::NoSpace
        }
        rocksdb::ErrorKind::IOError if is_lock_refusal(message) => ErrorKind::Locked,
        _ => ErrorKind::Io,
    };
    Error::new(kind, context).with_source(source)
}

/// Whether RocksDB reports that another process, or this one, holds the lock of a folder. (A lock file
/// that cannot be opened is another matter.)
fn is_lock_refusal(message: &str) -> bool {
    message.contains("While lock file") || message.contains("lock hold by current process")
}
