//! What the server counts, and how monitoring reads it.

mod exposition;
mod histogram;
mod http;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use exposition::write_metrics;
pub use histogram::Histogram;
pub use http::MetricsServer;

use crate::documents::DocumentCounts;

/// The counters of one command.
#[derive(Debug, Default)]
pub struct CommandMetrics {
    /// How often it was asked for.
    pub total: AtomicU64,
    /// How often it was answered with an error.
    pub failed: AtomicU64,
    /// How long it took, from the last byte received to the reply.
    pub latency: Histogram,
}

/// The groups of commands that `opcounters` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// Documents inserted by `insert`.
    Insert,
    /// `find`
    Query,
    /// Statements of `update`.
    Update,
    /// Statements of `delete`.
    Delete,
    /// `getMore`
    GetMore,
    /// Everything else.
    Command,
}

impl OperationKind {
    /// All kinds, in `serverStatus` order.
    pub const ALL: [Self; 6] = [
        Self::Insert,
        Self::Query,
        Self::Update,
        Self::Delete,
        Self::GetMore,
        Self::Command,
    ];

    /// The group of a command.
    #[must_use]
    pub fn of_command(name: &str) -> Self {
        match name {
            "insert" => Self::Insert,
            "find" => Self::Query,
            "update" => Self::Update,
            "delete" => Self::Delete,
            "getMore" => Self::GetMore,
            _ => Self::Command,
        }
    }

    /// The name in `opcounters`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Query => "query",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::GetMore => "getmore",
            Self::Command => "command",
        }
    }

    const fn index(self) -> usize {
        match self {
            Self::Insert => 0,
            Self::Query => 1,
            Self::Update => 2,
            Self::Delete => 3,
            Self::GetMore => 4,
            Self::Command => 5,
        }
    }
}

/// Counters of the whole server.
#[derive(Debug, Default)]
pub struct Metrics {
    commands: BTreeMap<&'static str, Arc<CommandMetrics>>,
    operations: [AtomicU64; 6],
    errors: Mutex<BTreeMap<i32, u64>>,
    returned: AtomicU64,
    inserted: AtomicU64,
    updated: AtomicU64,
    deleted: AtomicU64,
    unknown_commands: AtomicU64,
}

impl Metrics {
    /// Counters for the commands of the given names.
    pub fn new(names: impl IntoIterator<Item = &'static str>) -> Self {
        let commands = names
            .into_iter()
            .map(|name| (name, Arc::default()))
            .collect();
        Self {
            commands,
            ..Self::default()
        }
    }

    /// The counters of one command; of none that is read if there is no such command.
    #[must_use]
    pub fn command(&self, name: &str) -> Arc<CommandMetrics> {
        self.commands.get(name).cloned().unwrap_or_default()
    }

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

    /// Counts operations for `opcounters`.
    pub fn count_operations(&self, kind: OperationKind, count: u64) {
        self.operations[kind.index()].fetch_add(count, Ordering::Relaxed);
    }

    /// Counts documents.
    pub fn count_documents(&self, counts: DocumentCounts) {
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

    /// Operations of one kind.
    #[must_use]
    pub fn operations(&self, kind: OperationKind) -> u64 {
        self.operations[kind.index()].load(Ordering::Relaxed)
    }

    /// Documents touched so far.
    #[must_use]
    pub fn documents(&self) -> DocumentCounts {
        DocumentCounts {
            returned: self.returned.load(Ordering::Relaxed),
            inserted: self.inserted.load(Ordering::Relaxed),
            updated: self.updated.load(Ordering::Relaxed),
            deleted: self.deleted.load(Ordering::Relaxed),
        }
    }

    /// The counters by command.
    #[must_use]
    pub const fn commands(&self) -> &BTreeMap<&'static str, Arc<CommandMetrics>> {
        &self.commands
    }

    /// How often commands were asked for that do not exist.
    #[must_use]
    pub fn unknown_commands(&self) -> u64 {
        self.unknown_commands.load(Ordering::Relaxed)
    }

    /// Errors by code.
    #[must_use]
    pub fn errors(&self) -> BTreeMap<i32, u64> {
        self.errors
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
