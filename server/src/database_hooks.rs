//! What the document layer needs of the server around it.

use std::sync::{Arc, Mutex, PoisonError};

use bson::{DateTime, Document, doc};
use millrace_command::OperationKind;
use millrace_value::{Environment, Result};

use crate::environment::ServerEnvironment;
use crate::logical_sessions::{LogicalSessions, SessionId};
use crate::memory::Charge;
use crate::operations::{Operations, Slot};

/// The connections, sessions and memory of the server, as the document layer asks for them.
#[derive(Debug)]
pub struct DatabaseHooks {
    /// The connections and their running operations.
    pub operations: Arc<Operations>,
    /// The logical sessions of all clients.
    pub sessions: Arc<LogicalSessions>,
    /// The clocks and the randomness of the process.
    pub environment: Arc<ServerEnvironment>,
    /// The address of the server for clients, as `host:port`.
    pub address: String,
    /// The memory that cursors hold between batches, charged to the budget.
    pub cursors: Mutex<Charge>,
}

impl DatabaseHooks {
    /// The running operations as `$currentOp` shows them; with `idleConnections` also the connections
    /// that do nothing.
    ///
    /// # Errors
    /// When a command that is kept cannot be read.
    pub fn current_operations(&self, spec: &Document) -> Result<Vec<Document>> {
        let idle = spec.get_bool("idleConnections").unwrap_or(false);
        let mut operations = Vec::new();
        for slot in self.operations.slots() {
            operations.extend(self.describe(&slot, idle)?);
        }
        Ok(operations)
    }

    fn describe(&self, slot: &Slot, idle: bool) -> Result<Option<Document>> {
        let running = slot.running();
        if running.is_none() && !idle {
            return Ok(None);
        }
        let now = DateTime::from_millis(self.environment.wall_clock_ms());
        let mut document = doc! {
            "type": "op",
            "host": &self.address,
            "desc": slot.connection().to_string(),
            "connectionId": i64::try_from(slot.connection().0).unwrap_or(i64::MAX),
            "client": slot.peer(),
        };
        if let Some(client) = slot.client() {
            if let Ok(name) = client
                .get_document("application")
                .and_then(|a| a.get_str("name"))
            {
                document.insert("appName", name);
            }
            document.insert("clientMetadata", client);
        }
        document.insert("active", running.is_some());
        document.insert(
            "currentOpTime",
            now.try_to_rfc3339_string().unwrap_or_default(),
        );
        let Some(running) = running else {
            return Ok(Some(document));
        };
        let elapsed = self.environment.monotonic().saturating_sub(running.started);
        let command = if running.command.is_empty() {
            doc! { "$truncated": running.name }
        } else {
            Document::from_reader(running.command.as_slice())?
        };
        let collection = command.get_str(running.name).unwrap_or("$cmd");
        let namespace = format!("{}.{collection}", running.database);
        let kind = match running.kind {
            OperationKind::Delete => "remove",
            kind => kind.name(),
        };
        document.extend(doc! {
            "threaded": true,
            "opid": i64::from(running.opid),
            "secs_running": i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX),
            "microsecs_running": i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX),
            "op": kind,
            "ns": namespace,
            "redacted": false,
            "killPending": running.killed,
            "command": command,
            "numYields": 0,
            "waitingForLock": false,
        });
        Ok(Some(document))
    }

    /// The logical sessions as `$listLocalSessions` shows them.
    #[must_use]
    pub fn list_sessions(&self) -> Vec<Document> {
        let (now_ms, now) = (
            self.environment.wall_clock_ms(),
            self.environment.monotonic(),
        );
        let describe = |(id, used): (SessionId, std::time::Duration)| {
            let age = i64::try_from(now.saturating_sub(used).as_millis()).unwrap_or(0);
            let bytes = id.bytes().to_vec();
            let id = bson::Binary {
                subtype: bson::spec::BinarySubtype::Uuid,
                bytes,
            };
            doc! { "_id": { "id": id }, "lastUse": DateTime::from_millis(now_ms - age) }
        };
        self.sessions
            .last_used()
            .into_iter()
            .map(describe)
            .collect()
    }
}

impl millrace_command::DatabaseHooks for DatabaseHooks {
    fn current_operations(&self, spec: &Document) -> Result<Vec<Document>> {
        Self::current_operations(self, spec)
    }

    fn sessions(&self, _: &Document) -> Result<Vec<Document>> {
        Ok(self.list_sessions())
    }

    fn address(&self) -> String {
        self.address.clone()
    }

    fn cursors_may_hold(&self, bytes: usize) -> bool {
        // A panic while it is held leaves the charge whole.
        let mut charge = self.cursors.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes <= charge.bytes() {
            charge.set(bytes);
            return true;
        }
        charge.try_raise_to(bytes)
    }
}
