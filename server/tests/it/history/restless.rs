//! An engine whose log is synced in the middle of commands.

use std::sync::atomic::{AtomicU64, Ordering};

use millrace_engine::Engine;
use millrace_engine::conformance::hooked::{Hooked, Hooks};
use millrace_rocksdb::RocksEngine;

/// One commit in so many is followed by a sync.
const COMMITS_PER_SYNC: u64 = 5;

/// Another client that waits for the device now and then: without it, what is lost would always begin
/// where a command does.
#[derive(Debug, Default)]
pub(crate) struct OtherClient {
    commits: AtomicU64,
}

/// The engine under test, beside another client.
pub(crate) type Restless = Hooked<RocksEngine, OtherClient>;

impl Hooks for OtherClient {
    fn after_commit(&self, engine: &dyn Engine) {
        if self.commits.fetch_add(1, Ordering::Relaxed) % COMMITS_PER_SYNC == 0 {
            // If it fails that is the other client's error; this one's next commit will have its own.
            engine.sync().ok();
        }
    }
}
