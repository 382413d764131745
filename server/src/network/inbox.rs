//! The events that other threads send to a worker.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Outcome;
use super::buffer::Buffer;
use super::poller::Waker;
use super::slab::Token;
use super::{Ticket, Transport};

/// A request that a pool thread has served.
#[derive(Debug)]
pub(super) struct Completion<S> {
    pub(super) token: Token,
    pub(super) session: S,
    /// The connection's receive buffer, with the request in it.
    pub(super) input: Buffer,
    /// The request, if it had been compressed.
    pub(super) inflated: Option<Buffer>,
    /// The finished reply; empty if there is none.
    pub(super) output: Buffer,
    pub(super) outcome: Outcome,
    pub(super) more_to_come: bool,
    pub(super) close: bool,
}

/// An event for a worker.
#[derive(Debug)]
pub(super) enum Event<S> {
    /// Serve this connection.
    Connection(Box<dyn Transport>),
    /// A request is served.
    Completed(Box<Completion<S>>),
    /// The ticket that a connection waits for was notified.
    Notified(Token, Ticket),
}

/// A worker's inbox. Any thread may push; the worker drains.
///
/// # Invariants
/// 1. The worker is woken when the first event comes into an empty inbox, and by [`Inbox::wake`].
/// 2. The worker clears the waker before it drains: an event pushed after that wakes it again.
#[derive(Debug)]
pub(super) struct Inbox<S> {
    events: Mutex<Vec<Event<S>>>,
    waker: Waker,
    /// Whether the worker has replies that wait for the journal. Written by the worker before it
    /// asks for a sync, read by the journal after the sync (both under the journal's lock or with
    /// `SeqCst`), so that a worker that has none is not woken.
    parked: AtomicBool,
}

impl<S> Inbox<S> {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            events: Mutex::new(Vec::new()),
            waker: Waker::new()?,
            parked: AtomicBool::new(false),
        })
    }

    pub(super) const fn waker(&self) -> &Waker {
        &self.waker
    }

    pub(super) fn push(&self, event: Event<S>) {
        let first = {
            let mut events = self.lock();
            events.push(event);
            events.len() == 1
        };
        if first {
            self.waker.wake();
        }
    }

    /// The events pushed since the last call, in their order.
    pub(super) fn drain(&self) -> Vec<Event<S>> {
        self.waker.clear();
        std::mem::take(&mut *self.lock())
    }

    /// Wakes the worker without an event.
    pub(super) fn wake(&self) {
        self.waker.wake();
    }

    pub(super) fn set_parked(&self, parked: bool) {
        self.parked.store(parked, Ordering::SeqCst);
    }

    pub(super) fn is_parked(&self) -> bool {
        self.parked.load(Ordering::SeqCst)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Event<S>>> {
        // A panic while pushing leaves the vector whole.
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
