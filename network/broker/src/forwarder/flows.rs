//! The connections of a forwarder.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use millrace_stream::Service;
use millrace_stream::partition::{Class, Endpoints, Fetched, Reset};

use super::command::Token;
use super::end::End;
use super::pipe::Pipe;
use super::remote::Remote;
use super::round_robin::WeightedRoundRobin;

/// A connection of a forwarder.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) token: Token,
    pub(super) route: Route,
    class: Class,
    /// The time since which nothing was moved, in nanoseconds.
    pub(super) idle_since_ns: Option<u64>,
    /// The time at which its rate allows more bytes, in nanoseconds.
    paced_ns: Option<u64>,
}

/// The two parties of a connection.
#[derive(Debug)]
pub(super) enum Route {
    Pipe(Box<Pipe>),
    Remote(Box<Remote>),
}

/// All connections by key, the order of the hot ones, and the heap of paced ones.
#[derive(Debug, Default)]
pub(super) struct Flows {
    places: Vec<Option<Flow>>,
    free: Vec<u32>,
    by_token: HashMap<Token, u32>,
    hot: WeightedRoundRobin,
    /// Due times and keys. Entries of connections that went on earlier stay until their time.
    paced: BinaryHeap<Reverse<(u64, u32)>>,
    /// Connections that were reset.
    pub(super) resets: u64,
}

impl Flows {
    /// The key of the next connection.
    pub(super) fn next_key(&self) -> u32 {
        let next = || u32::try_from(self.places.len()).expect("fewer than numbers");
        self.free.last().copied().unwrap_or_else(next)
    }

    pub(super) fn insert(&mut self, token: Token, route: Route) -> u32 {
        let flow = Flow {
            token,
            route,
            class: Class::DEFAULT,
            idle_since_ns: None,
            paced_ns: None,
        };
        let key = self.next_key();
        if self.free.pop().is_some() {
            self.places[key as usize] = Some(flow);
        } else {
            self.places.push(Some(flow));
        }
        self.by_token.insert(token, key);
        self.mark_hot(key);
        key
    }

    pub(super) fn remove(&mut self, key: u32) -> Option<Flow> {
        let flow = self.places.get_mut(key as usize)?.take()?;
        self.by_token.remove(&flow.token);
        self.hot.remove(flow.class, key);
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

    /// Gives a connection turns in the next passes.
    pub(super) fn mark_hot(&mut self, key: u32) {
        let Some(flow) = self.get(key) else {
            return;
        };
        flow.idle_since_ns = None;
        let class = flow.class;
        self.hot.insert(class, key);
    }

    /// The hot connection that has the next turn.
    pub(super) fn next_hot(&mut self) -> Option<u32> {
        self.hot.next()
    }

    /// The count of hot connections.
    pub(super) const fn hot(&self) -> usize {
        self.hot.count()
    }

    /// Takes a connection out of the passes until it is marked hot, or its rate allows more bytes.
    pub(super) fn mark_cold(&mut self, key: u32) {
        let Some(flow) = self.get(key) else {
            return;
        };
        let class = flow.class;
        let due_ns = match &flow.route {
            Route::Pipe(pipe) => pipe.due_ns(),
            Route::Remote(_) => None,
        };
        let was_due_ns = std::mem::replace(&mut flow.paced_ns, due_ns);
        if let Some(due_ns) = due_ns.filter(|_| due_ns != was_due_ns) {
            if self.paced.len() >= 2 * self.places.len() {
                let places = &self.places;
                self.paced.retain(|Reverse((due_ns, key))| {
                    let flow = places[*key as usize].as_ref();
                    flow.is_some_and(|flow| flow.paced_ns == Some(*due_ns))
                });
            }
            self.paced.push(Reverse((due_ns, key)));
        }
        self.hot.remove(class, key);
    }

    /// Marks connections hot whose rate allows more bytes.
    pub(super) fn unpace(&mut self, now_ns: u64) {
        while let Some(&Reverse((due_ns, key))) = self.paced.peek() {
            if due_ns > now_ns {
                break;
            }
            self.paced.pop();
            if let Some(flow) = self.get(key).filter(|flow| flow.paced_ns == Some(due_ns)) {
                flow.paced_ns = None;
                self.mark_hot(key);
            }
        }
    }

    /// The earliest due time of a paced connection, in nanoseconds.
    pub(super) fn due_ns(&self) -> Option<u64> {
        self.paced.peek().map(|Reverse((due_ns, _))| *due_ns)
    }

    /// Applies the service that one application of a pipe requests.
    pub(super) fn set_service(&mut self, key: u32, side: usize, service: Service) {
        let Some(flow) = self.get(key) else {
            return;
        };
        if let Route::Pipe(pipe) = &mut flow.route {
            pipe.set_service(side, service);
            let class = pipe.class();
            let was = std::mem::replace(&mut flow.class, class);
            if was != class && self.hot.remove(was, key) {
                self.hot.insert(class, key);
            }
        }
    }

    /// An application's end; a pipe has two.
    pub(super) fn end(&mut self, key: u32, side: usize) -> Option<&mut End> {
        Some(match &mut self.get(key)?.route {
            Route::Pipe(pipe) => pipe.end(side),
            Route::Remote(remote) => remote.end(),
        })
    }

    fn remote(&mut self, key: u32) -> Option<&mut Remote> {
        self.mark_hot(key);
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
