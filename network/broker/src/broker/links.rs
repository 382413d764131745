//! The connections that the broker makes: within this host, and its side of those with other hosts.

use std::os::fd::AsFd;

use millrace_stream::Address;
use millrace_stream::control::{Lease, Link, Message, Mode, Packet};
use millrace_stream::partition::{ConnectionName, OpenReply};
use rustix::io::Errno;

use super::connection::Connection;
use super::flow::{IncomingConnect, OutgoingConnect, Progress};
use super::forwarded::ForwardEvent;
use super::{Broker, route};
use crate::forwarder::Token;
use crate::registry::{
    Attempt, ClientId, ConnectRequest, Event, ListenerId, Outcome, Refusal, destination,
};

/// The duration of a lease in microseconds.
const LEASE_LASTS_US: u32 = 10_000;

/// A CONNECT message of another broker.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerRequest {
    /// The number of the connection to the other broker.
    pub(super) session: u64,
    pub(super) token: Token,
    pub(super) partition: u16,
    pub(super) user: u32,
    pub(super) process: u32,
    pub(super) opened: OpenReply,
    pub(super) name: ConnectionName,
}

impl Broker {
    /// Makes a connection between two processes of this host.
    pub(super) fn link(&mut self, attempt: &Attempt) -> Outcome {
        let listener = attempt.listener;
        if !self.listens(listener) {
            return Outcome::Gone;
        }
        let is_forwarded = attempt.connecting.mode == Mode::Forwarded;
        let user = attempt.request.credentials.user;
        if is_forwarded && !self.may_forward(user) {
            return Outcome::Failed;
        }
        let looks = attempt.request.no_wait || attempt.lent > 0;
        let Some(has_room) = self.channels.has_room(listener).map(|room| !looks || room) else {
            return Outcome::Gone;
        };
        if attempt.request.no_wait && !has_room {
            // Processes with leases may have filled it unseen by the registry.
            self.channels.watch_room(listener, true, &self.poller);
            return Outcome::Full;
        }
        if attempt.lent > 0 && has_room {
            return self.lend(attempt);
        }
        let made = Connection::new(self.geometry).and_then(|first| {
            let second = is_forwarded.then(|| Connection::new(self.geometry));
            Ok((first, second.transpose()?))
        });
        let Ok((first, second)) = made else {
            return Outcome::Failed;
        };
        let accepting = second.as_ref().unwrap_or(&first);
        let incoming = Packet {
            serial: 0,
            message: Message::Incoming {
                link: attempt.accepting,
                user,
                process: attempt.request.credentials.process,
            },
        };
        let descriptors = [accepting.accepting.as_fd(), accepting.memory.as_fd()];
        let room = match self.channels.send(listener, &incoming, &descriptors) {
            Some((Ok(()), room)) => room,
            Some((Err(Errno::AGAIN), _)) => {
                self.channels.watch_room(listener, true, &self.poller);
                return Outcome::Full;
            }
            None
            | Some((
                Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN | Errno::CONNREFUSED),
                _,
            )) => return Outcome::Gone,
            Some((Err(_), _)) => return Outcome::Failed,
        };
        let connected = Packet {
            serial: attempt.request.serial,
            message: Message::Connected(attempt.connecting),
        };
        let descriptors = [first.connecting.as_fd(), first.memory.as_fd()];
        self.reply(attempt.client, &connected, &descriptors);
        if let Some(second) = second {
            self.forward_locally(user, first, second);
        }
        if !room {
            self.channels.watch_room(listener, true, &self.poller);
        }
        Outcome::Done { room }
    }

    /// Grants a process a lease: for [`LEASE_LASTS_US`] it creates its connections to a listener itself. The broker's
    /// checks hold for that long.
    fn lend(&mut self, attempt: &Attempt) -> Outcome {
        // A duplicate, as the reply may disconnect the process.
        let channel = match self.channels.duplicate(attempt.listener) {
            Some(Ok(channel)) => channel,
            Some(Err(_)) => return Outcome::Failed,
            None => return Outcome::Gone,
        };
        let lease = Lease {
            ring_lines: attempt.connecting.ring_lines,
            mapped: attempt.accepting.local.is_mapped(),
            local: attempt.connecting.local.canonical(),
            peer: attempt.connecting.peer.canonical(),
            ports: attempt.lent,
            lasts_us: LEASE_LASTS_US,
        };
        let packet = Packet {
            serial: attempt.request.serial,
            message: Message::Lease(lease),
        };
        self.reply(attempt.client, &packet, &[channel.as_fd()]);
        Outcome::Lent
    }

    /// Hands a connection between two processes to a forwarder. Without one both processes get a reset, as their
    /// wake-up sockets hang up.
    fn forward_locally(&mut self, user: u32, first: Connection, second: Connection) {
        let Some(forwarders) = &self.forwarders else {
            return;
        };
        let token = self.forwarded.next_token();
        if forwarders.forward_locally(token, first, second, self.geometry) {
            self.apply_forwarded(ForwardEvent::Local { token, user });
        }
    }

    /// The connection to another host for a process; `None` if it cannot be made.
    pub(super) fn outgoing(
        &mut self,
        client: ClientId,
        request: ConnectRequest,
        host: u128,
    ) -> Option<Box<OutgoingConnect>> {
        let route = self.peers.as_ref()?.route(host)?;
        let source = route::toward(destination(request.peer))?;
        self.may_forward(request.credentials.user).then_some(())?;
        let link = self.registry.link_across(request, source);
        let name = route.name(link);
        let forwarders = self.forwarders.as_ref()?;
        let partition = forwarders.choose_partition(&name, route.partitions);
        Some(Box::new(OutgoingConnect {
            session: route.session,
            partition,
            forwarder_link: self.peers.as_ref()?.link(route.session, partition)?,
            client,
            serial: request.serial,
            user: request.credentials.user,
            process: request.credentials.process,
            link,
            name,
            progress: Progress::Opening { ticks: 0 },
        }))
    }

    /// The connection for a process of another host.
    pub(super) fn incoming(
        &mut self,
        request: &PeerRequest,
    ) -> Result<Box<IncomingConnect>, Refusal> {
        let peers = self.peers.as_ref().ok_or(Refusal::Kernel)?;
        let forwarder_link = peers.link(request.session, request.partition);
        let forwarder_link = forwarder_link.ok_or(Refusal::Kernel)?;
        if !peers.fits(request.session, &request.name) {
            return Err(Refusal::Errno(Errno::INVAL));
        }
        let to = request.name.accepting.address;
        let is_reachable = !to.ip().to_canonical().is_loopback();
        if !is_reachable || route::source(to.canonical()).is_none() {
            return Err(Refusal::Kernel);
        }
        let from = request.name.connecting.address.canonical();
        // A host speaks for its own addresses alone: programs authorize by source address.
        if route::source(from).is_some() || !peers.has(request.session, from.ip()) {
            return Err(Refusal::Errno(Errno::INVAL));
        }
        let (listener, link) = self.choose(request.user, from, to)?;
        let owner = self.registry.listener(listener).map(|it| it.owner.user);
        let owner = owner.ok_or(Refusal::Kernel)?;
        if !self.may_forward(owner) {
            return Err(Refusal::Kernel);
        }
        Ok(Box::new(IncomingConnect {
            session: request.session,
            partition: request.partition,
            forwarder_link,
            theirs: request.token,
            listener,
            owner,
            user: request.user,
            process: request.process,
            link,
            peer: request.opened,
        }))
    }

    /// The listener for a connection from another host, among those that still listen.
    fn choose(
        &mut self,
        user: u32,
        from: Address,
        to: Address,
    ) -> Result<(ListenerId, Link), Refusal> {
        loop {
            let (listener, link) = self.registry.accept_across(user, from, to)?;
            if self.listens(listener) {
                return Ok((listener, link));
            }
            self.apply(Event::Silent { listener });
        }
    }

    /// Whether the listener's TCP socket still listens, as the kernel reports.
    fn listens(&mut self, listener: ListenerId) -> bool {
        let proof = self.registry.listener(listener).map(|found| found.proof);
        proof.is_some_and(|proof| self.sock_diag.has(&proof))
    }

    /// Whether there are forwarders, and the limits allow one more forwarded connection of a user.
    fn may_forward(&mut self, user: u32) -> bool {
        self.forwarders.is_some() && self.forwarded.has_room(user)
    }
}
