//! What monitoring reads.

use std::fmt::Debug;

use millrace_command::CursorStatistics;

use super::{CommandMetrics, Metrics};
use crate::journal::JournalCounters;
use crate::memory::Gauge;
use crate::network::Counters;

/// Numbers of client connections at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connections {
    /// The number of open connections.
    pub all: usize,
    /// The number of connections with a running operation.
    pub active: usize,
}

/// The counters of all parts of the server, as `serverStatus` and the endpoint of monitoring read them.
///
/// Each number is read at its own moment.
pub trait Statistics: Debug + Send + Sync {
    /// Each command once, ordered by name, with its counters.
    fn commands(&self) -> Vec<(&'static str, &CommandMetrics)>;

    /// The counters of operations, documents and errors.
    fn metrics(&self) -> &Metrics;

    /// The counters of the network layer.
    fn network(&self) -> &Counters;

    /// The connections, and which of them are active.
    fn connections(&self) -> Connections;

    /// The number of logical sessions.
    fn sessions(&self) -> u64;

    /// The numbers of open, opened and timed-out cursors.
    fn cursors(&self) -> CursorStatistics;

    /// The number of documents that TTL indexes have deleted since the start.
    fn expired_documents(&self) -> u64;

    /// The use of each share of the memory budget.
    fn memory(&self) -> Vec<Gauge>;

    /// The counters of the journal.
    fn journal(&self) -> JournalCounters;

    /// The counters of the storage engine, as `(name, value)`; a name ends in its unit, or in `_total` if the counter only
    /// rises.
    fn engine(&self) -> Vec<(&'static str, u64)>;

    /// Whether a sync has failed, so that no write is acknowledged any more.
    fn has_failed(&self) -> bool;
}
