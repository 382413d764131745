//! The listeners, as the worker that accepts sees them.

use std::io;
use std::time::Duration;

use super::Listener;
use super::poller::{Interest, Poller};
use super::slab::Token;

/// The poller's key of the first listener; the others follow. Zero is the key of the worker's waker.
const LISTENER_KEY: u64 = 1;

const _: () = assert!(
    LISTENER_KEY + 1024 < Token::KEY_MIN,
    "the keys of listeners and connections are disjoint"
);

/// The listeners, and the worker that gets their next client.
#[derive(Debug)]
pub(super) struct Acceptor {
    listeners: Vec<Box<dyn Listener>>,
    next_worker: usize,
    resting_until: Option<Duration>,
}

impl Acceptor {
    pub(super) const fn new(listeners: Vec<Box<dyn Listener>>) -> Self {
        Self {
            listeners,
            next_worker: 0,
            resting_until: None,
        }
    }

    /// The listener that the poller's key stands for.
    pub(super) fn listener(&mut self, key: u64) -> Option<&mut Box<dyn Listener>> {
        let index = usize::try_from(key - LISTENER_KEY).ok()?;
        self.listeners.get_mut(index)
    }

    /// The end of the pause in accepting; `None` while clients are accepted.
    pub(super) const fn resting_until(&self) -> Option<Duration> {
        self.resting_until
    }

    /// The index of the worker, of `workers`, that gets the next client.
    pub(super) const fn next_worker(&mut self, workers: usize) -> usize {
        let worker = self.next_worker;
        self.next_worker = (worker + 1) % workers;
        worker
    }

    fn key(index: usize) -> u64 {
        LISTENER_KEY + u64::try_from(index).unwrap_or(0)
    }

    pub(super) fn watch(&mut self, poller: &Poller) -> io::Result<()> {
        self.resting_until = None;
        for (index, listener) in self.listeners.iter().enumerate() {
            poller.add(listener.readiness(), Self::key(index), Interest::Read)?;
        }
        Ok(())
    }

    pub(super) fn rest(&mut self, poller: &Poller, until: Duration) {
        for listener in &self.listeners {
            // It was added by `watch`; if the system thinks otherwise there is nothing to remove.
            let _ = poller.remove(listener.readiness());
        }
        self.resting_until = Some(until);
    }
}
