//! What is kept for each connection.

use std::sync::Arc;
use std::time::Duration;

use millrace_command::Principal;
use millrace_wire::Compressor;

use crate::fail_points::FailAction;
use crate::logical_sessions::SessionId;
use crate::network::{ConnectionId, Ticket};
use crate::operations::{Begun, Slot};
use crate::write_concern::WriteConcern;

/// A connection's state between its requests.
#[derive(Debug)]
pub struct Session {
    slot: Arc<Slot>,
    uuid: SessionId,
    principal: Principal,
    compressors: Vec<Compressor>,
    application: Option<String>,
    /// The logical session used last and when the registry was updated, so that not every request
    /// updates it.
    pub(crate) last_session: Option<(SessionId, Duration)>,
    /// What the fail point does to the request being served.
    pub(crate) fail: Option<FailAction>,
    /// Whether the fail point made the request wait before it was served at all.
    pub(crate) held_back: bool,
    /// The collection that the request being served waits for, and its ticket.
    pub(crate) waiting: Option<(String, Ticket)>,
    /// The write concern of the reply that was finished last.
    pub(crate) write_concern: WriteConcern,
    /// The operation of the request that waits: it goes on when the wait is over.
    pub(crate) operation: Option<Begun>,
}

impl Session {
    /// A connection that was just accepted.
    #[must_use]
    pub const fn new(slot: Arc<Slot>, uuid: SessionId) -> Self {
        Self {
            slot,
            uuid,
            principal: Principal::EVERYBODY,
            compressors: Vec::new(),
            application: None,
            last_session: None,
            fail: None,
            held_back: false,
            waiting: None,
            write_concern: WriteConcern {
                unacknowledged: false,
                majority: false,
                journaled: false,
                timeout_ms: 0,
            },
            operation: None,
        }
    }

    /// The number of the connection, unique in the process.
    #[must_use]
    pub fn id(&self) -> ConnectionId {
        self.slot.connection()
    }

    /// The 16 bytes of the UUID that identifies the connection in replies.
    #[must_use]
    pub const fn uuid(&self) -> &[u8; 16] {
        self.uuid.bytes()
    }

    /// What the connection is doing, as others see it.
    #[must_use]
    pub const fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }

    /// The identity that the client acts as: everybody, as long as there is no authentication.
    #[must_use]
    pub const fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Sets the identity that the client acts as from its next request on.
    pub fn set_principal(&mut self, principal: Principal) {
        self.principal = principal;
    }

    /// The compressors that client and server agreed on in the handshake, in the client's order;
    /// empty for none.
    #[must_use]
    pub fn compressors(&self) -> &[Compressor] {
        &self.compressors
    }

    pub(crate) fn set_compressors(&mut self, compressors: Vec<Compressor>) {
        self.compressors = compressors;
    }

    /// The application's name, as the client gave it.
    #[must_use]
    pub fn application(&self) -> Option<&str> {
        self.application.as_deref()
    }

    pub(crate) fn set_application(&mut self, name: Option<&str>) {
        self.application = name.map(str::to_owned);
    }
}
