//! The broker's forwarders, and the connections that they forward.

use std::os::fd::OwnedFd;

use millrace_stream::control::{Link, Message, Packet};
use millrace_stream::partition::OpenReply;
use millrace_stream::{Geometry, Side};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_passcred;

use super::connection::Connection;
use super::forward_table::ForwardTable;
use super::{Broker, Token};
use crate::Result;
use crate::error::system;
use crate::forwarder::{Command, Endpoint, Event, ForwarderPool, Token as Number};
use crate::registry::{ClientId, Event as Departed, ListenerId, Refusal};

/// The forwarders and the forwarded connections.
#[derive(Debug)]
pub(super) struct Forwarders {
    pub(super) pool: ForwarderPool,
    last: Number,
    pub(super) flows: ForwardTable,
    /// Connections that have ended.
    pub(super) ended: u64,
    /// Bytes of ended connections: sent by processes of this host, and received by them.
    pub(super) bytes: (u64, u64),
}

/// The state of a forwarded connection.
#[derive(Debug)]
pub(super) enum Flow {
    /// Established between two processes of this host.
    Local,
    /// Requested by a process of this host, not yet established.
    Outgoing(Box<OutgoingConnect>),
    /// Requested by another host's broker, not yet established.
    Incoming(Box<IncomingConnect>),
    /// Established with another host.
    Remote,
}

/// A connection requested by a process of this host.
#[derive(Debug)]
pub(super) struct OutgoingConnect {
    /// The number of the connection to the other broker.
    pub(super) session: u64,
    pub(super) partition: u16,
    pub(super) client: ClientId,
    pub(super) serial: u32,
    pub(super) user: u32,
    pub(super) process: u32,
    pub(super) link: Link,
    pub(super) wakeup: OwnedFd,
    pub(super) memory: OwnedFd,
    /// Ticks since the request.
    pub(super) ticks: u32,
    /// Whether CONNECT was sent: the other broker knows the token then.
    pub(super) is_sent: bool,
    /// Whether the process got its answer by timeout. The token stays reserved until the other broker has answered, as
    /// frames that name it may still arrive.
    pub(super) is_abandoned: bool,
}

/// A connection requested by another host's broker.
#[derive(Debug)]
pub(super) struct IncomingConnect {
    pub(super) session: u64,
    pub(super) partition: u16,
    /// The other broker's token for it.
    pub(super) theirs: Number,
    pub(super) listener: ListenerId,
    pub(super) user: u32,
    pub(super) process: u32,
    pub(super) link: Link,
    pub(super) wakeup: OwnedFd,
    pub(super) memory: OwnedFd,
    pub(super) peer: OpenReply,
}

impl Forwarders {
    /// A new token; tokens are never reused.
    pub(super) const fn next(&mut self) -> Number {
        self.last += 1;
        self.last
    }

    /// Sends a command to the forwarder of a partition. False if that forwarder has exited.
    pub(super) fn send(&self, partition: u16, command: Command) -> bool {
        self.pool.forwarder(partition).send(command)
    }

    /// The count of established connections: within this host, and with other hosts.
    pub(super) fn counts(&self) -> (usize, usize) {
        let within = |flow: &Flow| matches!(flow, Flow::Local);
        let across = |flow: &Flow| matches!(flow, Flow::Remote);
        let count = |of: &dyn Fn(&Flow) -> bool| self.flows.iter().filter(|it| of(it.1)).count();
        (count(&within), count(&across))
    }
}

impl Broker {
    /// Attaches forwarders for connections whose processes share no memory. Their threads run until
    /// [`Broker::stop_forwarders`].
    ///
    /// # Errors
    /// [`ErrorKind::System`](crate::ErrorKind::System) if `epoll_ctl` fails.
    pub fn attach_forwarders(&mut self, pool: ForwarderPool) -> Result<()> {
        let (data, flags) = (Token::Forwarders.data(), epoll::EventFlags::IN);
        epoll::add(&self.epoll, pool.wakeup_fd(), data, flags)
            .map_err(system("watching the forwarders' wake-up fd"))?;
        self.registry.set_forwarders(!pool.forwarders().is_empty());
        self.forwarders = Some(Forwarders {
            pool,
            last: 0,
            flows: ForwardTable::default(),
            ended: 0,
            bytes: (0, 0),
        });
        Ok(())
    }

    /// Stops the forwarders: forwarded connections end in resets.
    pub fn stop_forwarders(&mut self) {
        self.registry.set_forwarders(false);
        for forwarder in self
            .forwarders
            .iter()
            .flat_map(|found| found.pool.forwarders())
        {
            forwarder.send(Command::Stop);
        }
    }

    /// Hands a connection between two processes to the forwarder with the fewest connections. Without a forwarder both
    /// processes get a reset, as their wake-up sockets hang up.
    pub(super) fn forward_locally(&mut self, user: u32, first: Connection, second: Connection) {
        let geometry = self.geometry;
        let Some(forwarders) = &mut self.forwarders else {
            return;
        };
        let token = forwarders.next();
        let ends = Box::new([
            endpoint(first.accepting, first.memory, geometry, Side::Connecting),
            endpoint(second.connecting, second.memory, geometry, Side::Accepting),
        ]);
        let idlest = forwarders.pool.forwarders().iter();
        if let Some(forwarder) = idlest.min_by_key(|forwarder| forwarder.load()) {
            if forwarder.send(Command::Loop { token, ends }) {
                forwarders.flows.insert(token, user, Flow::Local);
            }
        }
    }

    /// Whether the limits allow one more forwarded connection of a user.
    pub(super) fn may_forward(&mut self, user: u32) -> bool {
        let limits = self.registry.settings().limits;
        let forwarders = self.forwarders.as_mut();
        forwarders.is_some_and(|it| it.flows.has_room(user, &limits))
    }

    /// Handles the events of the forwarders.
    pub(super) fn handle_forwarder_events(&mut self) {
        let Some(forwarders) = &self.forwarders else {
            return;
        };
        let (events, is_there) = forwarders.pool.take_events();
        for (_, event) in events {
            match event {
                Event::Joined { link } => self.partition_joined(link),
                Event::Lost { link, loss } => self.partition_lost(link, loss),
                Event::Opened { token, opened } => self.open_completed(token, opened),
                Event::Refused { token } => self.fail_connect(token, Refusal::Kernel),
                Event::Ended { token, bytes } => {
                    if let Some(forwarders) = &mut self.forwarders {
                        forwarders.ended += 1;
                        forwarders.bytes.0 += bytes.0;
                        forwarders.bytes.1 += bytes.1;
                    }
                    self.fail_connect(token, Refusal::Kernel);
                }
                // The broker never sends [`Command::Report`].
                Event::Report(_) => {}
            }
        }
        if !is_there {
            self.forwarders_exited();
        }
    }

    /// Drops the forwarders after their process has exited, and resets all forwarded connections.
    fn forwarders_exited(&mut self) {
        self.registry.set_forwarders(false);
        self.disconnect_all_peers("the forwarder process has exited");
        self.fail_pending(|_| true);
        if let Some(forwarders) = self.forwarders.take() {
            let deleted = epoll::delete(&self.epoll, forwarders.pool.wakeup_fd());
            debug_assert!(deleted.is_ok(), "it is in the epoll until now");
        }
    }

    /// Attaches the forwarders that a process offers. It refuses with EPERM if the process is neither root's nor the
    /// broker's user's, and with EBUSY if forwarders are attached.
    pub(super) fn handle_offer(&mut self, id: ClientId, serial: u32, user: u32, count: u16) {
        let own = rustix::process::geteuid().as_raw();
        let refusal = if ![0, own].contains(&user) {
            Some(Errno::PERM)
        } else if self.forwarders.is_some() {
            Some(Errno::BUSY)
        } else {
            None
        };
        if let Some(errno) = refusal {
            return self.refuse(id, serial, errno);
        }
        let message = Message::Welcome {
            ring_lines: self.registry.settings().ring_lines,
            spin_us_max: self.registry.settings().spin_us_max,
        };
        self.reply(id, &Packet { serial, message }, &[]);
        // The socket carries commands and events from here on; it is no client's.
        let Some(socket) = self.clients.remove(&id) else {
            return;
        };
        // Events of forwarders carry no credentials.
        let disabled = set_socket_passcred(&socket, false);
        debug_assert!(disabled.is_ok(), "the descriptor is a socket");
        let deleted = epoll::delete(&self.epoll, &socket);
        debug_assert!(deleted.is_ok(), "a client is in the epoll");
        self.handle(Departed::Departed { client: id });
        // If `epoll_ctl` fails, the socket is dropped and its process sees the hang-up.
        let _ = self.attach_forwarders(ForwarderPool::ipc(socket, count));
    }
}

pub(super) const fn endpoint(
    wakeup: OwnedFd,
    memory: OwnedFd,
    geometry: Geometry,
    application: Side,
) -> Endpoint {
    Endpoint {
        wakeup,
        memory,
        geometry,
        application,
    }
}
