//! Connections with other hosts.
//!
//! ```text
//! process: CONNECT -> open at the plane -> Opened -> CONNECT to the peer -> ACCEPT -> establish, CONNECTED
//! peer: CONNECT -> listener -> open at the plane -> Opened -> INCOMING, establish -> ACCEPT
//! ```

use std::os::fd::AsFd;

use millrace_stream::control::{Link, Message, Packet};
use millrace_stream::partition::{Class, ConnectionName, EndName, Opened};
use millrace_stream::{Address, Side};
use rustix::io::Errno;

use super::carriers::{Asked, Asking, Flow, endpoint};
use super::connection::Connection;
use super::{Monitor, route};
use crate::peer::PeerMessage;
use crate::plane::{Command, Open, Token as Number};
use crate::registry::{ClientId, Event, ListenerId, Refusal, Wish, destination};

/// Bytes that are kept for a process that does not read.
const ROOM: u64 = 256 << 10;
/// Ticks for which a process waits for another host's answer.
const ANSWER: u32 = 40;
/// What a process is told whose connection is given up.
const CONNECTION_RESET: u16 = 104;

/// What another monitor wants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) token: Number,
    pub(super) partition: u16,
    pub(super) user: u32,
    pub(super) process: u32,
    pub(super) opened: Opened,
    pub(super) name: ConnectionName,
}

impl Monitor {
    /// Asks the plane for an end, to ask another host for the other one.
    pub(super) fn reach(&mut self, client: ClientId, wish: Wish, host: u128) {
        if self.try_reach(client, wish, host).is_none() {
            self.no_connection(client, wish.serial, Refusal::Kernel);
        }
    }

    fn try_reach(&mut self, client: ClientId, wish: Wish, host: u128) -> Option<()> {
        let (session, partitions, own) = self.peers.as_ref()?.alive(host)?;
        let source = route::toward(destination(wish.peer))?;
        self.may_carry(wish.credentials.user).then_some(())?;
        let link = self.registry.link_across(wish, source);
        let connection = Connection::new(self.geometry).ok()?;
        let name = name(own, host, link);
        let carriers = self.carriers.as_mut()?;
        let partition = carriers.planes.place(&name, partitions);
        let asking = Asking {
            session,
            partition,
            client,
            serial: wish.serial,
            user: wish.credentials.user,
            process: wish.credentials.process,
            link,
            bell: connection.connecting,
            memory: connection.memory.try_clone().ok()?,
            ticks: 0,
            is_asked: false,
            is_given_up: false,
        };
        let token = carriers.next();
        let end = endpoint(
            connection.accepting,
            connection.memory,
            self.geometry,
            Side::Connecting,
        );
        let link = self.peers.as_ref()?.link(session, partition)?;
        carriers
            .tell(partition, open(token, link, end))
            .then_some(())?;
        let flow = Flow::Asking(Box::new(asking));
        carriers.flows.insert(token, wish.credentials.user, flow);
        Some(())
    }

    /// Another host's monitor asks.
    pub(super) fn asked(&mut self, session: u64, request: Request) {
        if let Err(refusal) = self.try_asked(session, request) {
            self.refuse_peer(session, request.token, refusal);
        }
    }

    fn try_asked(&mut self, session: u64, request: Request) -> Result<(), Refusal> {
        let peers = self.peers.as_ref().ok_or(Refusal::Kernel)?;
        let link = peers.link(session, request.partition);
        let plane_link = link.ok_or(Refusal::Kernel)?;
        if !peers.fits(session, &request.name) {
            return Err(Refusal::Errno(Errno::INVAL));
        }
        let to = request.name.accepting.address;
        let is_reachable = !to.ip().to_canonical().is_loopback();
        if !is_reachable || route::source(to.canonical()).is_none() {
            return Err(Refusal::Kernel);
        }
        let from = request.name.connecting.address.canonical();
        // A host speaks for its own addresses alone: programs go by who connects.
        if route::source(from).is_some() || !peers.has(session, from.ip()) {
            return Err(Refusal::Errno(Errno::INVAL));
        }
        let (listener, link) = self.choose(request.user, from, to)?;
        let owner = self.registry.listener(listener).map(|it| it.owner.user);
        let owner = owner.ok_or(Refusal::Kernel)?;
        if !self.may_carry(owner) {
            return Err(Refusal::Kernel);
        }
        let connection = Connection::new(self.geometry).map_err(|_| Refusal::Kernel)?;
        let memory = connection.memory.try_clone();
        let carriers = self.carriers.as_mut().ok_or(Refusal::Kernel)?;
        let asked = Asked {
            session,
            partition: request.partition,
            theirs: request.token,
            listener,
            user: request.user,
            process: request.process,
            link,
            bell: connection.accepting,
            memory: memory.map_err(|_| Refusal::Kernel)?,
            peer: request.opened,
        };
        let token = carriers.next();
        let end = endpoint(
            connection.connecting,
            connection.memory,
            self.geometry,
            Side::Accepting,
        );
        if !carriers.tell(request.partition, open(token, plane_link, end)) {
            return Err(Refusal::Kernel);
        }
        let flow = Flow::Asked(Box::new(asked));
        carriers.flows.insert(token, owner, flow);
        Ok(())
    }

    /// Who is to accept, among those who still listen.
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
            self.happened(Event::Silent { listener });
        }
    }

    /// A plane has opened an end.
    pub(super) fn opened(&mut self, token: Number, opened: Opened) {
        let Some(carriers) = &mut self.carriers else {
            return;
        };
        match carriers.flows.get_mut(token) {
            Some(Flow::Asking(asking)) => {
                let session = asking.session;
                let hosts = self.peers.as_ref().and_then(|peers| peers.hosts(session));
                let Some((own, host)) = hosts else {
                    return self.unopened(token, Refusal::Kernel);
                };
                asking.is_asked = true;
                let message = PeerMessage::Connect {
                    token,
                    partition: asking.partition,
                    user: asking.user,
                    process: asking.process,
                    opened,
                    name: name(own, host, asking.link),
                };
                self.say(session, &message);
            }
            Some(Flow::Asked(_)) => {
                if let Some(Flow::Asked(asked)) = carriers.flows.set_across(token) {
                    self.deliver(token, &asked, opened);
                }
            }
            // It was given up meanwhile, and the plane was told.
            Some(Flow::Within | Flow::Across) | None => {}
        }
    }

    /// Puts a connection of another host into its listener's channel.
    fn deliver(&mut self, token: Number, asked: &Asked, opened: Opened) {
        let incoming = Packet {
            serial: 0,
            message: Message::Incoming {
                link: asked.link,
                user: asked.user,
                process: asked.process,
            },
        };
        let descriptors = [asked.bell.as_fd(), asked.memory.as_fd()];
        let sent = self.put(asked.listener, &incoming, &descriptors);
        let Some(carriers) = &mut self.carriers else {
            return;
        };
        let partition = asked.partition;
        if sent {
            let peer = asked.peer;
            carriers.tell(partition, Command::Establish { token, peer });
            let token = asked.theirs;
            self.say(asked.session, &PeerMessage::Accept { token, opened });
        } else {
            let errno = CONNECTION_RESET;
            carriers.flows.remove(token);
            carriers.tell(partition, Command::Close { token, errno });
            self.refuse_peer(asked.session, asked.theirs, Refusal::Kernel);
        }
    }

    /// Another host has accepted.
    pub(super) fn accepted(&mut self, session: u64, token: Number, peer: Opened) {
        let Some(carriers) = &mut self.carriers else {
            return;
        };
        if !is_asking(carriers.flows.get(token), session) {
            return;
        }
        let Some(Flow::Asking(asking)) = carriers.flows.set_across(token) else {
            return;
        };
        let partition = asking.partition;
        carriers.tell(partition, Command::Establish { token, peer });
        if asking.is_given_up {
            // Both know its number now, and forget it together.
            let errno = CONNECTION_RESET;
            carriers.tell(partition, Command::Close { token, errno });
            return;
        }
        self.registry.connected_across();
        let packet = Packet {
            serial: asking.serial,
            message: Message::Connected(asking.link),
        };
        let descriptors = [asking.bell.as_fd(), asking.memory.as_fd()];
        self.reply(asking.client, &packet, &descriptors);
        self.perform_all();
    }

    /// Another host has refused.
    pub(super) fn refused(&mut self, session: u64, token: Number, errno: u32) {
        let flow = self.carriers.as_ref().and_then(|it| it.flows.get(token));
        if !is_asking(flow, session) {
            return;
        }
        let refusal = match i32::try_from(errno) {
            Ok(errno @ 1..) => Refusal::Errno(Errno::from_raw_os_error(errno)),
            _ => Refusal::Kernel,
        };
        self.unopened(token, refusal);
    }

    /// A connection is over, or there will be none: whoever waits for it hears of it.
    pub(super) fn unopened(&mut self, token: Number, refusal: Refusal) {
        let Some(carriers) = &mut self.carriers else {
            return;
        };
        let errno = CONNECTION_RESET;
        match carriers.flows.remove(token) {
            Some(Flow::Asking(asking)) => {
                carriers.tell(asking.partition, Command::Close { token, errno });
                if !asking.is_given_up {
                    self.no_connection(asking.client, asking.serial, refusal);
                    self.perform_all();
                }
            }
            Some(Flow::Asked(asked)) => {
                carriers.tell(asked.partition, Command::Close { token, errno });
                self.refuse_peer(asked.session, asked.theirs, refusal);
            }
            Some(Flow::Within | Flow::Across) | None => {}
        }
    }

    /// Ends what waits for a stream that is gone.
    pub(super) fn give_up(&mut self, is_gone: impl Fn(u64) -> bool) {
        let waits = |flow: &Flow| match flow {
            Flow::Asking(asking) => is_gone(asking.session),
            Flow::Asked(asked) => is_gone(asked.session),
            Flow::Within | Flow::Across => false,
        };
        for token in self.flows(waits) {
            self.unopened(token, Refusal::Kernel);
        }
    }

    /// Time has passed: processes that have waited for another host for too long are left to the kernel.
    pub(super) fn expire(&mut self) {
        let Some(carriers) = &mut self.carriers else {
            return;
        };
        for flow in carriers.flows.values_mut() {
            if let Flow::Asking(asking) = flow {
                asking.ticks = asking.ticks.saturating_add(1);
            }
        }
        let is_late = |flow: &Flow| match flow {
            Flow::Asking(asking) => asking.ticks > ANSWER && !asking.is_given_up,
            _ => false,
        };
        for token in self.flows(is_late) {
            let flows = self.carriers.as_mut().map(|it| &mut it.flows);
            match flows.and_then(|flows| flows.get_mut(token)) {
                Some(Flow::Asking(asking)) if asking.is_asked => {
                    asking.is_given_up = true;
                    let (client, serial) = (asking.client, asking.serial);
                    self.no_connection(client, serial, Refusal::Kernel);
                }
                _ => self.unopened(token, Refusal::Kernel),
            }
        }
        self.perform_all();
    }

    fn flows(&self, fits: impl Fn(&Flow) -> bool) -> Vec<Number> {
        let all = self.carriers.iter().flat_map(|it| it.flows.iter());
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
        self.say(session, &PeerMessage::Refuse { token, errno });
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

fn open(token: Number, link: u32, endpoint: crate::plane::Endpoint) -> Command {
    Command::Open(Box::new(Open {
        token,
        link,
        endpoint,
        class: Class::DEFAULT,
        rate: None,
        room: ROOM,
    }))
}

/// Whether a process waits for the host at the other end of a stream.
fn is_asking(flow: Option<&Flow>, session: u64) -> bool {
    matches!(flow, Some(Flow::Asking(asking)) if asking.session == session)
}

/// The connection as both monitors call it.
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
