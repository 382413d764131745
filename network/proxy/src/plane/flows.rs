//! The connections of a plane.

use std::collections::HashMap;

use millrace_stream::partition::{Endpoints, Fetched, Reset};

use super::command::Token;
use super::end::End;
use super::pipe::Pipe;
use super::remote::Remote;

/// A connection.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) token: Token,
    pub(super) route: Route,
    /// It stands in the list of those that are looked at in every pass.
    pub(super) is_hot: bool,
    /// Since when there was nothing to do for it.
    pub(super) idle_since_ns: Option<u64>,
}

/// Between whom.
#[derive(Debug)]
pub(super) enum Route {
    Pipe(Box<Pipe>),
    Remote(Box<Remote>),
}

/// All connections, by key; which of them are hot.
#[derive(Debug, Default)]
pub(super) struct Flows {
    places: Vec<Option<Flow>>,
    free: Vec<u32>,
    by_token: HashMap<Token, u32>,
    pub(super) hot: Vec<u32>,
    /// Connections that were reset.
    pub(super) resets: u64,
}

impl Flows {
    /// The key that the next connection will have.
    pub(super) fn next_key(&self) -> u32 {
        let next = || u32::try_from(self.places.len()).expect("fewer than numbers");
        self.free.last().copied().unwrap_or_else(next)
    }

    pub(super) fn insert(&mut self, token: Token, route: Route) -> u32 {
        let flow = Flow {
            token,
            route,
            is_hot: false,
            idle_since_ns: None,
        };
        let key = self.next_key();
        if self.free.pop().is_some() {
            self.places[key as usize] = Some(flow);
        } else {
            self.places.push(Some(flow));
        }
        self.by_token.insert(token, key);
        self.touch(key);
        key
    }

    pub(super) fn remove(&mut self, key: u32) -> Option<Flow> {
        let flow = self.places.get_mut(key as usize)?.take()?;
        self.by_token.remove(&flow.token);
        self.free.push(key);
        Some(flow)
    }

    pub(super) fn get(&mut self, key: u32) -> Option<&mut Flow> {
        self.places.get_mut(key as usize)?.as_mut()
    }

    pub(super) fn find(&self, token: Token) -> Option<u32> {
        self.by_token.get(&token).copied()
    }

    pub(super) fn count(&self) -> usize {
        self.by_token.len()
    }

    /// Has a connection looked at in the next passes.
    pub(super) fn touch(&mut self, key: u32) {
        let Some(flow) = self.get(key) else {
            return;
        };
        flow.idle_since_ns = None;
        if !flow.is_hot {
            flow.is_hot = true;
            self.hot.push(key);
        }
    }

    /// An application's end: of a pipe there are two.
    pub(super) fn end(&mut self, key: u32, side: usize) -> Option<&mut End> {
        Some(match &mut self.get(key)?.route {
            Route::Pipe(pipe) => pipe.end(side),
            Route::Remote(remote) => remote.end(),
        })
    }

    fn remote(&mut self, key: u32) -> Option<&mut Remote> {
        self.touch(key);
        match &mut self.get(key)?.route {
            Route::Remote(remote) => Some(remote),
            Route::Pipe(_) => None,
        }
    }
}

impl Endpoints for Flows {
    fn fetch(&mut self, key: u32, into: &mut [u8]) -> Fetched {
        let nothing = Fetched {
            bytes: 0,
            has_more: false,
            is_urgent: false,
        };
        self.remote(key)
            .map_or(nothing, |remote| remote.fetch(into))
    }

    fn deliver(&mut self, key: u32, bytes: &[u8]) {
        if let Some(remote) = self.remote(key) {
            remote.deliver(bytes, false);
        }
    }

    fn deliver_urgent(&mut self, key: u32, bytes: &[u8]) {
        if let Some(remote) = self.remote(key) {
            remote.deliver(bytes, true);
        }
    }

    fn finished(&mut self, key: u32) {
        if let Some(remote) = self.remote(key) {
            remote.finished();
        }
    }

    fn reset(&mut self, key: u32, reason: Reset) {
        self.resets += 1;
        if let Some(remote) = self.remote(key) {
            remote.reset(reason.errno());
        }
    }

    fn closed(&mut self, key: u32) {
        if let Some(remote) = self.remote(key) {
            remote.id = None;
        }
    }
}
