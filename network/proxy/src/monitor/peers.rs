//! The monitors of other hosts.
//!
//! A peer is *alive* from when both have proven the secret and every partition of the window has joined, until the
//! stream ends or is silent, or a partition is lost. One of these ends the other: then its connections are reset, its
//! addresses are the kernel's, and it is dialled again.
//!
//! Of two streams between the same hosts stays the one that the host of the lower number has dialled.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use millrace_stream::partition::{ConnectionName, Loss};
use rustix::event::epoll::{self, EventFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use serde_json::{Value, json};

use super::door::Door;
use super::hosts::Request;
use super::joint::Joint;
use super::wire::{Heard, Wire, listener};
use super::{Monitor, Token, addresses};
use crate::Result;
use crate::error::system;
use crate::peer::{PeerMessage, Role, Secret, Session, host_number};
use crate::rules::Network;

/// How this host meets others.
#[derive(Clone, Debug)]
pub struct PeerSettings {
    /// What this host is called; no two are called the same.
    pub name: String,
    /// What all hosts know that may meet.
    pub secret: Secret,
    /// Where others may dial.
    pub listen: Option<SocketAddr>,
    /// Whom to dial.
    pub peers: Vec<SocketAddr>,
    /// Windows, and what the host at the other end is called; any host, where that is left out.
    pub windows: Vec<(Option<String>, PathBuf)>,
    /// Networks whose addresses a host may have, by its name; any host, where that is left out. Without any, each
    /// address that means one other host.
    pub addresses: Vec<(Option<String>, Network)>,
    /// Into how many partitions to cut a window, if the peer wants as many.
    pub partitions: u16,
    /// Fills bytes with what nobody can guess.
    pub draw: fn(&mut [u8]),
}

/// Those who were met, and those who are to be.
#[derive(Debug)]
pub(super) struct Peers {
    pub(super) settings: PeerSettings,
    pub(super) own: u128,
    pub(super) addresses: Vec<IpAddr>,
    pub(super) door: Option<Door>,
    timer: OwnedFd,
    pub(super) streams: BTreeMap<u64, Stream>,
    dials: Vec<Dial>,
    last_stream: u64,
    pub(super) last_link: u32,
    ticks: u32,
}

/// A stream to a peer.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) wire: Wire,
    pub(super) dial: Option<usize>,
    /// From where it was dialled.
    pub(super) from: Option<IpAddr>,
    /// Ticks since something came.
    quiet: u32,
    /// Ticks since it was made, or the peer became known.
    pub(super) age: u32,
    /// NAMES were said.
    pub(super) is_named: bool,
    pub(super) joint: Option<Joint>,
}

/// A peer that is to be dialled.
#[derive(Debug)]
struct Dial {
    address: SocketAddr,
    /// What answered there last.
    host: Option<u128>,
    stream: Option<u64>,
    /// Ticks before the next attempt.
    wait: u32,
    /// Why the last stream ended.
    why: String,
}

const TICK_NS: i64 = 250_000_000;
/// Ticks between two beats, looks at the addresses, and attempts to dial.
const EVERY: u32 = 4;
/// Ticks after which a silent peer, or one that does not come to a joint, is lost.
const SILENCE: u32 = 24;
/// Ticks after which whoever has dialled and not proven the secret is sent away.
const STRANGE: u32 = 8;
/// Times that a stream is read from in a turn.
const CHUNKS_PER_TURN: usize = 8;

impl Monitor {
    /// Meets other hosts. There are planes already ([`Monitor::carry`]).
    ///
    /// # Errors
    /// [`ErrorKind::System`](crate::ErrorKind::System) if the kernel refuses a socket or a timer.
    pub fn meet(&mut self, settings: PeerSettings) -> Result<()> {
        let attempted = || "meeting other hosts".to_owned();
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
            door: listener.transpose()?.map(Door::new),
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

    /// Dials those that are to be and are not there.
    fn dial(&mut self) {
        let count = self.peers.as_ref().map_or(0, |peers| peers.dials.len());
        for index in 0..count {
            let Some(peers) = &mut self.peers else {
                return;
            };
            let met = peers.dials[index].host;
            let is_met = met.is_some_and(|host| peers.of_host(host).is_some());
            let dial = &mut peers.dials[index];
            dial.wait = dial.wait.saturating_sub(1);
            if is_met || dial.stream.is_some() || dial.wait > 0 {
                continue;
            }
            dial.wait = EVERY;
            let address = dial.address;
            match Wire::dial(address, peers.session(Role::Dialled)) {
                Ok(wire) => self.watch(wire, Some(index), None),
                Err(errno) => peers.dials[index].why = errno.to_string(),
            }
        }
    }

    pub(super) fn watch(&mut self, wire: Wire, dial: Option<usize>, from: Option<IpAddr>) {
        let Some(peers) = &mut self.peers else {
            return;
        };
        peers.last_stream += 1;
        let number = peers.last_stream;
        let flags = EventFlags::IN | EventFlags::OUT;
        if epoll::add(&self.epoll, &wire, Token::Peer(number).data(), flags).is_err() {
            return;
        }
        if let Some(dial) = dial {
            peers.dials[dial].stream = Some(number);
        }
        let stream = Stream {
            wire,
            dial,
            from,
            quiet: 0,
            age: 0,
            is_named: false,
            joint: None,
        };
        peers.streams.insert(number, stream);
    }

    /// A stream can be read from, or written to, or has ended.
    pub(super) fn serve_peer(&mut self, number: u64, _flags: EventFlags) {
        self.flush(number);
        for _ in 0..CHUNKS_PER_TURN {
            let Some(stream) = self.stream(number) else {
                return;
            };
            let bytes = match stream.wire.hear() {
                Ok(Heard::Bytes(bytes)) => bytes,
                Ok(Heard::Nothing) => return,
                Ok(Heard::End) => return self.part(number, "it has ended the stream"),
                Err(errno) => return self.part(number, &errno.to_string()),
            };
            stream.quiet = 0;
            let mut messages = Vec::new();
            let heard = stream.wire.session.receive(&bytes, &mut messages);
            self.greet(number);
            for message in messages {
                self.obey_peer(number, message);
            }
            if let Err(breach) = heard {
                return self.part(number, &breach.to_string());
            }
        }
    }

    fn obey_peer(&mut self, number: u64, message: PeerMessage) {
        let is_joined = self.stream(number).is_some_and(|it| it.joint.is_some());
        match message {
            PeerMessage::Names {
                partitions,
                window,
                addresses,
            } => self.named(number, partitions, window, addresses),
            PeerMessage::Beat => {}
            _ if !is_joined => self.part(number, "it speaks out of turn"),
            PeerMessage::Connect {
                token,
                partition,
                user,
                process,
                opened,
                name,
            } => self.asked(
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
            PeerMessage::Accept { token, opened } => self.accepted(number, token, opened),
            PeerMessage::Refuse { token, errno } => self.refused(number, token, errno),
        }
    }

    /// Says something to a peer. One that does not listen is parted from.
    pub(super) fn say(&mut self, number: u64, message: &PeerMessage) {
        let Some(stream) = self.stream(number) else {
            return;
        };
        match stream.wire.session.send(message) {
            Ok(()) => self.flush(number),
            Err(breach) => self.part(number, &breach.to_string()),
        }
    }

    fn flush(&mut self, number: u64) {
        let Some(stream) = self.stream(number) else {
            return;
        };
        let flags = match stream.wire.flush() {
            Ok(true) => EventFlags::IN | EventFlags::OUT,
            Ok(false) => EventFlags::IN,
            Err(errno) => return self.part(number, &errno.to_string()),
        };
        let data = Token::Peer(number).data();
        if let Some(stream) = self.peers.as_ref().and_then(|it| it.streams.get(&number)) {
            let changed = epoll::modify(&self.epoll, &stream.wire, data, flags);
            debug_assert!(changed.is_ok(), "a stream is in the epoll while it is open");
        }
    }

    pub(super) fn stream(&mut self, number: u64) -> Option<&mut Stream> {
        self.peers.as_mut()?.streams.get_mut(&number)
    }

    /// Time has passed.
    pub(super) fn tick(&mut self) {
        let Some(peers) = &mut self.peers else {
            return;
        };
        let _ = rustix::io::read(&peers.timer, &mut [0; 8]);
        peers.ticks = peers.ticks.wrapping_add(1);
        let is_beat = peers.ticks % EVERY == 0;
        let mut beats = Vec::new();
        let mut lost = Vec::new();
        for (number, stream) in &mut peers.streams {
            stream.quiet += 1;
            stream.age += 1;
            let is_late = stream.age > SILENCE && !stream.is_alive();
            let is_stranger = stream.is_stranger() && stream.age > STRANGE;
            if stream.quiet > SILENCE || is_late || is_stranger {
                lost.push(*number);
            } else if is_beat && stream.joint.is_some() {
                beats.push(*number);
            }
        }
        let is_changed = is_beat && peers.renew();
        let names = beats.clone();
        for number in lost {
            self.part(number, "it is silent");
        }
        for number in beats {
            self.say(number, &PeerMessage::Beat);
        }
        if is_changed {
            names.into_iter().for_each(|number| self.say_names(number));
            self.announce_all();
        }
        self.open_door();
        self.expire();
        self.dial();
    }

    /// Ends a stream, and all that came by it.
    pub(super) fn part(&mut self, number: u64, why: &str) {
        let Some(peers) = &mut self.peers else {
            return;
        };
        let Some(stream) = peers.streams.remove(&number) else {
            return;
        };
        if let Some(dial) = stream.dial.and_then(|index| peers.dials.get_mut(index)) {
            dial.stream = None;
            why.clone_into(&mut dial.why);
            let met = stream.joint.as_ref().map(|joint| joint.host);
            dial.host = met.or(dial.host);
        }
        drop(stream.wire);
        if let Some(joint) = stream.joint {
            self.leave(&joint);
        }
        self.give_up(|session| session == number);
    }

    /// Ends all streams.
    pub(super) fn part_all(&mut self, why: &str) {
        let streams = self.peers.as_ref().map(|peers| &peers.streams);
        let numbers: Vec<u64> = streams
            .into_iter()
            .flat_map(|it| it.keys())
            .copied()
            .collect();
        for number in numbers {
            self.part(number, why);
        }
    }

    /// A partition has been lost.
    pub(super) fn lost(&mut self, link: u32, loss: Loss) {
        if let Some(number) = self.peers.as_ref().and_then(|it| it.of_link(link)) {
            self.part(number, &format!("the window: {loss:?}"));
        }
    }
}

impl Peers {
    pub(super) fn session(&self, role: Role) -> Session {
        let mut nonce = [0; 32];
        (self.settings.draw)(&mut nonce);
        Session::new(
            role,
            &self.settings.name,
            self.settings.secret.clone(),
            nonce,
        )
    }

    /// Whether the host has other addresses than before.
    fn renew(&mut self) -> bool {
        let now = addresses::own();
        let is_changed = now != self.addresses;
        self.addresses = now;
        is_changed
    }

    /// The stream to a host, and its joint.
    pub(super) fn of_host(&self, host: u128) -> Option<(u64, &Joint)> {
        self.streams.iter().find_map(|(number, stream)| {
            let joint = stream.joint.as_ref()?;
            (joint.host == host).then_some((*number, joint))
        })
    }

    pub(super) fn of_link(&self, link: u32) -> Option<u64> {
        let has = |stream: &Stream| stream.joint.as_ref().is_some_and(|it| it.has(link));
        let found = self.streams.iter().find(|(_, stream)| has(stream));
        found.map(|(number, _)| *number)
    }

    pub(super) fn joint(&self, number: u64) -> Option<&Joint> {
        self.streams.get(&number)?.joint.as_ref()
    }

    /// By which stream a host can be reached, in how many partitions, and this host's number.
    pub(super) fn alive(&self, host: u128) -> Option<(u64, u16, u128)> {
        let (number, joint) = self.of_host(host).filter(|(_, joint)| joint.is_alive())?;
        Some((number, joint.partitions, self.own))
    }

    /// How the planes call a partition.
    pub(super) fn link(&self, number: u64, partition: u16) -> Option<u32> {
        let joint = self.joint(number)?;
        (partition < joint.partitions).then(|| joint.first_link + u32::from(partition))
    }

    /// Whether a connection is from that peer to this host.
    pub(super) fn fits(&self, number: u64, name: &ConnectionName) -> bool {
        let hosts = (name.accepting.host, name.connecting.host);
        self.hosts(number) == Some(hosts)
    }

    /// Whether that peer has the address.
    pub(super) fn has(&self, number: u64, ip: IpAddr) -> bool {
        self.joint(number)
            .is_some_and(|joint| joint.announced.given.contains(&ip))
    }

    /// The numbers of this host and the peer.
    pub(super) fn hosts(&self, number: u64) -> Option<(u128, u128)> {
        Some((self.own, self.joint(number)?.host))
    }

    /// Those who are there, and those who are not.
    pub(super) fn report(&self) -> Value {
        let mut all: Vec<Value> = Vec::new();
        for stream in self.streams.values() {
            if let Some(joint) = &stream.joint {
                let refused = joint.announced.refused.iter();
                let refused = refused.map(|(ip, why)| json!({"address": ip, "why": why}));
                all.push(json!({
                    "host": stream.wire.session.peer(),
                    "alive": joint.is_alive(),
                    "partitions": joint.partitions,
                    "ring_lines": joint.ring_lines,
                    "addresses": joint.announced.given,
                    "refused_addresses": refused.collect::<Vec<Value>>(),
                    "window": joint.window,
                }));
            }
        }
        for dial in &self.dials {
            let is_met = dial.stream.and_then(|it| self.joint(it)).is_some();
            let is_known = dial.host.is_some_and(|host| self.of_host(host).is_some());
            if !is_met && !is_known {
                let address = dial.address.to_string();
                all.push(json!({"address": address, "alive": false, "why": dial.why}));
            }
        }
        all.into()
    }
}

impl Stream {
    /// Whether somebody has dialled who has not proven the secret.
    pub(super) fn is_stranger(&self) -> bool {
        self.dial.is_none() && !self.wire.session.is_proven()
    }

    fn is_alive(&self) -> bool {
        self.joint.as_ref().is_some_and(Joint::is_alive)
    }
}
