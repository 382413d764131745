//! What the server counts, and how monitoring reads it.

mod exposition;
mod histogram;
mod http;
mod statistics;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use millrace_command::{Counts, OperationKind};

pub use exposition::write_metrics;
pub use histogram::Histogram;
pub use http::MetricsServer;
pub use statistics::{Connections, Statistics};

/// The counters of one command, since the start.
#[derive(Debug, Default)]
pub struct CommandMetrics {
    /// The number of requests for the command.
    pub total: AtomicU64,
    /// The number of requests that were answered with an error.
    pub failed: AtomicU64,
    /// How long it took, from the last byte received to the reply.
    pub latency: Histogram,
}

/// The counters of the whole server, since the start.
#[derive(Debug, Default)]
pub struct Metrics {
    /// By kind, as [`OperationKind::ALL`] orders them.
    operations: [AtomicU64; OperationKind::ALL.len()],
    errors: Mutex<BTreeMap<i32, u64>>,
    returned: AtomicU64,
    inserted: AtomicU64,
    updated: AtomicU64,
    deleted: AtomicU64,
    unknown_commands: AtomicU64,
}

impl Metrics {
    /// Counts a command that was answered.
    pub fn record(&self, command: &CommandMetrics, latency: Duration, error: Option<i32>) {
        command.total.fetch_add(1, Ordering::Relaxed);
        command.latency.record(latency);
        if let Some(code) = error {
            command.failed.fetch_add(1, Ordering::Relaxed);
            self.count_error(code);
        }
    }

    /// Counts a command that does not exist.
    pub fn record_unknown(&self, code: i32) {
        self.unknown_commands.fetch_add(1, Ordering::Relaxed);
        self.count_error(code);
    }

    fn count_error(&self, code: i32) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        *errors.entry(code).or_default() += 1;
    }

    /// Adds `count` operations of `kind` to `opcounters`.
    pub fn count_operations(&self, kind: OperationKind, count: u64) {
        self.operations[kind as usize].fetch_add(count, Ordering::Relaxed);
    }

    /// Adds the documents that a command returned, inserted, updated and deleted.
    pub fn count_documents(&self, counts: Counts) {
        for (counter, count) in [
            (&self.returned, counts.returned),
            (&self.inserted, counts.inserted),
            (&self.updated, counts.updated),
            (&self.deleted, counts.deleted),
        ] {
            if count > 0 {
                counter.fetch_add(count, Ordering::Relaxed);
            }
        }
    }

    /// The number of operations of one kind since the start.
    #[must_use]
    pub fn operations(&self, kind: OperationKind) -> u64 {
        self.operations[kind as usize].load(Ordering::Relaxed)
    }

    /// The documents returned, inserted, updated and deleted since the start.
    #[must_use]
    pub fn documents(&self) -> Counts {
        Counts {
            returned: self.returned.load(Ordering::Relaxed),
            inserted: self.inserted.load(Ordering::Relaxed),
            updated: self.updated.load(Ordering::Relaxed),
            deleted: self.deleted.load(Ordering::Relaxed),
        }
    }

    /// How often commands were asked for that do not exist.
    #[must_use]
    pub fn unknown_commands(&self) -> u64 {
        self.unknown_commands.load(Ordering::Relaxed)
    }

    /// The number of errors since the start, by their code.
    #[must_use]
    pub fn errors(&self) -> BTreeMap<i32, u64> {
        self.errors
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
