//! The TCP sockets and the timer of the connections to other hosts' brokers.
//!
//! At most [`ACCEPTED_PER_TICK_MAX`] peers are accepted between two ticks, so a peer has at least that time to
//! authenticate under any load.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::event::Timespec;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use super::peer_socket::{Input, PeerSocket, listener};
use super::poller::{Poller, Token};
use crate::Result;
use crate::error::system;
use crate::peer::Session;

/// The time between two ticks, in nanoseconds.
const TICK_NS: i64 = 250_000_000;
/// The most connections that are accepted between two ticks.
const ACCEPTED_PER_TICK_MAX: usize = 32;

/// The sockets of the connections to peers by number, the listening socket, and the timer.
#[derive(Debug)]
pub(super) struct PeerSockets {
    sockets: HashMap<u64, PeerSocket>,
    listener: Option<PeerListener>,
    timer: OwnedFd,
    last: u64,
}

/// The listening socket.
#[derive(Debug)]
struct PeerListener {
    socket: OwnedFd,
    /// The count of connections accepted since the last tick.
    accepted: usize,
}

impl PeerSockets {
    /// Starts the timer, and listens at `listen`.
    pub(super) fn new(listen: Option<SocketAddr>, poller: &Poller) -> Result<Self> {
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
        poller
            .add(&timer, Token::Tick, EventFlags::IN)
            .map_err(system(attempted()))?;
        let listener = listen.map(|address| {
            let attempted = || format!("listening for peers at {address}");
            let socket = listener(address).map_err(system(attempted()))?;
            poller
                .add(&socket, Token::Dialled, EventFlags::IN)
                .map_err(system(attempted()))?;
            let accepted = 0;
            Ok(PeerListener { socket, accepted })
        });
        Ok(Self {
            sockets: HashMap::new(),
            listener: listener.transpose()?,
            timer,
            last: 0,
        })
    }

    /// Starts a connect. Returns the number of the connection.
    pub(super) fn dial(
        &mut self,
        address: SocketAddr,
        poller: &Poller,
    ) -> rustix::io::Result<Option<u64>> {
        let socket = PeerSocket::dial(address)?;
        Ok(self.insert(socket, poller))
    }

    /// Accepts a waiting peer. Returns the number of the connection and the peer's address; `None` if no peer waits, or
    /// none is accepted before the next tick.
    pub(super) fn accept(&mut self, poller: &Poller) -> Option<(u64, Option<IpAddr>)> {
        loop {
            let listener = self.listener.as_mut()?;
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let accepted = if listener.accepted < ACCEPTED_PER_TICK_MAX {
                acceptfrom_with(&listener.socket, flags)
            } else {
                Err(Errno::BUSY)
            };
            let (socket, from) = match accepted {
                Ok(accepted) => accepted,
                Err(Errno::AGAIN) => return None,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                // The limit is reached or no descriptor is free: accepting resumes at the next tick.
                Err(_) => {
                    self.watch_listener(false, poller);
                    return None;
                }
            };
            listener.accepted += 1;
            let from = from.and_then(|from| SocketAddr::try_from(from).ok());
            let answered = PeerSocket::answer(socket).ok();
            if let Some(number) = answered.and_then(|socket| self.insert(socket, poller)) {
                return Some((number, from.map(|from| from.ip())));
            }
        }
    }

    /// Reads the timer, and resumes accepting.
    pub(super) fn tick(&mut self, poller: &Poller) {
        let _ = rustix::io::read(&self.timer, &mut [0; 8]);
        if let Some(listener) = &mut self.listener {
            listener.accepted = 0;
            self.watch_listener(true, poller);
        }
    }

    /// Writes a session's output as far as the socket has room.
    pub(super) fn flush(
        &mut self,
        number: u64,
        session: &mut Session,
        poller: &Poller,
    ) -> rustix::io::Result<()> {
        let Some(socket) = self.sockets.get_mut(&number) else {
            return Ok(());
        };
        let flags = if socket.flush(session)? {
            EventFlags::IN | EventFlags::OUT
        } else {
            EventFlags::IN
        };
        poller.modify(&*socket, Token::Peer(number), flags);
        Ok(())
    }

    /// Reads available bytes; `None` if the connection is closed on this side.
    pub(super) fn receive(&self, number: u64) -> Option<rustix::io::Result<Input>> {
        self.sockets.get(&number).map(PeerSocket::receive)
    }

    /// Closes a connection.
    pub(super) fn close(&mut self, number: u64) {
        self.sockets.remove(&number);
    }

    /// Adds a socket, and returns its number; `None` if the epoll is full.
    fn insert(&mut self, socket: PeerSocket, poller: &Poller) -> Option<u64> {
        self.last += 1;
        let flags = EventFlags::IN | EventFlags::OUT;
        poller.add(&socket, Token::Peer(self.last), flags).ok()?;
        self.sockets.insert(self.last, socket);
        Some(self.last)
    }

    fn watch_listener(&self, watch: bool, poller: &Poller) {
        let Some(listener) = &self.listener else {
            return;
        };
        let flags = if watch {
            EventFlags::IN
        } else {
            EventFlags::empty()
        };
        poller.modify(&listener.socket, Token::Dialled, flags);
    }
}
