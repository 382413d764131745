//! The parts of the server that commands reach.

use std::sync::Arc;

use millrace_command::Database;

use super::administration::ProcessControl;
use super::operations::OperationControl;
use super::registry::Registry;
use super::server_info::ServerInfo;
use super::sessions::SessionControl;
use crate::fail_points::FailPoints;
use crate::log::RecentLines;
use crate::metrics::Statistics;
use crate::parameters::Parameters;

/// The parts of the server that commands reach. The [table](super::COMMANDS) gives each handler the parts that it needs;
/// no handler sees the whole.
#[derive(Clone, Copy, Debug)]
pub struct ServerParts<'a> {
    /// The facts that do not change while the server runs.
    pub info: &'a ServerInfo,
    /// The registry of all commands by their spellings.
    pub registry: &'a Registry,
    /// The document layer, for commands that are pipelines.
    pub documents: &'a Arc<Database>,
    /// The logical sessions of all clients.
    pub sessions: &'a dyn SessionControl,
    /// The running operations of all connections.
    pub operations: &'a dyn OperationControl,
    /// The process, with the log of the engine.
    pub process: &'a dyn ProcessControl,
    /// The counters of all parts of the server.
    pub statistics: &'a dyn Statistics,
    /// The server parameters and their values.
    pub parameters: &'a Parameters,
    /// The fail points; `None` on a server that was not started for tests.
    pub fail_points: Option<&'a FailPoints>,
    /// The last lines of the log.
    pub recent_lines: &'a RecentLines,
}
