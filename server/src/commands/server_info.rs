//! What does not change while the server runs.

use bson::Document;
use bson::oid::ObjectId;

/// The facts about this run of the server that commands report.
#[derive(Clone, Debug)]
pub struct ServerInfo {
    /// Identifies this run of the server in `topologyVersion`.
    pub process_id: ObjectId,
    /// The name of the host, without the port.
    pub host: String,
    /// The TCP port that clients connect to.
    pub port: u16,
    /// The number of client connections allowed at once.
    pub connections_max: usize,
    /// The reply to `getCmdLineOpts`: the arguments and the parsed options.
    pub command_line: Document,
}
