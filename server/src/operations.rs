//! What is running: for `currentOp`, `killOp`, and for ending what nobody waits for.
//!
//! # Ownership
//! Every connection has one [`Slot`], which its session and the registry share. The thread that serves
//! the connection's request begins and ends the operation in it; any thread may look at it or kill it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millrace_command::OperationKind;
use millrace_value::{Error, ErrorCode, Interrupt, Result};

use crate::network::ConnectionId;

/// How many bytes of a command are kept for `currentOp`.
const COMMAND_LEN_MAX: usize = 4 * 1024;

/// The code with which operations of a client that left end (`ClientDisconnect`).
const CLIENT_DISCONNECT: i32 = 279;

/// A running operation, as `currentOp` describes it.
#[derive(Clone, Debug)]
pub struct Running {
    /// The number of the operation, by which `killOp` names it; unique since the start.
    pub opid: u32,
    /// Monotonic time at which its request was received.
    pub started: Duration,
    /// The name of the command, as clients spell it.
    pub name: &'static str,
    /// The counter of `opcounters` that the command adds to.
    pub kind: OperationKind,
    /// The database that the command names in `$db`.
    pub database: String,
    /// The command document, or nothing if it is long.
    pub command: Vec<u8>,
    /// The handle by which other threads stop the operation.
    pub interrupt: Arc<Interrupt>,
    /// Whether `killOp`, a closed connection or the stop of the server has killed it.
    pub killed: bool,
}

#[derive(Debug, Default)]
struct Activity {
    running: Option<Running>,
    /// The buffers of the operation before, for the next one.
    database: String,
    command: Vec<u8>,
}

/// The operation of one connection, and what is known of its client.
#[derive(Debug)]
pub struct Slot {
    connection: ConnectionId,
    peer: String,
    activity: Mutex<Activity>,
    client: Mutex<Option<bson::Document>>,
    gone: AtomicBool,
}

impl Slot {
    /// The number of the connection that the slot belongs to.
    #[must_use]
    pub const fn connection(&self) -> ConnectionId {
        self.connection
    }

    /// The other end of the connection.
    #[must_use]
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// A copy of the running operation; `None` while the connection is idle.
    #[must_use]
    pub fn running(&self) -> Option<Running> {
        self.lock().running.clone()
    }

    /// What the client said about itself.
    #[must_use]
    pub fn client(&self) -> Option<bson::Document> {
        self.client
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Keeps what the client said about itself.
    pub fn set_client(&self, client: bson::Document) {
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = Some(client);
    }

    /// Kills what is running with `code`; returns whether there was anything.
    pub fn kill(&self, code: ErrorCode) -> bool {
        match &mut self.lock().running {
            Some(running) => {
                running.killed = true;
                running.interrupt.kill(code);
                true
            }
            None => false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Activity> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An operation between its begin and its end, which is on drop.
#[derive(Debug)]
pub struct Begun {
    slot: Arc<Slot>,
    interrupt: Arc<Interrupt>,
}

impl Begun {
    /// The interrupt by which other threads stop the operation.
    #[must_use]
    pub const fn interrupt(&self) -> &Arc<Interrupt> {
        &self.interrupt
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        let mut activity = self.slot.lock();
        if let Some(running) = activity.running.take() {
            activity.database = running.database;
            activity.command = running.command;
        }
    }
}

/// All connections and what they are doing.
#[derive(Debug, Default)]
pub struct Operations {
    slots: Mutex<BTreeMap<ConnectionId, Arc<Slot>>>,
    next_opid: AtomicU32,
    stopping: AtomicBool,
}

impl Operations {
    /// Adds a connection of the client at the address `peer`.
    pub fn open(&self, connection: ConnectionId, peer: &str) -> Arc<Slot> {
        let slot = Arc::new(Slot {
            connection,
            peer: peer.to_owned(),
            activity: Mutex::default(),
            client: Mutex::default(),
            gone: AtomicBool::new(false),
        });
        self.lock().insert(connection, Arc::clone(&slot));
        slot
    }

    /// Removes a connection that was closed.
    pub fn close(&self, connection: ConnectionId) {
        self.lock().remove(&connection);
    }

    /// Begins an operation on a connection: a command's name, the counter it adds to, its database and its
    /// document. `started` is the monotonic time of its request.
    ///
    /// # Errors
    /// When the client is gone or the server is shutting down.
    pub fn begin(
        &self,
        slot: &Arc<Slot>,
        (name, kind): (&'static str, OperationKind),
        database: &str,
        command: &[u8],
        started: Duration,
    ) -> Result<Begun> {
        let interrupt = Arc::new(Interrupt::default());
        let opid = self
            .next_opid
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_add(1)
            & 0x7FFF_FFFF;
        {
            let mut activity = slot.lock();
            let mut kept_database = std::mem::take(&mut activity.database);
            kept_database.clear();
            kept_database.push_str(database);
            let mut kept_command = std::mem::take(&mut activity.command);
            kept_command.clear();
            if command.len() <= COMMAND_LEN_MAX {
                kept_command.extend_from_slice(command);
            }
            activity.running = Some(Running {
                opid,
                started,
                name,
                kind,
                database: kept_database,
                command: kept_command,
                interrupt: Arc::clone(&interrupt),
                killed: false,
            });
        }
        let begun = Begun {
            slot: Arc::clone(slot),
            interrupt,
        };
        // Read after the operation can be found: a thread that sets them kills every operation that it finds afterwards.
        if slot.gone.load(Ordering::SeqCst) {
            return Err(Error::location(
                CLIENT_DISCONNECT,
                "the client has disconnected",
            ));
        }
        if self.stopping.load(Ordering::SeqCst) {
            return Err(interrupted_at_shutdown());
        }
        Ok(begun)
    }

    /// Kills the operation with this number; returns the connection it is for, if there is one.
    pub fn kill(&self, opid: u32) -> Option<ConnectionId> {
        let slots = self.slots();
        let slot = slots.iter().find(|slot| {
            slot.lock()
                .running
                .as_ref()
                .is_some_and(|running| running.opid == opid)
        });
        slot.filter(|slot| slot.kill(ErrorCode::Interrupted))
            .map(|slot| slot.connection())
    }

    /// Kills what runs for a client that is gone.
    pub fn disconnected(&self, connection: ConnectionId) {
        let slot = self.lock().get(&connection).cloned();
        if let Some(slot) = slot {
            slot.gone.store(true, Ordering::SeqCst);
            slot.kill(ErrorCode::from_number(CLIENT_DISCONNECT));
        }
    }

    /// Kills everything, and what begins later.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        for slot in self.slots() {
            slot.kill(ErrorCode::InterruptedAtShutdown);
        }
    }

    /// The slots of all open connections, in the order of their numbers.
    #[must_use]
    pub fn slots(&self) -> Vec<Arc<Slot>> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ConnectionId, Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn interrupted_at_shutdown() -> Error {
    Error::new(ErrorCode::InterruptedAtShutdown, "interrupted at shutdown")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_found_killed_and_forgotten() {
        let operations = Operations::default();
        let slot = operations.open(ConnectionId(1), "peer");
        assert!(!slot.kill(ErrorCode::Interrupted));
        let begun = operations
            .begin(
                &slot,
                ("find", OperationKind::Query),
                "test",
                b"12345",
                Duration::ZERO,
            )
            .expect("nothing is stopped");
        let running = slot.running().expect("it has begun");
        assert_eq!((running.name, running.database.as_str()), ("find", "test"));
        assert_eq!(operations.kill(running.opid), Some(ConnectionId(1)));
        assert_eq!(operations.kill(running.opid + 1), None);
        assert!(slot.running().expect("it goes on").killed);
        drop(begun);
        assert!(slot.running().is_none());
        assert_eq!(operations.kill(running.opid), None);
    }

    #[test]
    fn nothing_begins_for_a_client_that_is_gone_or_after_the_stop() {
        let operations = Operations::default();
        let gone = operations.open(ConnectionId(1), "peer");
        let there = operations.open(ConnectionId(2), "peer");
        operations.disconnected(ConnectionId(1));
        let code = |slot: &Arc<Slot>| {
            operations
                .begin(
                    slot,
                    ("find", OperationKind::Query),
                    "test",
                    &[],
                    Duration::ZERO,
                )
                .map(drop)
                .map_err(|e| e.code().number())
        };
        assert_eq!(code(&gone), Err(CLIENT_DISCONNECT));
        assert_eq!(code(&there), Ok(()));
        operations.stop();
        assert_eq!(code(&there), Err(11600));
    }
}
