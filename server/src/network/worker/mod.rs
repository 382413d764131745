//! A worker: the event loop that owns connections.

#[cfg(test)]
mod receive_timer_tests;
mod serving;
mod spin_poll;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use self::spin_poll::{Hot, Polling};
use super::acceptor::Acceptor;
use super::buffer::BufferPool;
use super::connection::{Connection, State, Watch};
use super::inbox::{Event, Inbox};
use super::parked::ParkedReplies;
use super::poller::{Interest, Poller, Readiness};
use super::server::Shared;
use super::slab::{Slab, Token};
use super::timers::Timers;
use super::{ConnectionId, ConnectionInfo, Resumed, Service, Transport};
use crate::memory::Share;

/// The poller's key of the inbox's waker.
const WAKER_KEY: u64 = 0;

/// How many clients are accepted before connections get their turn again.
const ACCEPTS_MAX: usize = 64;

/// How long the listeners rest when accepting failed for want of descriptors or memory.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// How many times in a row a worker syncs by itself before its other connections get their turn.
const SYNCS_HERE_MAX: usize = 4;

/// How often connections that wait for memory try again.
const STARVED_RETRY: Duration = Duration::from_millis(20);

/// Whether a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disposition {
    Keep,
    Close,
}

/// A worker and everything it owns. Its methods are in three files: the loop here, what happens on one
/// connection in `serving.rs`, the polling of connections with a wake-up fd in `spin_poll.rs`.
pub(super) struct Worker<S: Service> {
    pub(super) shared: Arc<Shared<S>>,
    pub(super) inbox: Arc<Inbox<S::Session>>,
    pub(super) poller: Poller,
    pub(super) connections: Slab<Box<Connection<S::Session>>>,
    pub(super) timers: Timers,
    pub(super) pool: BufferPool,
    /// Connections that are looked at.
    pub(super) hot: Hot,
    /// Connections to be served again in the next round.
    pub(super) runnable: VecDeque<Token>,
    /// Connections that wait for memory.
    pub(super) starved: Vec<Token>,
    /// Replies whose writes have not come far enough.
    pub(super) parked: ParkedReplies<Token>,
    /// How many replies were parked in this round.
    pub(super) parked_new: u64,
    pub(super) acceptor: Option<Acceptor>,
    /// The monotonic time of this round.
    pub(super) now: Duration,
    pub(super) next_reply_id: i32,
    /// Until when running requests may end, once the server stops.
    pub(super) draining_until: Option<Duration>,
}

impl<S: Service> Worker<S> {
    pub(super) fn new(
        index: usize,
        shared: Arc<Shared<S>>,
        mut acceptor: Option<Acceptor>,
    ) -> io::Result<Self> {
        let poller = Poller::new()?;
        let inbox = Arc::clone(&shared.inboxes[index]);
        poller.add(inbox.waker(), WAKER_KEY, Interest::Read)?;
        if let Some(acceptor) = &mut acceptor {
            acceptor.watch(&poller)?;
        }
        Ok(Self {
            pool: BufferPool::new(Arc::clone(&shared.budget)),
            hot: Hot::new(shared.config.spin_time_max),
            inbox,
            poller,
            connections: Slab::new(),
            timers: Timers::default(),
            runnable: VecDeque::new(),
            starved: Vec::new(),
            parked: ParkedReplies::new(),
            parked_new: 0,
            acceptor,
            now: shared.clock.now(),
            shared,
            next_reply_id: 1,
            draining_until: None,
        })
    }

    /// The thread: returns when the server stops and the last connection is closed.
    pub(super) fn run(mut self) {
        let (mut ready, mut found) = (Vec::new(), Vec::new());
        while !self.is_drained() {
            let polled = match self.poll_hot(&mut found) {
                Polling::Wait(timeout) => self.poller.wait(timeout, &mut ready),
                Polling::Skip => Ok(()),
            };
            if let Err(error) = polled {
                // Only a descriptor that is not ours could cause this: go on without spinning.
                tracing::error!(target: "NETWORK", id = 23_301_u32, %error, "Polling failed");
                std::thread::park_timeout(ACCEPT_REST);
            }
            self.now = self.shared.clock.now();
            self.hot.set_quiet(found.is_empty() && ready.is_empty());
            for readiness in found.drain(..) {
                self.on_found(readiness);
            }
            for readiness in ready.drain(..) {
                self.on_ready(readiness);
            }
            self.on_timers();
            self.release_parked();
            self.run_again();
            self.retry_buffer_waiters();
            self.request_sync();
            self.begin_draining();
        }
        for token in self.connections.tokens() {
            if let Some(connection) = self.connections.take(token) {
                self.close(token, connection);
            }
        }
    }

    fn is_drained(&self) -> bool {
        self.draining_until
            .is_some_and(|until| self.connections.len() == 0 || self.now >= until)
    }

    fn timeout(&self) -> Option<Duration> {
        if !self.runnable.is_empty() {
            return Some(Duration::ZERO);
        }
        let resting = self.acceptor.as_ref().and_then(Acceptor::resting_until);
        let parked = self.parked.next_deadline();
        [
            self.timers.until_next(self.now),
            parked.map(|until| until.saturating_sub(self.now)),
            resting.map(|until| until.saturating_sub(self.now)),
            self.draining_until
                .map(|until| until.saturating_sub(self.now)),
            (!self.starved.is_empty()).then_some(STARVED_RETRY),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn on_ready(&mut self, readiness: Readiness) {
        match readiness.key {
            WAKER_KEY => self.on_inbox(),
            key if key < Token::KEY_MIN => self.accept(key),
            key => self.with_connection(Token::from_key(key), |worker, token, connection| {
                worker.on_event(token, connection, readiness)
            }),
        }
    }

    /// Takes a connection out, lets `serve` work on it, and closes it or puts it back.
    pub(super) fn with_connection(
        &mut self,
        token: Token,
        serve: impl FnOnce(&mut Self, Token, &mut Connection<S::Session>) -> Disposition,
    ) {
        let Some(mut connection) = self.connections.take(token) else {
            return; // closed earlier in this round
        };
        let fate = serve(self, token, &mut connection);
        if fate == Disposition::Keep && self.watch(token, &mut connection).is_ok() {
            self.connections.put_back(token, connection);
        } else {
            self.close(token, connection);
        }
    }

    /// Tells the poller and the timers what the connection waits for now.
    fn watch(&mut self, token: Token, connection: &mut Connection<S::Session>) -> io::Result<()> {
        let config = &self.shared.config;
        let deadline = match connection.state {
            State::Waiting { until, .. } => Some(until),
            _ => connection
                .stalled_since
                .map(|since| since + config.stall_time_max)
                .or_else(|| {
                    connection
                        .partial_since
                        .map(|since| since + config.receive_time_max)
                }),
        };
        self.timers.set(token, &mut connection.deadline, deadline);
        let interest = connection.wanted_interest();
        connection.disturbed = false;
        if !connection.watched {
            return Ok(());
        }
        match connection.watch {
            Watch::Poller if interest != connection.interest => {
                self.poller
                    .modify(connection.transport.readiness(), token.key(), interest)?;
            }
            Watch::Armed(armed) if interest != armed && interest != Interest::None => {
                self.warm(token, connection);
            }
            _ => {}
        }
        connection.interest = interest;
        Ok(())
    }

    /// Ends a connection that was taken out. One whose request is on an executor thread is kept until
    /// its session comes back.
    fn close(&mut self, token: Token, mut connection: Box<Connection<S::Session>>) {
        self.timers.set(token, &mut connection.deadline, None);
        if connection.watched {
            // Closing the descriptor would remove it too, unless a transport shares it.
            let _ = self.poller.remove(connection.transport.readiness());
            connection.watched = false;
            connection.watch = Watch::Poller;
        }
        match connection.state {
            State::Running if !connection.gone => {
                connection.gone = true;
                self.shared.service.disconnected(connection.id);
                self.connections.put_back(token, connection);
                return;
            }
            State::Running if self.draining_until.is_none_or(|until| self.now < until) => {
                self.connections.put_back(token, connection);
                return;
            }
            State::Parked { wanted, .. } => self.parked.remove(token, &wanted),
            State::Waiting {
                ticket: Some(ticket),
                ..
            } => self.shared.notifier.cancel(ticket),
            _ => {}
        }
        self.connections.remove(token);
        for buffer in [connection.input.take(), connection.output.take()]
            .into_iter()
            .flatten()
        {
            self.pool.put(buffer);
        }
        if let Some(session) = connection.session.take() {
            self.shared.service.close(session);
        }
        self.shared.counters.open.fetch_sub(1, Ordering::Relaxed);
    }

    fn on_inbox(&mut self) {
        for event in self.inbox.drain() {
            match event {
                Event::Connection(transport) => self.open(transport),
                Event::Completed(completion) => {
                    let token = completion.token;
                    self.with_connection(token, |worker, token, connection| {
                        worker.on_completed(token, connection, *completion)
                    });
                }
                Event::Notified(token, ticket) => {
                    self.with_connection(token, |worker, token, connection| {
                        match connection.state {
                            State::Waiting {
                                ticket: Some(awaited),
                                ..
                            } if awaited == ticket => {
                                worker.resume(token, connection, Some(Resumed::Notified))
                            }
                            _ => Disposition::Keep,
                        }
                    });
                }
            }
        }
    }

    fn accept(&mut self, key: u64) {
        let Some(mut acceptor) = self.acceptor.take() else {
            return;
        };
        for _ in 0..ACCEPTS_MAX {
            let Some(listener) = acceptor.listener(key) else {
                break;
            };
            match listener.accept() {
                Ok(transport) => self.admit(&mut acceptor, transport),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // The client was gone before it was accepted.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    tracing::warn!(target: "NETWORK", id = 23_302_u32, %error, "Accepting failed");
                    acceptor.rest(&self.poller, self.now + ACCEPT_REST);
                    break;
                }
            }
        }
        self.acceptor = Some(acceptor);
    }

    /// Hands a client to the next worker, or closes the connection if there are too many.
    fn admit(&mut self, acceptor: &mut Acceptor, transport: Box<dyn Transport>) {
        let counters = &self.shared.counters;
        let open = counters.open.fetch_add(1, Ordering::Relaxed);
        if open >= self.shared.config.connections_max {
            counters.open.fetch_sub(1, Ordering::Relaxed);
            counters.rejected.fetch_add(1, Ordering::Relaxed);
            tracing::info!(
                target: "NETWORK",
                id = 22_942_u32,
                remote = transport.peer(),
                connectionCount = open,
                "Connection refused because there are too many open connections"
            );
            return;
        }
        let worker = acceptor.next_worker(self.shared.inboxes.len());
        if worker == 0 {
            self.open(transport);
        } else {
            self.shared.inboxes[worker].push(Event::Connection(transport));
        }
    }

    /// Begins to serve a client. It is counted as open already.
    fn open(&mut self, transport: Box<dyn Transport>) {
        let counters = &self.shared.counters;
        let number = counters.accepted.fetch_add(1, Ordering::Relaxed) + 1;
        let info = ConnectionInfo {
            id: ConnectionId(number),
            peer: transport.peer(),
        };
        let session = self.shared.service.open(&info);
        let connection = Box::new(Connection::new(info.id, transport, session));
        let token = self.connections.insert(connection);
        self.with_connection(token, |worker, token, connection| {
            let fd = connection.transport.readiness();
            match worker.poller.add(fd, token.key(), Interest::Read) {
                Ok(()) => {
                    if connection.transport.is_ready(Interest::None).is_some() {
                        worker.warm(token, connection);
                    }
                    Disposition::Keep
                }
                Err(error) => {
                    connection.watched = false;
                    tracing::warn!(target: "NETWORK", id = 23_303_u32, %error, "Watching failed");
                    Disposition::Close
                }
            }
        });
    }

    fn on_timers(&mut self) {
        for token in self.timers.expired(self.now) {
            self.with_connection(token, Self::on_deadline);
        }
        let now = self.now;
        if let Some(acceptor) = &mut self.acceptor {
            if acceptor.resting_until().is_some_and(|until| until <= now)
                && acceptor.watch(&self.poller).is_err()
            {
                acceptor.rest(&self.poller, now + ACCEPT_REST);
            }
        }
    }

    fn on_deadline(
        &mut self,
        token: Token,
        connection: &mut Connection<S::Session>,
    ) -> Disposition {
        if let State::Waiting { ticket, .. } = connection.state {
            if let Some(ticket) = ticket {
                self.shared.notifier.cancel(ticket);
            }
            return self.resume(token, connection, Some(Resumed::TimedOut));
        }
        if connection.stalled_since.is_some() && !self.shared.budget.is_scarce(Share::Messages) {
            // A slow reader costs nothing that somebody else needs.
            connection.stalled_since = Some(self.now);
            return Disposition::Keep;
        }
        self.shared
            .counters
            .timed_out
            .fetch_add(1, Ordering::Relaxed);
        tracing::info!(
            target: "NETWORK",
            id = 23_304_u32,
            connectionId = connection.id.0,
            "Connection closed because the client was too slow"
        );
        Disposition::Close
    }

    /// Releases the replies whose writes have come far enough, or whose time is over; all of them if the journal
    /// failed, as errors.
    fn release_parked(&mut self) {
        if self.parked.is_empty() {
            return;
        }
        // Read once: what is released may have its next request here already, and others want their turn.
        let reached = self.shared.journal.watermarks().reached();
        while let Some((token, verdict)) = self.parked.pop(&reached, self.now) {
            self.with_connection(token, |worker, token, connection| {
                worker.unpark(token, connection, verdict)
            });
        }
        self.inbox.set_parked(!self.parked.is_empty());
    }

    /// Asks for one sync for everything parked in this round.
    fn request_sync(&mut self) {
        // What is released may have its next request here already.
        for _ in 0..SYNCS_HERE_MAX {
            let Some(commit_seq) = self.parked.last_commit_seq() else {
                break;
            };
            let is_alone = self.parked_new == 1 && self.parked.len() == 1;
            if !is_alone || !self.shared.journal.sync_inline(commit_seq) {
                break;
            }
            self.parked_new = 0;
            self.release_parked();
        }
        let parked_new = std::mem::take(&mut self.parked_new);
        if parked_new == 0 {
            return;
        }
        if let Some(commit_seq) = self.parked.last_commit_seq() {
            self.inbox.set_parked(true);
            self.shared.journal.request(commit_seq, parked_new);
            if self.shared.journal.has_failed() {
                // The journal thread has ended and wakes nobody.
                self.inbox.wake();
            }
        }
    }

    fn run_again(&mut self) {
        for token in std::mem::take(&mut self.runnable) {
            self.with_connection(token, |worker, token, connection| {
                if connection.state == State::Repeating && connection.sendable().is_empty() {
                    worker.resume(token, connection, None)
                } else {
                    Disposition::Keep
                }
            });
        }
    }

    fn retry_buffer_waiters(&mut self) {
        for token in std::mem::take(&mut self.starved) {
            self.with_connection(token, |worker, token, connection| {
                connection.starved = false;
                worker.serve_received(token, connection)
            });
        }
    }

    /// Once the server stops: closes what is idle, and leaves the rest until it is done.
    fn begin_draining(&mut self) {
        if self.draining_until.is_some() || !self.shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        // Requests that the stop has woken get their answers; connections that still wait are closed below.
        self.on_inbox();
        self.draining_until = Some(self.now + self.shared.config.drain_time_max);
        self.acceptor = None;
        for token in self.connections.tokens() {
            self.with_connection(token, |worker, _, connection| worker.drained(connection));
        }
    }

    /// Whether a connection may end now that the server stops.
    pub(super) fn drained(&self, connection: &Connection<S::Session>) -> Disposition {
        match connection.state {
            _ if self.draining_until.is_none() => Disposition::Keep,
            State::Ready if connection.sendable().is_empty() => Disposition::Close,
            State::Waiting { .. } | State::Repeating => Disposition::Close,
            _ => Disposition::Keep,
        }
    }
}
