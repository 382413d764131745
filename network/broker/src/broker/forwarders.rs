//! The forwarders, and the descriptors of connections that they open.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use millrace_stream::partition::ConnectionName;
use millrace_stream::{Geometry, Side};
use rustix::event::epoll::EventFlags;

use super::connection::Connection;
use super::poller::{Poller, Token as Watched};
use crate::Result;
use crate::error::system;
use crate::forwarder::{Command, Endpoint, Event, ForwarderPool, Open, Token};
use millrace_stream::partition::Class;

/// Bytes that are buffered for a process that does not read.
const ROOM: u64 = 256 << 10;
/// ECONNRESET, for a process whose connection is abandoned.
const CONNECTION_RESET: u16 = 104;

/// The forwarders, and the descriptors of connections that are not established yet.
#[derive(Debug)]
pub(super) struct Forwarders {
    pool: ForwarderPool,
    kept: HashMap<Token, ProgramEnd>,
}

/// A program's descriptors of a connection.
#[derive(Debug)]
pub(super) struct ProgramEnd {
    pub(super) wakeup: OwnedFd,
    pub(super) memory: OwnedFd,
}

impl Forwarders {
    /// Watches the events of a pool.
    pub(super) fn new(pool: ForwarderPool, poller: &Poller) -> Result<Self> {
        poller
            .add(pool.wakeup_fd(), Watched::Forwarders, EventFlags::IN)
            .map_err(system("watching the forwarders' wake-up fd"))?;
        let kept = HashMap::new();
        Ok(Self { pool, kept })
    }

    /// Ends the watch of a pool whose process has exited.
    pub(super) fn detach(&self, poller: &Poller) {
        let deleted = poller.delete(self.pool.wakeup_fd());
        debug_assert!(deleted.is_ok(), "it is in the epoll until now");
    }

    /// The pending events. The flag is false if the forwarders' process has exited.
    pub(super) fn take_events(&self) -> (Vec<(u16, Event)>, bool) {
        self.pool.take_events()
    }

    /// Sends a command to the forwarder of a partition. False if that forwarder has exited.
    pub(super) fn send(&self, partition: u16, command: Command) -> bool {
        self.pool.forwarder(partition).send(command)
    }

    /// Stops all forwarders.
    pub(super) fn stop(&self) {
        for forwarder in self.pool.forwarders() {
            forwarder.send(Command::Stop);
        }
    }

    /// The partition for a new connection, by the load of the forwarders.
    pub(super) fn choose_partition(&self, name: &ConnectionName, partitions: u16) -> u16 {
        self.pool.choose_partition(name, partitions)
    }

    /// The count of each forwarder's open connections.
    pub(super) fn loads(&self) -> Vec<u64> {
        let forwarders = self.pool.forwarders().iter();
        forwarders.map(|forwarder| forwarder.load()).collect()
    }

    /// Makes a connection, keeps the program's descriptors of it, and asks a forwarder for an endpoint. False if that
    /// fails.
    pub(super) fn open(
        &mut self,
        token: Token,
        partition: u16,
        link: u32,
        application: Side,
        geometry: Geometry,
    ) -> bool {
        let Ok(connection) = Connection::new(geometry) else {
            return false;
        };
        let Ok(memory) = connection.memory.try_clone() else {
            return false;
        };
        let (ours, theirs) = match application {
            Side::Connecting => (connection.connecting, connection.accepting),
            Side::Accepting => (connection.accepting, connection.connecting),
        };
        let open = Command::Open(Box::new(Open {
            token,
            link,
            endpoint: endpoint(theirs, connection.memory, geometry, application),
            class: Class::DEFAULT,
            rate: None,
            room: ROOM,
        }));
        let is_sent = self.send(partition, open);
        if is_sent {
            let wakeup = ours;
            self.kept.insert(token, ProgramEnd { wakeup, memory });
        }
        is_sent
    }

    /// Takes the program's descriptors of a connection.
    pub(super) fn take(&mut self, token: Token) -> Option<ProgramEnd> {
        self.kept.remove(&token)
    }

    /// Closes an endpoint, and drops the program's descriptors.
    pub(super) fn close(&mut self, token: Token, partition: u16) {
        self.kept.remove(&token);
        let errno = CONNECTION_RESET;
        self.send(partition, Command::Close { token, errno });
    }

    /// Hands a connection between two processes to the forwarder with the fewest connections. False if there is none:
    /// both processes get a reset, as their wake-up sockets hang up.
    pub(super) fn forward_locally(
        &self,
        token: Token,
        first: Connection,
        second: Connection,
        geometry: Geometry,
    ) -> bool {
        let ends = Box::new([
            endpoint(first.accepting, first.memory, geometry, Side::Connecting),
            endpoint(second.connecting, second.memory, geometry, Side::Accepting),
        ]);
        let forwarders = self.pool.forwarders().iter();
        let idlest = forwarders.min_by_key(|forwarder| forwarder.load());
        idlest.is_some_and(|forwarder| forwarder.send(Command::Loop { token, ends }))
    }
}

const fn endpoint(
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
