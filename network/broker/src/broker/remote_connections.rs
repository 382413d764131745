//! Connections with other hosts.
//!
//! ```text
//! process: CONNECT -> forwarder opens -> Opened -> CONNECT to the peer -> ACCEPT -> establish, CONNECTED
//! peer: CONNECT -> listener -> forwarder opens -> Opened -> INCOMING, establish -> ACCEPT
//! ```

use std::os::fd::AsFd;

use millrace_stream::control::{Link, Message, Packet};
use millrace_stream::partition::{Class, ConnectionName, EndName, OpenReply};
use millrace_stream::{Address, Side};
use rustix::io::Errno;

use super::connection::Connection;
use super::forwarders::{Flow, IncomingConnect, OutgoingConnect, endpoint};
use super::{Broker, route};
use crate::forwarder::{Command, Open, Token as Number};
use crate::peer::PeerMessage;
use crate::registry::{ClientId, ConnectRequest, Event, ListenerId, Refusal, destination};

/// Bytes that are buffered for a process that does not read.
const ROOM: u64 = 256 << 10;
/// Ticks for which a process waits for another host's answer.
const ANSWER: u32 = 40;
/// ECONNRESET, for a process whose connection is abandoned.
const CONNECTION_RESET: u16 = 104;

/// A CONNECT message of another broker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) token: Number,
    pub(super) partition: u16,
    pub(super) user: u32,
    pub(super) process: u32,
    pub(super) opened: OpenReply,
    pub(super) name: ConnectionName,
}

impl Broker {
    /// Asks a forwarder for an endpoint, as the first step of a connection to another host.
    pub(super) fn connect_remote(&mut self, client: ClientId, request: ConnectRequest, host: u128) {
        if self.try_connect_remote(client, request, host).is_none() {
            self.no_connection(client, request.serial, Refusal::Kernel);
        }
    }

    fn try_connect_remote(
        &mut self,
        client: ClientId,
        request: ConnectRequest,
        host: u128,
    ) -> Option<()> {
        let (session, partitions, own) = self.peers.as_ref()?.alive(host)?;
        let source = route::toward(destination(request.peer))?;
        self.may_forward(request.credentials.user).then_some(())?;
        let link = self.registry.link_across(request, source);
        let connection = Connection::new(self.geometry).ok()?;
        let name = name(own, host, link);
        let forwarders = self.forwarders.as_mut()?;
        let partition = forwarders.pool.choose_partition(&name, partitions);
        let outgoing = OutgoingConnect {
            session,
            partition,
            client,
            serial: request.serial,
            user: request.credentials.user,
            process: request.credentials.process,
            link,
            wakeup: connection.connecting,
            memory: connection.memory.try_clone().ok()?,
            ticks: 0,
            is_sent: false,
            is_abandoned: false,
        };
        let token = forwarders.next();
        let end = endpoint(
            connection.accepting,
            connection.memory,
            self.geometry,
            Side::Connecting,
        );
        let link = self.peers.as_ref()?.link(session, partition)?;
        forwarders
            .send(partition, open(token, link, end))
            .then_some(())?;
        let flow = Flow::Outgoing(Box::new(outgoing));
        forwarders
            .flows
            .insert(token, request.credentials.user, flow);
        Some(())
    }

    /// Handles CONNECT of another host's broker.
    pub(super) fn peer_connects(&mut self, session: u64, request: Request) {
        if let Err(refusal) = self.try_peer_connect(session, request) {
            self.refuse_peer(session, request.token, refusal);
        }
    }

    fn try_peer_connect(&mut self, session: u64, request: Request) -> Result<(), Refusal> {
        let peers = self.peers.as_ref().ok_or(Refusal::Kernel)?;
        let link = peers.link(session, request.partition);
        let forwarder_link = link.ok_or(Refusal::Kernel)?;
        if !peers.fits(session, &request.name) {
            return Err(Refusal::Errno(Errno::INVAL));
        }
        let to = request.name.accepting.address;
        let is_reachable = !to.ip().to_canonical().is_loopback();
        if !is_reachable || route::source(to.canonical()).is_none() {
            return Err(Refusal::Kernel);
        }
        let from = request.name.connecting.address.canonical();
        // A host speaks for its own addresses alone: programs authorize by source address.
        if route::source(from).is_some() || !peers.has(session, from.ip()) {
            return Err(Refusal::Errno(Errno::INVAL));
        }
        let (listener, link) = self.choose(request.user, from, to)?;
        let owner = self.registry.listener(listener).map(|it| it.owner.user);
        let owner = owner.ok_or(Refusal::Kernel)?;
        if !self.may_forward(owner) {
            return Err(Refusal::Kernel);
        }
        let connection = Connection::new(self.geometry).map_err(|_| Refusal::Kernel)?;
        let memory = connection.memory.try_clone();
        let forwarders = self.forwarders.as_mut().ok_or(Refusal::Kernel)?;
        let incoming = IncomingConnect {
            session,
            partition: request.partition,
            theirs: request.token,
            listener,
            user: request.user,
            process: request.process,
            link,
            wakeup: connection.accepting,
            memory: memory.map_err(|_| Refusal::Kernel)?,
            peer: request.opened,
        };
        let token = forwarders.next();
        let end = endpoint(
            connection.connecting,
            connection.memory,
            self.geometry,
            Side::Accepting,
        );
        if !forwarders.send(request.partition, open(token, forwarder_link, end)) {
            return Err(Refusal::Kernel);
        }
        let flow = Flow::Incoming(Box::new(incoming));
        forwarders.flows.insert(token, owner, flow);
        Ok(())
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
            self.handle(Event::Silent { listener });
        }
    }

    /// Handles an endpoint that a forwarder has opened.
    pub(super) fn open_completed(&mut self, token: Number, opened: OpenReply) {
        let Some(forwarders) = &mut self.forwarders else {
            return;
        };
        match forwarders.flows.get_mut(token) {
            Some(Flow::Outgoing(outgoing)) => {
                let session = outgoing.session;
                let hosts = self.peers.as_ref().and_then(|peers| peers.hosts(session));
                let Some((own, host)) = hosts else {
                    return self.fail_connect(token, Refusal::Kernel);
                };
                outgoing.is_sent = true;
                let message = PeerMessage::Connect {
                    token,
                    partition: outgoing.partition,
                    user: outgoing.user,
                    process: outgoing.process,
                    opened,
                    name: name(own, host, outgoing.link),
                };
                self.send_to_peer(session, &message);
            }
            Some(Flow::Incoming(_)) => {
                if let Some(Flow::Incoming(incoming)) = forwarders.flows.set_remote(token) {
                    self.deliver(token, &incoming, opened);
                }
            }
            // It was abandoned, and the forwarder got `Close`.
            Some(Flow::Local | Flow::Remote) | None => {}
        }
    }

    /// Sends a connection of another host into its listener's channel.
    fn deliver(&mut self, token: Number, incoming: &IncomingConnect, opened: OpenReply) {
        let packet = Packet {
            serial: 0,
            message: Message::Incoming {
                link: incoming.link,
                user: incoming.user,
                process: incoming.process,
            },
        };
        let descriptors = [incoming.wakeup.as_fd(), incoming.memory.as_fd()];
        let sent = self.put(incoming.listener, &packet, &descriptors);
        let Some(forwarders) = &mut self.forwarders else {
            return;
        };
        let partition = incoming.partition;
        if sent {
            let peer = incoming.peer;
            forwarders.send(partition, Command::Establish { token, peer });
            let token = incoming.theirs;
            self.send_to_peer(incoming.session, &PeerMessage::Accept { token, opened });
        } else {
            let errno = CONNECTION_RESET;
            forwarders.flows.remove(token);
            forwarders.send(partition, Command::Close { token, errno });
            self.refuse_peer(incoming.session, incoming.theirs, Refusal::Kernel);
        }
    }

    /// Handles ACCEPT of another host's broker.
    pub(super) fn peer_accepts(&mut self, session: u64, token: Number, peer: OpenReply) {
        let Some(forwarders) = &mut self.forwarders else {
            return;
        };
        if !is_outgoing(forwarders.flows.get(token), session) {
            return;
        }
        let Some(Flow::Outgoing(outgoing)) = forwarders.flows.set_remote(token) else {
            return;
        };
        let partition = outgoing.partition;
        forwarders.send(partition, Command::Establish { token, peer });
        if outgoing.is_abandoned {
            // Both sides know the number now, and release it together.
            let errno = CONNECTION_RESET;
            forwarders.send(partition, Command::Close { token, errno });
            return;
        }
        self.registry.connected_across();
        let packet = Packet {
            serial: outgoing.serial,
            message: Message::Connected(outgoing.link),
        };
        let descriptors = [outgoing.wakeup.as_fd(), outgoing.memory.as_fd()];
        self.reply(outgoing.client, &packet, &descriptors);
        self.perform_all();
    }

    /// Handles REFUSE of another host's broker.
    pub(super) fn peer_refuses(&mut self, session: u64, token: Number, errno: u32) {
        let flow = self.forwarders.as_ref().and_then(|it| it.flows.get(token));
        if !is_outgoing(flow, session) {
            return;
        }
        let refusal = match i32::try_from(errno) {
            Ok(errno @ 1..) => Refusal::Errno(Errno::from_raw_os_error(errno)),
            _ => Refusal::Kernel,
        };
        self.fail_connect(token, refusal);
    }

    /// Ends a connection that failed or is over, and answers the waiting side.
    pub(super) fn fail_connect(&mut self, token: Number, refusal: Refusal) {
        let Some(forwarders) = &mut self.forwarders else {
            return;
        };
        let errno = CONNECTION_RESET;
        match forwarders.flows.remove(token) {
            Some(Flow::Outgoing(outgoing)) => {
                forwarders.send(outgoing.partition, Command::Close { token, errno });
                if !outgoing.is_abandoned {
                    self.no_connection(outgoing.client, outgoing.serial, refusal);
                    self.perform_all();
                }
            }
            Some(Flow::Incoming(incoming)) => {
                forwarders.send(incoming.partition, Command::Close { token, errno });
                self.refuse_peer(incoming.session, incoming.theirs, refusal);
            }
            Some(Flow::Local | Flow::Remote) | None => {}
        }
    }

    /// Fails the pending connections of closed peer connections.
    pub(super) fn fail_pending(&mut self, is_gone: impl Fn(u64) -> bool) {
        let waits = |flow: &Flow| match flow {
            Flow::Outgoing(outgoing) => is_gone(outgoing.session),
            Flow::Incoming(incoming) => is_gone(incoming.session),
            Flow::Local | Flow::Remote => false,
        };
        for token in self.flows(waits) {
            self.fail_connect(token, Refusal::Kernel);
        }
    }

    /// Runs at each tick: a process that waits too long for another host is left to the kernel.
    pub(super) fn expire(&mut self) {
        let Some(forwarders) = &mut self.forwarders else {
            return;
        };
        for flow in forwarders.flows.values_mut() {
            if let Flow::Outgoing(outgoing) = flow {
                outgoing.ticks = outgoing.ticks.saturating_add(1);
            }
        }
        let is_late = |flow: &Flow| match flow {
            Flow::Outgoing(outgoing) => outgoing.ticks > ANSWER && !outgoing.is_abandoned,
            _ => false,
        };
        for token in self.flows(is_late) {
            let flows = self.forwarders.as_mut().map(|it| &mut it.flows);
            match flows.and_then(|flows| flows.get_mut(token)) {
                Some(Flow::Outgoing(outgoing)) if outgoing.is_sent => {
                    outgoing.is_abandoned = true;
                    let (client, serial) = (outgoing.client, outgoing.serial);
                    self.no_connection(client, serial, Refusal::Kernel);
                }
                _ => self.fail_connect(token, Refusal::Kernel),
            }
        }
        self.perform_all();
    }

    fn flows(&self, fits: impl Fn(&Flow) -> bool) -> Vec<Number> {
        let all = self.forwarders.iter().flat_map(|it| it.flows.iter());
        let fitting = all.filter(|(_, flow)| fits(flow));
        fitting.map(|(number, _)| number).collect()
    }

    fn no_connection(&mut self, client: ClientId, serial: u32, refusal: Refusal) {
        let mut actions = Vec::new();
        self.registry
            .refused_across(client, serial, refusal, &mut actions);
        self.todo.extend(actions);
    }

    fn refuse_peer(&mut self, session: u64, token: Number, refusal: Refusal) {
        let errno = match refusal {
            Refusal::Kernel => 0,
            Refusal::Errno(errno) => errno.raw_os_error().unsigned_abs(),
        };
        self.send_to_peer(session, &PeerMessage::Refuse { token, errno });
    }

    fn put(
        &mut self,
        listener: ListenerId,
        packet: &Packet,
        descriptors: &[std::os::fd::BorrowedFd<'_>],
    ) -> bool {
        let Some(channel) = self.channels.get(&listener) else {
            return false;
        };
        let is_sent = channel.send(packet, descriptors).is_ok();
        let has_room = channel.has_room();
        if is_sent {
            self.registry.accepted_across(listener, has_room);
        }
        if !has_room {
            self.watch_room(listener, true);
        }
        is_sent
    }
}

fn open(token: Number, link: u32, endpoint: crate::forwarder::Endpoint) -> Command {
    Command::Open(Box::new(Open {
        token,
        link,
        endpoint,
        class: Class::DEFAULT,
        rate: None,
        room: ROOM,
    }))
}

/// Whether a process waits for the host at the other end of `session`.
fn is_outgoing(flow: Option<&Flow>, session: u64) -> bool {
    matches!(flow, Some(Flow::Outgoing(outgoing)) if outgoing.session == session)
}

/// The connection's name between both brokers.
fn name(own: u128, host: u128, link: Link) -> ConnectionName {
    ConnectionName {
        connecting: EndName {
            host: own,
            address: link.local.canonical(),
        },
        accepting: EndName {
            host,
            address: link.peer.canonical(),
        },
    }
}
