//! The connections to other hosts' brokers, without any I/O.
//!
//! A peer is *alive* once both sides have authenticated and every partition of the window has joined, until the
//! connection closes or times out, or a partition is lost. Each of these ends the others: the connections are then
//! reset, the addresses go back to the kernel, and the broker connects again.
//!
//! Of two connections between the same hosts, the one initiated by the host with the lower number remains.
//!
//! # Invariants
//! 1. *A closed connection has no further action.* Its partitions are left, and its host's addresses removed, before
//!    another connection of the host joins.
//! 2. *Addresses are registered for an alive peer only*, without this host's own.
//! 3. *Messages are passed on after NAMES*, thus of authenticated peers alone.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use millrace_stream::Side;
use millrace_stream::control::Link;
use millrace_stream::partition::{ConnectionName, EndName};
use serde_json::{Value, json};

use super::peer_addresses::PeerAddresses;
use super::peer_event::{PeerAction, PeerEvent, Purpose};
use super::peer_link::{PeerLink, fit};
use super::unauthenticated::{UNAUTHENTICATED_MAX, eviction_candidate, rate_limit_key};
use crate::forwarder::JoinAt;
use crate::peer::{PeerMessage, Role, Secret, Session, host_number};
use crate::rules::Network;

/// The settings for connections with other hosts.
#[derive(Clone, Debug)]
pub struct PeerSettings {
    /// The name of this host; unique among all hosts.
    pub name: String,
    /// The secret that all hosts share.
    pub secret: Secret,
    /// The address to accept peers at; `None` accepts none.
    pub listen: Option<SocketAddr>,
    /// The addresses of peers to connect to.
    pub peers: Vec<SocketAddr>,
    /// The windows: the name of the host at the other end (`None` for any host) and the path.
    pub windows: Vec<(Option<String>, PathBuf)>,
    /// The networks whose addresses a host may announce: the host's name (`None` for any host) and the network. An
    /// empty list admits every address that means one other host.
    pub addresses: Vec<(Option<String>, Network)>,
    /// The number of partitions of a window; the lower number of both hosts applies.
    pub partitions: u16,
    /// Fills bytes from a cryptographic random generator.
    pub fill_random: fn(&mut [u8]),
}

/// The connections to peers, and the addresses to connect to.
#[derive(Debug)]
pub(super) struct Peers {
    settings: PeerSettings,
    own: u128,
    addresses: Vec<IpAddr>,
    connections: BTreeMap<u64, PeerConnection>,
    dials: Vec<Dial>,
    last_link: u32,
    ticks: u32,
    has_forwarders: bool,
}

/// A connection to a peer.
#[derive(Debug)]
struct PeerConnection {
    session: Session,
    dial: Option<usize>,
    /// The source of an accepted connection.
    from: Option<IpAddr>,
    /// Ticks since the last bytes were received.
    quiet: u32,
    /// Ticks since the connection was made or the window was joined.
    age: u32,
    /// Whether NAMES was sent.
    is_named: bool,
    peer_link: Option<PeerLink>,
}

/// A peer to connect to.
#[derive(Debug)]
struct Dial {
    address: SocketAddr,
    /// The host number that last answered at this address.
    host: Option<u128>,
    connection: Option<u64>,
    /// Ticks before the next attempt.
    wait: u32,
    /// The reason for which the last connection ended.
    why: String,
}

/// The way to a host that is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route {
    /// The number of the connection.
    pub(super) session: u64,
    pub(super) partitions: u16,
    /// The numbers of this host and the other one.
    hosts: (u128, u128),
}

/// Ticks between two heartbeats, address checks, and connect attempts.
const BEAT_TICKS: u32 = 4;
/// Ticks after which a peer is lost that sends nothing, or does not join the window.
const SILENCE_TICKS: u32 = 24;
/// Ticks after which an unauthenticated connection is closed.
const AUTHENTICATE_TICKS: u32 = 8;
/// The time without a heartbeat after which a peer's partition is lost, in nanoseconds.
const LOST_AFTER_NS: u64 = 5_000_000_000;

impl Peers {
    /// No connections yet; the first are made by the actions. `addresses` are this host's own.
    pub(super) fn new(
        settings: PeerSettings,
        addresses: Vec<IpAddr>,
        has_forwarders: bool,
        actions: &mut Vec<PeerAction>,
    ) -> Self {
        let dial = |address: &SocketAddr| Dial {
            address: *address,
            host: None,
            connection: None,
            wait: 0,
            why: String::new(),
        };
        let mut peers = Self {
            own: host_number(&settings.name),
            addresses,
            connections: BTreeMap::new(),
            dials: settings.peers.iter().map(dial).collect(),
            last_link: 0,
            ticks: 0,
            has_forwarders,
            settings,
        };
        peers.dial(actions);
        peers
    }

    /// Applies an event, and appends the resulting actions. Events of closed connections change nothing.
    pub(super) fn handle(&mut self, event: PeerEvent, actions: &mut Vec<PeerAction>) {
        match event {
            PeerEvent::Tick => self.tick(actions),
            PeerEvent::Addresses(addresses) => self.renew(addresses, actions),
            PeerEvent::Dialled { dial, connected } => self.dialled(dial, connected),
            PeerEvent::Accepted { number, from } => {
                let from = from.map(rate_limit_key);
                self.insert(number, Role::Responder, None, from);
                self.evict_unauthenticated(actions);
            }
            PeerEvent::Received { number, bytes } => self.receive(number, &bytes, actions),
            PeerEvent::Closed { number, why } => self.disconnect(number, &why, actions),
            PeerEvent::Measured {
                number,
                purpose,
                size,
            } => self.measured(number, purpose, size, actions),
            PeerEvent::Taken { number, addresses } => {
                if let Some(peer_link) = self.peer_link_mut(number) {
                    peer_link.addresses.refuse_taken(&addresses);
                }
            }
            PeerEvent::Send { number, message } => self.send(number, &message, actions),
            PeerEvent::Joined { link } => self.joined(link, actions),
            PeerEvent::Lost { link, loss } => {
                if let Some(number) = self.of_link(link) {
                    self.disconnect(number, &format!("window lost: {loss:?}"), actions);
                }
            }
            PeerEvent::ForwardersAttached => self.has_forwarders = true,
            PeerEvent::ForwardersExited => {
                self.has_forwarders = false;
                for number in self.numbers() {
                    self.disconnect(number, "the forwarder process has exited", actions);
                }
            }
        }
    }

    /// The session of a connection, whose output is to be written.
    pub(super) fn session(&mut self, number: u64) -> Option<&mut Session> {
        Some(&mut self.connections.get_mut(&number)?.session)
    }

    /// The way to a host, if it is alive.
    pub(super) fn route(&self, host: u128) -> Option<Route> {
        let (session, peer_link) = self
            .of_host(host)
            .filter(|(_, peer_link)| peer_link.is_alive())?;
        Some(Route {
            session,
            partitions: peer_link.partitions,
            hosts: (self.own, host),
        })
    }

    /// The forwarders' number of a partition.
    pub(super) fn link(&self, number: u64, partition: u16) -> Option<u32> {
        let peer_link = self.peer_link(number)?;
        (partition < peer_link.partitions).then(|| peer_link.first_link + u32::from(partition))
    }

    /// Whether a connection name is from that peer to this host.
    pub(super) fn fits(&self, number: u64, name: &ConnectionName) -> bool {
        self.peer_link(number).is_some_and(|peer_link| {
            name.accepting.host == self.own && name.connecting.host == peer_link.host
        })
    }

    /// Whether the address was accepted for that peer.
    pub(super) fn has(&self, number: u64, ip: IpAddr) -> bool {
        self.peer_link(number)
            .is_some_and(|peer_link| peer_link.addresses.accepted.contains(&ip))
    }

    /// The report on peers, connected and not.
    pub(super) fn report(&self) -> Value {
        let mut all: Vec<Value> = Vec::new();
        for connection in self.connections.values() {
            if let Some(peer_link) = &connection.peer_link {
                let refused = peer_link.addresses.refused.iter();
                let refused = refused.map(|(ip, why)| json!({"address": ip, "why": why}));
                all.push(json!({
                    "host": connection.session.peer(),
                    "alive": peer_link.is_alive(),
                    "partitions": peer_link.partitions,
                    "ring_lines": peer_link.ring_lines,
                    "addresses": peer_link.addresses.accepted,
                    "refused_addresses": refused.collect::<Vec<Value>>(),
                    "window": peer_link.window,
                }));
            }
        }
        for dial in &self.dials {
            let is_connected = dial.connection.and_then(|it| self.peer_link(it)).is_some();
            let is_known = dial.host.is_some_and(|host| self.of_host(host).is_some());
            if !is_connected && !is_known {
                let address = dial.address.to_string();
                all.push(json!({"address": address, "alive": false, "why": dial.why}));
            }
        }
        all.into()
    }

    /// Connects to configured peers that are not connected.
    fn dial(&mut self, actions: &mut Vec<PeerAction>) {
        for index in 0..self.dials.len() {
            let met = self.dials[index].host;
            let is_connected = met.is_some_and(|host| self.of_host(host).is_some());
            let dial = &mut self.dials[index];
            dial.wait = dial.wait.saturating_sub(1);
            if is_connected || dial.connection.is_some() || dial.wait > 0 {
                continue;
            }
            dial.wait = BEAT_TICKS;
            let address = dial.address;
            actions.push(PeerAction::Dial {
                dial: index,
                address,
            });
        }
    }

    fn dialled(&mut self, dial: usize, connected: Result<u64, String>) {
        match connected {
            Ok(number) => {
                self.dials[dial].connection = Some(number);
                self.insert(number, Role::Initiator, Some(dial), None);
            }
            Err(why) => self.dials[dial].why = why,
        }
    }

    fn insert(&mut self, number: u64, role: Role, dial: Option<usize>, from: Option<IpAddr>) {
        let mut nonce = [0; 32];
        (self.settings.fill_random)(&mut nonce);
        let secret = self.settings.secret.clone();
        let connection = PeerConnection {
            session: Session::new(role, &self.settings.name, secret, nonce),
            dial,
            from,
            quiet: 0,
            age: 0,
            is_named: false,
            peer_link: None,
        };
        self.connections.insert(number, connection);
    }

    /// Closes one unauthenticated connection if there are too many.
    fn evict_unauthenticated(&mut self, actions: &mut Vec<PeerAction>) {
        let connections = self.connections.iter();
        let unauthenticated = connections.filter(|(_, it)| it.is_unauthenticated());
        let unauthenticated: Vec<(u64, Option<IpAddr>)> = unauthenticated
            .map(|(number, connection)| (*number, connection.from))
            .collect();
        if unauthenticated.len() <= UNAUTHENTICATED_MAX {
            return;
        }
        if let Some(number) = eviction_candidate(&unauthenticated) {
            let why = "too many unauthenticated peers (limit 64)";
            self.disconnect(number, why, actions);
        }
    }

    fn receive(&mut self, number: u64, bytes: &[u8], actions: &mut Vec<PeerAction>) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        connection.quiet = 0;
        let mut messages = Vec::new();
        let received = connection.session.receive(bytes, &mut messages);
        self.send_names_once(number, actions);
        for message in messages {
            self.take(number, message, actions);
        }
        if let Err(violation) = received {
            self.disconnect(number, &violation.to_string(), actions);
        }
    }

    fn take(&mut self, number: u64, message: PeerMessage, actions: &mut Vec<PeerAction>) {
        match message {
            PeerMessage::Names {
                partitions,
                window,
                addresses,
            } => self.names(number, partitions, window, addresses, actions),
            PeerMessage::Beat => {}
            message if self.peer_link(number).is_some() => {
                actions.push(PeerAction::Message { number, message });
            }
            _ => self.disconnect(number, "protocol error: message before NAMES", actions),
        }
    }

    /// Sends a message to a peer. A peer that does not read is disconnected.
    fn send(&mut self, number: u64, message: &PeerMessage, actions: &mut Vec<PeerAction>) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        match connection.session.send(message) {
            Ok(()) => actions.push(PeerAction::Flush { number }),
            Err(violation) => self.disconnect(number, &violation.to_string(), actions),
        }
    }

    /// Sends NAMES once: the initiator sends it after the greeting, the responder after the initiator has
    /// authenticated.
    fn send_names_once(&mut self, number: u64, actions: &mut Vec<PeerAction>) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        let session = &connection.session;
        let is_turn = session.role() == Role::Initiator || session.is_proven();
        if session.peer().is_some() && is_turn && !connection.is_named {
            connection.is_named = true;
            self.send_names(number, actions);
        }
    }

    fn send_names(&mut self, number: u64, actions: &mut Vec<PeerAction>) {
        self.measure(number, self.window(number), Purpose::Announce, actions);
    }

    /// Handles NAMES. The first joins the window; later ones update the peer's addresses.
    fn names(
        &mut self,
        number: u64,
        partitions: u16,
        size: u64,
        addresses: Vec<IpAddr>,
        actions: &mut Vec<PeerAction>,
    ) {
        if !self.connections.contains_key(&number) {
            return;
        }
        if let Some(peer_link) = self.peer_link_mut(number) {
            peer_link.addresses = PeerAddresses::new(addresses);
            return self.announce(number, actions);
        }
        let purpose = Purpose::Join {
            partitions,
            size,
            addresses,
        };
        self.measure(number, self.joinable(number), purpose, actions);
    }

    fn measure(
        &mut self,
        number: u64,
        path: Result<PathBuf, String>,
        purpose: Purpose,
        actions: &mut Vec<PeerAction>,
    ) {
        match path {
            Ok(path) => actions.push(PeerAction::Measure {
                number,
                path,
                purpose,
            }),
            Err(why) => self.disconnect(number, &why, actions),
        }
    }

    fn measured(
        &mut self,
        number: u64,
        purpose: Purpose,
        size: Result<u64, String>,
        actions: &mut Vec<PeerAction>,
    ) {
        let own_size = match size {
            Ok(size) => size,
            Err(why) => return self.disconnect(number, &why, actions),
        };
        match purpose {
            Purpose::Announce => {
                let message = PeerMessage::Names {
                    partitions: self.settings.partitions,
                    window: own_size,
                    addresses: self.addresses.clone(),
                };
                self.send(number, &message, actions);
            }
            Purpose::Join {
                partitions,
                size,
                addresses,
            } => {
                if self.peer_link(number).is_some() {
                    return self.names(number, partitions, size, addresses, actions);
                }
                let joined = self.join(number, partitions, own_size.min(size), addresses, actions);
                if let Err(why) = joined {
                    self.disconnect(number, &why, actions);
                }
            }
        }
    }

    /// The path of the window that a connection may join.
    fn joinable(&self, number: u64) -> Result<PathBuf, String> {
        if !self.has_forwarders {
            return Err(
                "no forwarders are attached: use --forwarders 1, or run `millrace sockets forwarder`"
                    .to_owned(),
            );
        }
        let session = self.connections.get(&number).map(|it| &it.session);
        let Some((name, role)) = session.and_then(|it| Some((it.peer()?, it.role()))) else {
            return Err("the peer has disconnected".to_owned());
        };
        let host = host_number(name);
        if self.own == host {
            return Err(
                "the peer has the same name as this host: give each host a different --host"
                    .to_owned(),
            );
        }
        let path = self.window(number)?;
        let is_first = (self.own < host) == (role == Role::Initiator);
        if self.of_host(host).is_some() && !is_first {
            return Err("a connection to this host exists already".to_owned());
        }
        Ok(path)
    }

    /// Joins a window of `size` bytes.
    fn join(
        &mut self,
        number: u64,
        theirs: u16,
        size: u64,
        names: Vec<IpAddr>,
        actions: &mut Vec<PeerAction>,
    ) -> Result<(), String> {
        let path = self.joinable(number)?;
        let host = host_number(self.name(number).unwrap_or_default());
        let partitions = theirs.min(self.settings.partitions).max(1);
        let geometry = fit(size, partitions)
            .ok_or_else(|| "the window is too small: a partition needs 16 KiB".to_owned())?;
        // The old partitions are left before the new ones are joined.
        if let Some((old, _)) = self.of_host(host) {
            let why = "replaced by a new connection of the same host";
            self.disconnect(old, why, actions);
        }
        let mut drawn = [0; 8];
        (self.settings.fill_random)(&mut drawn);
        let first_link = self.last_link;
        self.last_link = first_link.wrapping_add(u32::from(partitions));
        let side = if self.own < host {
            Side::Connecting
        } else {
            Side::Accepting
        };
        for index in 0..partitions {
            actions.push(PeerAction::Join(Box::new(JoinAt {
                link: first_link.wrapping_add(u32::from(index)),
                path: path.clone(),
                geometry,
                index,
                side,
                incarnation: u64::from_le_bytes(drawn) | 1,
                lost_after_ns: LOST_AFTER_NS,
            })));
        }
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.peer_link = Some(PeerLink {
                host,
                window: path,
                partitions,
                ring_lines: geometry.ring_lines,
                first_link,
                joined: 0,
                addresses: PeerAddresses::new(names),
            });
            connection.age = 0;
        }
        Ok(())
    }

    /// Counts a partition in which the peer has answered.
    fn joined(&mut self, link: u32, actions: &mut Vec<PeerAction>) {
        let Some(number) = self.of_link(link) else {
            return;
        };
        if let Some(peer_link) = self.peer_link_mut(number) {
            peer_link.joined += 1;
        }
        self.announce(number, actions);
    }

    /// Registers the accepted addresses of an alive peer.
    fn announce(&mut self, number: u64, actions: &mut Vec<PeerAction>) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        let (Some(name), Some(peer_link)) = (connection.session.peer(), &mut connection.peer_link)
        else {
            return;
        };
        if !peer_link.is_alive() {
            return;
        }
        let addresses = &mut peer_link.addresses;
        addresses.check(&self.addresses, name, &self.settings.addresses);
        actions.push(PeerAction::HostUp {
            number,
            host: peer_link.host,
            addresses: addresses.accepted.clone(),
        });
    }

    /// Repeats [`Peers::announce`] for all peers, after a peer has left or this host's addresses have changed.
    fn announce_all(&mut self, actions: &mut Vec<PeerAction>) {
        for number in self.numbers() {
            self.announce(number, actions);
        }
    }

    /// Handles a tick: heartbeats, timeouts, address checks, and connect attempts.
    fn tick(&mut self, actions: &mut Vec<PeerAction>) {
        self.ticks = self.ticks.wrapping_add(1);
        let is_beat = self.ticks % BEAT_TICKS == 0;
        let mut beats = Vec::new();
        let mut lost = Vec::new();
        for (number, connection) in &mut self.connections {
            connection.quiet += 1;
            connection.age += 1;
            let is_late = connection.age > SILENCE_TICKS && !connection.is_alive();
            let is_unauthenticated =
                connection.is_unauthenticated() && connection.age > AUTHENTICATE_TICKS;
            if connection.quiet > SILENCE_TICKS || is_late || is_unauthenticated {
                lost.push(*number);
            } else if is_beat && connection.peer_link.is_some() {
                beats.push(*number);
            }
        }
        for number in lost {
            self.disconnect(
                number,
                "timeout: the peer sent nothing for 6 s, or did not authenticate in 2 s",
                actions,
            );
        }
        for number in beats {
            self.send(number, &PeerMessage::Beat, actions);
        }
        if is_beat {
            actions.push(PeerAction::ReadAddresses);
        }
        self.dial(actions);
    }

    /// Takes this host's addresses, and announces them to all peers if they have changed.
    fn renew(&mut self, addresses: Vec<IpAddr>, actions: &mut Vec<PeerAction>) {
        if addresses == self.addresses {
            return;
        }
        self.addresses = addresses;
        for number in self.numbers() {
            if self.peer_link(number).is_some() {
                self.send_names(number, actions);
            }
        }
        self.announce_all(actions);
    }

    /// Closes a connection to a peer, and resets the connections through its window.
    fn disconnect(&mut self, number: u64, why: &str, actions: &mut Vec<PeerAction>) {
        let Some(connection) = self.connections.remove(&number) else {
            return;
        };
        let dial = connection.dial.and_then(|index| self.dials.get_mut(index));
        if let Some(dial) = dial {
            dial.connection = None;
            why.clone_into(&mut dial.why);
            let met = connection.peer_link.as_ref().map(|it| it.host);
            dial.host = met.or(dial.host);
        }
        actions.push(PeerAction::Close { number });
        if let Some(peer_link) = connection.peer_link {
            let host = peer_link.host;
            actions.push(PeerAction::HostDown { host });
            // Its addresses are free for other peers.
            self.announce_all(actions);
            for partition in 0..peer_link.partitions {
                let link = peer_link.first_link.wrapping_add(u32::from(partition));
                actions.push(PeerAction::Leave { partition, link });
            }
        }
        actions.push(PeerAction::Fail { number });
    }

    /// The path of the window to a peer.
    fn window(&self, number: u64) -> Result<PathBuf, String> {
        let name = self.name(number).unwrap_or_default();
        let windows = &self.settings.windows;
        let own = windows.iter().find(|(of, _)| of.as_deref() == Some(name));
        let any = || windows.iter().find(|(of, _)| of.is_none());
        let Some((_, path)) = own.or_else(any) else {
            return Err(format!(
                "no --window is configured for the host {}",
                name.escape_debug()
            ));
        };
        let host = host_number(name);
        let is_taken = |peer_link: &PeerLink| peer_link.window == *path && peer_link.host != host;
        let connections = self.connections.values();
        let mut peer_links = connections.filter_map(|it| it.peer_link.as_ref());
        if peer_links.any(is_taken) {
            return Err(format!(
                "the window {} is in use with another host",
                path.display()
            ));
        }
        Ok(path.clone())
    }

    fn numbers(&self) -> Vec<u64> {
        self.connections.keys().copied().collect()
    }

    /// The name that a peer has given.
    fn name(&self, number: u64) -> Option<&str> {
        self.connections.get(&number)?.session.peer()
    }

    /// The connection to a host, and its window.
    fn of_host(&self, host: u128) -> Option<(u64, &PeerLink)> {
        self.connections.iter().find_map(|(number, connection)| {
            let peer_link = connection.peer_link.as_ref()?;
            (peer_link.host == host).then_some((*number, peer_link))
        })
    }

    fn of_link(&self, link: u32) -> Option<u64> {
        let has = |it: &PeerConnection| it.peer_link.as_ref().is_some_and(|it| it.has(link));
        let found = self.connections.iter().find(|(_, it)| has(it));
        found.map(|(number, _)| *number)
    }

    fn peer_link(&self, number: u64) -> Option<&PeerLink> {
        self.connections.get(&number)?.peer_link.as_ref()
    }

    fn peer_link_mut(&mut self, number: u64) -> Option<&mut PeerLink> {
        self.connections.get_mut(&number)?.peer_link.as_mut()
    }
}

impl PeerConnection {
    /// Whether an accepted connection has not authenticated yet.
    fn is_unauthenticated(&self) -> bool {
        self.dial.is_none() && !self.session.is_proven()
    }

    fn is_alive(&self) -> bool {
        self.peer_link.as_ref().is_some_and(PeerLink::is_alive)
    }
}

impl Route {
    /// The name of a connection to the host, between both brokers.
    pub(super) fn name(&self, link: Link) -> ConnectionName {
        let (own, host) = self.hosts;
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
}

#[cfg(test)]
mod tests;
