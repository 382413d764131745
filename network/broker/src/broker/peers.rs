//! The connections to other hosts' brokers.
//!
//! A peer is *alive* once both sides have authenticated and every partition of the window has joined, until the
//! connection closes or times out, or a partition is lost. Each of these ends the others: the connections are then
//! reset, the addresses go back to the kernel, and the broker connects again.
//!
//! Of two connections between the same hosts, the one initiated by the host with the lower number remains.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use millrace_stream::partition::{ConnectionName, SessionError};
use rustix::event::epoll::{self, EventFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use serde_json::{Value, json};

use super::peer_link::PeerLink;
use super::peer_listener::PeerListener;
use super::peer_socket::{Input, PeerSocket, listener};
use super::remote_connections::Request;
use super::{Broker, Token, addresses};
use crate::Result;
use crate::error::system;
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
    pub(super) settings: PeerSettings,
    pub(super) own: u128,
    pub(super) addresses: Vec<IpAddr>,
    pub(super) peer_listener: Option<PeerListener>,
    timer: OwnedFd,
    pub(super) streams: BTreeMap<u64, PeerConnection>,
    dials: Vec<Dial>,
    last_stream: u64,
    pub(super) last_link: u32,
    ticks: u32,
}

/// A connection to a peer.
#[derive(Debug)]
pub(super) struct PeerConnection {
    pub(super) socket: PeerSocket,
    pub(super) dial: Option<usize>,
    /// The source address of an accepted connection.
    pub(super) from: Option<IpAddr>,
    /// Ticks since the last bytes were received.
    quiet: u32,
    /// Ticks since the connection was made or the window was joined.
    pub(super) age: u32,
    /// Whether NAMES was sent.
    pub(super) is_named: bool,
    pub(super) peer_link: Option<PeerLink>,
}

/// A peer to connect to.
#[derive(Debug)]
struct Dial {
    address: SocketAddr,
    /// The host number that last answered at this address.
    host: Option<u128>,
    stream: Option<u64>,
    /// Ticks before the next attempt.
    wait: u32,
    /// The reason for which the last connection ended.
    why: String,
}

const TICK_NS: i64 = 250_000_000;
/// Ticks between two heartbeats, address checks, and connect attempts.
const BEAT_TICKS: u32 = 4;
/// Ticks after which a peer is lost that sends nothing, or does not join the window.
const SILENCE_TICKS: u32 = 24;
/// Ticks after which an unauthenticated connection is closed.
const AUTHENTICATE_TICKS: u32 = 8;
/// Reads of one connection in a turn.
const CHUNKS_PER_TURN: usize = 8;

impl Broker {
    /// Accepts and connects to other hosts. Forwarders must be attached ([`Broker::attach_forwarders`]).
    ///
    /// # Errors
    /// [`ErrorKind::System`](crate::ErrorKind::System) if a socket or a timer cannot be created.
    pub fn enable_peers(&mut self, settings: PeerSettings) -> Result<()> {
        let attempted = || "creating the peer timer".to_owned();
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, flags).map_err(system(attempted()))?;
        let tick = Timespec {
            tv_sec: 0,
            tv_nsec: TICK_NS,
        };
        let times = Itimerspec {
            it_interval: tick,
            it_value: tick,
        };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &times).map_err(system(attempted()))?;
        epoll::add(&self.epoll, &timer, Token::Tick.data(), EventFlags::IN)
            .map_err(system(attempted()))?;
        let listener = settings.listen.map(|address| {
            let attempted = || format!("listening for peers at {address}");
            let socket = listener(address).map_err(system(attempted()))?;
            epoll::add(&self.epoll, &socket, Token::Dialled.data(), EventFlags::IN)
                .map_err(system(attempted()))?;
            Ok(socket)
        });
        let dial = |address: &SocketAddr| Dial {
            address: *address,
            host: None,
            stream: None,
            wait: 0,
            why: String::new(),
        };
        self.peers = Some(Peers {
            own: host_number(&settings.name),
            addresses: addresses::own(),
            peer_listener: listener.transpose()?.map(PeerListener::new),
            timer,
            streams: BTreeMap::new(),
            dials: settings.peers.iter().map(dial).collect(),
            last_stream: 0,
            last_link: 0,
            ticks: 0,
            settings,
        });
        self.dial();
        Ok(())
    }

    /// Connects to configured peers that are not connected.
    fn dial(&mut self) {
        let count = self.peers.as_ref().map_or(0, |peers| peers.dials.len());
        for index in 0..count {
            let Some(peers) = &mut self.peers else {
                return;
            };
            let met = peers.dials[index].host;
            let is_connected = met.is_some_and(|host| peers.of_host(host).is_some());
            let dial = &mut peers.dials[index];
            dial.wait = dial.wait.saturating_sub(1);
            if is_connected || dial.stream.is_some() || dial.wait > 0 {
                continue;
            }
            dial.wait = BEAT_TICKS;
            let address = dial.address;
            match PeerSocket::dial(address, peers.session(Role::Initiator)) {
                Ok(socket) => self.watch(socket, Some(index), None),
                Err(errno) => peers.dials[index].why = errno.to_string(),
            }
        }
    }

    pub(super) fn watch(&mut self, socket: PeerSocket, dial: Option<usize>, from: Option<IpAddr>) {
        let Some(peers) = &mut self.peers else {
            return;
        };
        peers.last_stream += 1;
        let number = peers.last_stream;
        let flags = EventFlags::IN | EventFlags::OUT;
        if epoll::add(&self.epoll, &socket, Token::Peer(number).data(), flags).is_err() {
            return;
        }
        if let Some(dial) = dial {
            peers.dials[dial].stream = Some(number);
        }
        let stream = PeerConnection {
            socket,
            dial,
            from,
            quiet: 0,
            age: 0,
            is_named: false,
            peer_link: None,
        };
        peers.streams.insert(number, stream);
    }

    /// Serves a connection that is readable, writable or closed.
    pub(super) fn serve_peer(&mut self, number: u64, _flags: EventFlags) {
        self.flush(number);
        for _ in 0..CHUNKS_PER_TURN {
            let Some(stream) = self.stream(number) else {
                return;
            };
            let bytes = match stream.socket.receive() {
                Ok(Input::Bytes(bytes)) => bytes,
                Ok(Input::Nothing) => return,
                Ok(Input::End) => {
                    return self.disconnect_peer(number, "the peer closed the connection");
                }
                Err(errno) => return self.disconnect_peer(number, &errno.to_string()),
            };
            stream.quiet = 0;
            let mut messages = Vec::new();
            let heard = stream.socket.session.receive(&bytes, &mut messages);
            self.send_names_once(number);
            for message in messages {
                self.handle_peer_message(number, message);
            }
            if let Err(violation) = heard {
                return self.disconnect_peer(number, &violation.to_string());
            }
        }
    }

    fn handle_peer_message(&mut self, number: u64, message: PeerMessage) {
        let is_joined = self.stream(number).is_some_and(|it| it.peer_link.is_some());
        match message {
            PeerMessage::Names {
                partitions,
                window,
                addresses,
            } => self.peer_names(number, partitions, window, addresses),
            PeerMessage::Beat => {}
            _ if !is_joined => self.disconnect_peer(number, "protocol error: message before NAMES"),
            PeerMessage::Connect {
                token,
                partition,
                user,
                process,
                opened,
                name,
            } => self.peer_connects(
                number,
                Request {
                    token,
                    partition,
                    user,
                    process,
                    opened,
                    name,
                },
            ),
            PeerMessage::Accept { token, opened } => self.peer_accepts(number, token, opened),
            PeerMessage::Refuse { token, errno } => self.peer_refuses(number, token, errno),
        }
    }

    /// Sends a message to a peer. A peer that does not read is disconnected.
    pub(super) fn send_to_peer(&mut self, number: u64, message: &PeerMessage) {
        let Some(stream) = self.stream(number) else {
            return;
        };
        match stream.socket.session.send(message) {
            Ok(()) => self.flush(number),
            Err(violation) => self.disconnect_peer(number, &violation.to_string()),
        }
    }

    fn flush(&mut self, number: u64) {
        let Some(stream) = self.stream(number) else {
            return;
        };
        let flags = match stream.socket.flush() {
            Ok(true) => EventFlags::IN | EventFlags::OUT,
            Ok(false) => EventFlags::IN,
            Err(errno) => return self.disconnect_peer(number, &errno.to_string()),
        };
        let data = Token::Peer(number).data();
        if let Some(stream) = self.peers.as_ref().and_then(|it| it.streams.get(&number)) {
            let changed = epoll::modify(&self.epoll, &stream.socket, data, flags);
            debug_assert!(changed.is_ok(), "a stream is in the epoll while it is open");
        }
    }

    pub(super) fn stream(&mut self, number: u64) -> Option<&mut PeerConnection> {
        self.peers.as_mut()?.streams.get_mut(&number)
    }

    /// Runs the timer: heartbeats, timeouts, address checks, and connect attempts.
    pub(super) fn tick(&mut self) {
        let Some(peers) = &mut self.peers else {
            return;
        };
        let _ = rustix::io::read(&peers.timer, &mut [0; 8]);
        peers.ticks = peers.ticks.wrapping_add(1);
        let is_beat = peers.ticks % BEAT_TICKS == 0;
        let mut beats = Vec::new();
        let mut lost = Vec::new();
        for (number, stream) in &mut peers.streams {
            stream.quiet += 1;
            stream.age += 1;
            let is_late = stream.age > SILENCE_TICKS && !stream.is_alive();
            let is_unauthenticated = stream.is_unauthenticated() && stream.age > AUTHENTICATE_TICKS;
            if stream.quiet > SILENCE_TICKS || is_late || is_unauthenticated {
                lost.push(*number);
            } else if is_beat && stream.peer_link.is_some() {
                beats.push(*number);
            }
        }
        let is_changed = is_beat && peers.renew();
        let names = beats.clone();
        for number in lost {
            self.disconnect_peer(
                number,
                "timeout: the peer sent nothing for 6 s, or did not authenticate in 2 s",
            );
        }
        for number in beats {
            self.send_to_peer(number, &PeerMessage::Beat);
        }
        if is_changed {
            names.into_iter().for_each(|number| self.send_names(number));
            self.announce_all();
        }
        self.resume_accepting();
        self.expire();
        self.dial();
    }

    /// Closes a connection to a peer, and resets the connections through its window.
    pub(super) fn disconnect_peer(&mut self, number: u64, why: &str) {
        let Some(peers) = &mut self.peers else {
            return;
        };
        let Some(stream) = peers.streams.remove(&number) else {
            return;
        };
        if let Some(dial) = stream.dial.and_then(|index| peers.dials.get_mut(index)) {
            dial.stream = None;
            why.clone_into(&mut dial.why);
            let met = stream.peer_link.as_ref().map(|peer_link| peer_link.host);
            dial.host = met.or(dial.host);
        }
        drop(stream.socket);
        if let Some(peer_link) = stream.peer_link {
            self.leave_partitions(&peer_link);
        }
        self.fail_pending(|session| session == number);
    }

    /// Closes the connections to all peers.
    pub(super) fn disconnect_all_peers(&mut self, why: &str) {
        let streams = self.peers.as_ref().map(|peers| &peers.streams);
        let numbers: Vec<u64> = streams
            .into_iter()
            .flat_map(|it| it.keys())
            .copied()
            .collect();
        for number in numbers {
            self.disconnect_peer(number, why);
        }
    }

    /// Handles the loss of a partition: disconnects its peer.
    pub(super) fn partition_lost(&mut self, link: u32, loss: SessionError) {
        if let Some(number) = self.peers.as_ref().and_then(|it| it.of_link(link)) {
            self.disconnect_peer(number, &format!("window lost: {loss:?}"));
        }
    }
}

impl Peers {
    pub(super) fn session(&self, role: Role) -> Session {
        let mut nonce = [0; 32];
        (self.settings.fill_random)(&mut nonce);
        Session::new(
            role,
            &self.settings.name,
            self.settings.secret.clone(),
            nonce,
        )
    }

    /// Reads this host's addresses again. True if they have changed.
    fn renew(&mut self) -> bool {
        let now = addresses::own();
        let is_changed = now != self.addresses;
        self.addresses = now;
        is_changed
    }

    /// The connection to a host, and its window.
    pub(super) fn of_host(&self, host: u128) -> Option<(u64, &PeerLink)> {
        self.streams.iter().find_map(|(number, stream)| {
            let peer_link = stream.peer_link.as_ref()?;
            (peer_link.host == host).then_some((*number, peer_link))
        })
    }

    pub(super) fn of_link(&self, link: u32) -> Option<u64> {
        let has =
            |stream: &PeerConnection| stream.peer_link.as_ref().is_some_and(|it| it.has(link));
        let found = self.streams.iter().find(|(_, stream)| has(stream));
        found.map(|(number, _)| *number)
    }

    pub(super) fn peer_link(&self, number: u64) -> Option<&PeerLink> {
        self.streams.get(&number)?.peer_link.as_ref()
    }

    /// For a host that is alive: the connection's number, its partitions, and this host's number.
    pub(super) fn alive(&self, host: u128) -> Option<(u64, u16, u128)> {
        let (number, peer_link) = self
            .of_host(host)
            .filter(|(_, peer_link)| peer_link.is_alive())?;
        Some((number, peer_link.partitions, self.own))
    }

    /// The forwarders' number of a partition.
    pub(super) fn link(&self, number: u64, partition: u16) -> Option<u32> {
        let peer_link = self.peer_link(number)?;
        (partition < peer_link.partitions).then(|| peer_link.first_link + u32::from(partition))
    }

    /// Whether a connection name is from that peer to this host.
    pub(super) fn fits(&self, number: u64, name: &ConnectionName) -> bool {
        let hosts = (name.accepting.host, name.connecting.host);
        self.hosts(number) == Some(hosts)
    }

    /// Whether the address was accepted for that peer.
    pub(super) fn has(&self, number: u64, ip: IpAddr) -> bool {
        self.peer_link(number)
            .is_some_and(|peer_link| peer_link.addresses.accepted.contains(&ip))
    }

    /// The numbers of this host and the peer.
    pub(super) fn hosts(&self, number: u64) -> Option<(u128, u128)> {
        Some((self.own, self.peer_link(number)?.host))
    }

    /// The report on peers, connected and not.
    pub(super) fn report(&self) -> Value {
        let mut all: Vec<Value> = Vec::new();
        for stream in self.streams.values() {
            if let Some(peer_link) = &stream.peer_link {
                let refused = peer_link.addresses.refused.iter();
                let refused = refused.map(|(ip, why)| json!({"address": ip, "why": why}));
                all.push(json!({
                    "host": stream.socket.session.peer(),
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
            let is_connected = dial.stream.and_then(|it| self.peer_link(it)).is_some();
            let is_known = dial.host.is_some_and(|host| self.of_host(host).is_some());
            if !is_connected && !is_known {
                let address = dial.address.to_string();
                all.push(json!({"address": address, "alive": false, "why": dial.why}));
            }
        }
        all.into()
    }
}

impl PeerConnection {
    /// Whether an accepted connection has not authenticated yet.
    pub(super) fn is_unauthenticated(&self) -> bool {
        self.dial.is_none() && !self.socket.session.is_proven()
    }

    fn is_alive(&self) -> bool {
        self.peer_link.as_ref().is_some_and(PeerLink::is_alive)
    }
}
