//! The registry of logical sessions.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millrace_value::{Environment, Error, Result};

/// How long a session lives without being used.
pub const IDLE_MAX: Duration = Duration::from_secs(30 * 60);

/// How many sessions there may be.
const SESSIONS_MAX: usize = 1_000_000;

/// The UUID of a logical session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId([u8; 16]);

impl SessionId {
    /// A new session id: a random UUID (version 4).
    #[must_use]
    pub fn random(environment: &dyn Environment) -> Self {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&environment.random().to_le_bytes());
        bytes[8..].copy_from_slice(&environment.random().to_le_bytes());
        bytes[6] = bytes[6] & 0x0F | 0x40; // version 4
        bytes[8] = bytes[8] & 0x3F | 0x80; // variant 1
        Self(bytes)
    }

    /// The session of these bytes, if they are 16.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The 16 bytes of the UUID, in the order of RFC 9562.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// All sessions and when they were last used.
#[derive(Debug, Default)]
pub struct LogicalSessions {
    last_used: Mutex<HashMap<SessionId, Duration>>,
}

impl LogicalSessions {
    /// Begins a session or keeps it alive; `now` is monotonic.
    ///
    /// # Errors
    /// `TooManyLogicalSessions`
    pub fn touch(&self, id: SessionId, now: Duration) -> Result<()> {
        let mut sessions = self.lock();
        if sessions.len() >= SESSIONS_MAX && !sessions.contains_key(&id) {
            return Err(Error::location(
                261,
                format!("Unable to add session: there are {SESSIONS_MAX} sessions already"),
            ));
        }
        sessions.insert(id, now);
        Ok(())
    }

    /// Removes a session; an unknown one is no error.
    pub fn remove(&self, id: SessionId) {
        self.lock().remove(&id);
    }

    /// The ids of all sessions, in no particular order.
    #[must_use]
    pub fn all(&self) -> Vec<SessionId> {
        self.lock().keys().copied().collect()
    }

    /// All sessions and when they were last used.
    #[must_use]
    pub fn last_used(&self) -> Vec<(SessionId, Duration)> {
        self.lock().iter().map(|(id, used)| (*id, *used)).collect()
    }

    /// The number of sessions that have not been removed.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// The sessions that were not used for [`IDLE_MAX`]; they are not removed.
    #[must_use]
    pub fn idle(&self, now: Duration) -> Vec<SessionId> {
        let sessions = self.lock();
        let idle = sessions
            .iter()
            .filter(|(_, used)| now.saturating_sub(**used) >= IDLE_MAX);
        idle.map(|(id, _)| *id).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Duration>> {
        self.last_used
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_live_for_half_an_hour_after_their_last_use() {
        let sessions = LogicalSessions::default();
        let id = SessionId::from_bytes(&[1; 16]).expect("16 bytes");
        sessions.touch(id, Duration::ZERO).expect("there is room");
        sessions
            .touch(id, Duration::from_secs(60))
            .expect("there is room");
        assert_eq!(sessions.count(), 1);
        assert!(sessions.idle(IDLE_MAX).is_empty());
        assert_eq!(sessions.idle(IDLE_MAX + Duration::from_secs(60)), [id]);
        sessions.remove(id);
        assert_eq!(sessions.count(), 0);
        assert_eq!(SessionId::from_bytes(&[1; 15]), None);
    }
}
