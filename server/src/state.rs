//! The state of the server: made at its start, shared by the dispatcher and the threads.
//!
//! Commands and monitoring do not know it. They take traits that it implements here, each with what one family of
//! commands may do or see.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millrace_command::{CursorStatistics, Database};
use millrace_engine::Engine;
use millrace_value::Result;

use crate::commands::registry::Registry;
use crate::commands::{OperationControl, ProcessControl, ServerInfo, ServerParts, SessionControl};
use crate::environment::ServerEnvironment;
use crate::fail_points::FailPoints;
use crate::journal::{Journal, JournalCounters};
use crate::log::RecentLines;
use crate::logical_sessions::{LogicalSessions, SessionId};
use crate::memory::{Gauge, MemoryBudget, Share};
use crate::metrics::{CommandMetrics, Connections, Metrics, Statistics};
use crate::network::Counters;
use crate::operations::Operations;
use crate::parameters::Parameters;
use crate::settings::Settings;
use crate::waiters::Waiters;

/// The reason for which the server stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The command `shutdown`.
    Command,
    /// The signal of this number.
    Signal(i32),
}

/// The state of the server that outlives a connection, shared by all threads.
#[derive(Debug)]
pub struct ServerState {
    /// The settings that the server was started with.
    pub settings: Settings,
    /// The clocks and the randomness of the process.
    pub environment: Arc<ServerEnvironment>,
    /// The storage engine that holds all data.
    pub engine: Arc<dyn Engine>,
    /// The document layer, which runs the commands on documents.
    pub documents: Arc<Database>,
    /// The registry of all commands by their spellings.
    pub commands: Registry,
    /// The group commit that makes writes durable.
    pub journal: Arc<Journal>,
    /// The memory budget that all parts of the server share.
    pub budget: Arc<MemoryBudget>,
    /// The counters of the network layer, since the start.
    pub counters: Arc<Counters>,
    /// The counters of commands, documents and errors, since the start.
    pub metrics: Metrics,
    /// The connections and their running operations.
    pub operations: Arc<Operations>,
    /// The logical sessions of all clients.
    pub sessions: Arc<LogicalSessions>,
    /// The requests that wait for data of a tailable cursor.
    pub waiters: Arc<Waiters>,
    /// The fail points of the server and their modes.
    pub fail_points: FailPoints,
    /// The server parameters and their values.
    pub parameters: Parameters,
    /// The last lines of the log.
    pub recent_lines: Arc<RecentLines>,
    /// The facts that do not change while the server runs.
    pub info: ServerInfo,
    /// Where the reason to stop goes.
    pub stop: Mutex<Sender<Stop>>,
}

impl ServerState {
    /// Asks for the server to stop.
    pub fn request_stop(&self, reason: Stop) {
        let sender = self.stop.lock().unwrap_or_else(PoisonError::into_inner);
        // The receiver is absent only when the server is stopping already.
        let _ = sender.send(reason);
    }

    /// Ends a logical session: kills its cursors and wakes its requests that wait.
    pub fn end_session(&self, id: SessionId) {
        self.documents.cursors().kill_session(id.bytes());
        self.sessions.remove(id);
        self.waiters.ended(|waiter| waiter.session == Some(id));
    }

    /// The parts that the server's own commands work on.
    #[must_use]
    pub fn parts(&self) -> ServerParts<'_> {
        let has_fail_points = self.settings.enable_test_commands;
        ServerParts {
            info: &self.info,
            registry: &self.commands,
            documents: &self.documents,
            sessions: self,
            operations: self,
            process: self,
            statistics: self,
            parameters: &self.parameters,
            fail_points: has_fail_points.then_some(&self.fail_points),
            recent_lines: &self.recent_lines,
        }
    }
}

impl SessionControl for ServerState {
    fn touch(&self, id: SessionId, now: Duration) -> Result<()> {
        self.sessions.touch(id, now)
    }

    fn end(&self, id: SessionId) {
        self.end_session(id);
    }

    fn all(&self) -> Vec<SessionId> {
        self.sessions.all()
    }
}

impl OperationControl for ServerState {
    fn kill(&self, opid: u32) -> bool {
        let connection = self.operations.kill(opid);
        if let Some(connection) = connection {
            self.waiters.ended(|waiter| waiter.connection == connection);
        }
        connection.is_some()
    }
}

impl ProcessControl for ServerState {
    fn sync_log(&self) -> Result<()> {
        self.engine.sync()?;
        Ok(())
    }

    fn shut_down(&self) {
        self.request_stop(Stop::Command);
    }
}

impl Statistics for ServerState {
    fn commands(&self) -> Vec<(&'static str, &CommandMetrics)> {
        let commands = self.commands.commands();
        commands
            .map(|entry| (entry.name, &*entry.metrics))
            .collect()
    }

    fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    fn network(&self) -> &Counters {
        &self.counters
    }

    fn connections(&self) -> Connections {
        let slots = self.operations.slots();
        let active = slots.iter().filter(|slot| slot.running().is_some());
        Connections {
            all: slots.len(),
            active: active.count(),
        }
    }

    fn sessions(&self) -> u64 {
        u64::try_from(self.sessions.count()).unwrap_or(u64::MAX)
    }

    fn cursors(&self) -> CursorStatistics {
        self.documents.cursors().statistics()
    }

    fn expired_documents(&self) -> u64 {
        self.documents.expired_documents()
    }

    fn memory(&self) -> Vec<Gauge> {
        Share::ALL.map(|share| self.budget.gauge(share)).to_vec()
    }

    fn journal(&self) -> JournalCounters {
        self.journal.counters()
    }

    fn engine(&self) -> Vec<(&'static str, u64)> {
        self.engine.statistics()
    }

    fn has_failed(&self) -> bool {
        self.journal.has_failed()
    }
}
