//! Tickets, by which the thread that adds data wakes a request that waits for it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A one-time right to wait. [`Notifier::ticket`] issues it before the request checks for data, so
/// that data that comes in between is not missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(u64);

/// The function that resumes the request that waits.
pub(crate) type Wake = Box<dyn FnOnce() + Send>;

enum State {
    /// Issued: no request waits with it yet.
    Issued,
    /// Notified before the request waited.
    Notified,
    /// Waited with: the function is called when the ticket is notified.
    Waiting(Wake),
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Issued => "Issued",
            Self::Notified => "Notified",
            Self::Waiting(_) => "Waiting",
        })
    }
}

#[derive(Debug, Default)]
struct Tickets {
    next: u64,
    states: HashMap<u64, State>,
}

/// The tickets of all requests of the process that may wait.
#[derive(Debug, Default)]
pub struct Notifier {
    tickets: Mutex<Tickets>,
}

impl Notifier {
    /// A notifier without any tickets, shared by its users.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// A new ticket. It lives until it is notified and waited for, or dropped by [`Notifier::cancel`].
    pub fn ticket(&self) -> Ticket {
        let mut tickets = self.lock();
        let number = tickets.next;
        tickets.next += 1;
        tickets.states.insert(number, State::Issued);
        Ticket(number)
    }

    /// Ends the wait for `ticket`, now or as soon as it begins.
    pub fn notify(&self, ticket: Ticket) {
        let wake = {
            let mut tickets = self.lock();
            let Some(state) = tickets.states.get_mut(&ticket.0) else {
                return;
            };
            match std::mem::replace(state, State::Notified) {
                State::Waiting(wake) => {
                    tickets.states.remove(&ticket.0);
                    Some(wake)
                }
                State::Issued | State::Notified => None,
            }
        };
        if let Some(wake) = wake {
            wake();
        }
    }

    /// Removes a ticket; a later notification of it has no effect.
    pub fn cancel(&self, ticket: Ticket) {
        self.lock().states.remove(&ticket.0);
    }

    /// Calls `wake` when `ticket` is notified; at once if it was already.
    pub(crate) fn wait(&self, ticket: Ticket, wake: Wake) {
        let wake = {
            let mut tickets = self.lock();
            match tickets.states.get_mut(&ticket.0) {
                Some(state @ State::Issued) => {
                    *state = State::Waiting(wake);
                    None
                }
                _ => {
                    tickets.states.remove(&ticket.0);
                    Some(wake)
                }
            }
        };
        if let Some(wake) = wake {
            wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Tickets> {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn counting() -> (Arc<AtomicU32>, Wake) {
        let count = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&count);
        (
            count,
            Box::new(move || {
                counted.fetch_add(1, Ordering::Relaxed);
            }),
        )
    }

    #[test]
    fn a_notification_is_never_lost() {
        let notifier = Notifier::new();
        let (count, wake) = counting();
        let ticket = notifier.ticket();
        notifier.notify(ticket);
        notifier.wait(ticket, wake);
        assert_eq!(count.load(Ordering::Relaxed), 1, "notified before the wait");

        let (count, wake) = counting();
        let ticket = notifier.ticket();
        notifier.wait(ticket, wake);
        assert_eq!(count.load(Ordering::Relaxed), 0);
        notifier.notify(ticket);
        notifier.notify(ticket);
        assert_eq!(
            count.load(Ordering::Relaxed),
            1,
            "notified after it, and once"
        );
        assert!(notifier.lock().states.is_empty());
    }

    #[test]
    fn a_cancelled_ticket_wakes_no_request() {
        let notifier = Notifier::new();
        let (count, wake) = counting();
        let ticket = notifier.ticket();
        notifier.wait(ticket, wake);
        notifier.cancel(ticket);
        notifier.notify(ticket);
        assert_eq!(count.load(Ordering::Relaxed), 0);
    }
}
