//! Tailable cursors that wait for data, and the commands that end their waits.

use std::time::Duration;

use millrace_command::{CommandRequest, Effects, EndedWaits};
use millrace_value::{Environment, Error, ErrorCode};

use super::Dispatcher;
use super::inspect::namespace_of;
use crate::commands::generic::GenericArguments;
use crate::logical_sessions::SessionId;
use crate::network::{Outcome, Request};
use crate::session::Session;
use crate::waiters::Waiter;

/// How long a tailable cursor waits for data if the client does not say.
const AWAIT_DEFAULT: Duration = Duration::from_secs(1);

impl Dispatcher {
    /// Whether a tailable cursor with nothing to return should wait some more. `endings` was noted
    /// before it looked.
    pub(super) fn await_data(
        &self,
        session: &mut Session,
        request: &Request<'_>,
        generic: &GenericArguments<'_>,
        effects: &Effects,
        endings: u64,
    ) -> Option<Outcome> {
        let awaited = effects.wait.as_ref()?;
        let patience = generic
            .max_time_ms
            .map_or(AWAIT_DEFAULT, Duration::from_millis);
        let until = request.began + patience;
        if self.state.environment.monotonic() >= until {
            return None;
        }
        let waiters = &self.state.waiters;
        let namespace = awaited.namespace().as_str().to_owned();
        let ticket = waiters.register(Waiter {
            namespace: namespace.clone(),
            session: generic.session.and_then(SessionId::from_bytes),
            connection: session.id(),
        });
        if awaited.is_over() || waiters.endings() != endings {
            waiters.notifier().notify(ticket);
        }
        session.waiting = Some((namespace, ticket));
        Some(Outcome::Wait {
            until,
            ticket: Some(ticket),
        })
    }

    /// Wakes the requests that wait on a collection whose cursors a command has killed. That is no commit, of
    /// which the waiters learn by themselves. Done after failures too: a command may have killed some cursors
    /// before it failed.
    pub(super) fn end_waits(&self, command: &CommandRequest<'_>, ended: EndedWaits) {
        match ended {
            EndedWaits::OfCollection => {
                let namespace = namespace_of(command.body, command.name);
                let waiters = &self.state.waiters;
                waiters.ended(|waiter| waiter.namespace == namespace);
            }
            EndedWaits::Nothing => {}
        }
    }
}

/// The error of a request that is served again after a wait: its cursor was there before, so if it is
/// gone now then somebody has killed it.
pub(super) fn after_wait(error: Error) -> Error {
    if error.code() == ErrorCode::CursorNotFound {
        Error::new(ErrorCode::CursorKilled, "operation was interrupted")
    } else {
        error
    }
}
