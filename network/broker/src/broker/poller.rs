//! The epoll of the broker, and the sources of its events.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Result;

use crate::registry::{ClientId, ListenerId};
use millrace_stream::sockets::packets::retry;

/// The source of an epoll event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Stop,
    Arrival,
    ParentExited,
    /// The forwarders have sent events.
    Forwarders,
    /// The timer of the peers has expired.
    Tick,
    /// A peer connects to the peer listener.
    Dialled,
    /// The connection to a peer, by number.
    Peer(u64),
    Client(ClientId),
    Channel(ListenerId),
}

/// The epoll.
#[derive(Debug)]
pub(super) struct Poller {
    epoll: OwnedFd,
}

/// The first epoll token of a connection to a peer.
const PEERS: u64 = 20;

/// A timeout of zero: poll without blocking.
const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

impl Token {
    const fn data(self) -> EventData {
        EventData::new_u64(match self {
            Self::Stop => 0,
            Self::ParentExited => 4,
            Self::Forwarders => 8,
            Self::Tick => 12,
            Self::Dialled => 16,
            Self::Peer(number) => (number << 2) + PEERS,
            Self::Arrival => 1,
            Self::Client(ClientId(id)) => id << 2 | 2,
            Self::Channel(ListenerId(id)) => id << 2 | 3,
        })
    }

    /// The token of an epoll event.
    pub(super) const fn of(data: u64) -> Self {
        match data & 3 {
            0 => match data {
                0 => Self::Stop,
                4 => Self::ParentExited,
                8 => Self::Forwarders,
                12 => Self::Tick,
                16 => Self::Dialled,
                data => Self::Peer((data - PEERS) >> 2),
            },
            1 => Self::Arrival,
            2 => Self::Client(ClientId(data >> 2)),
            _ => Self::Channel(ListenerId(data >> 2)),
        }
    }
}

impl Poller {
    pub(super) fn new() -> Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Self { epoll })
    }

    /// Reports the events of a descriptor by a token.
    pub(super) fn add(&self, fd: impl AsFd, token: Token, flags: EventFlags) -> Result<()> {
        epoll::add(&self.epoll, fd, token.data(), flags)
    }

    /// Changes the reported events of a descriptor that was added.
    pub(super) fn modify(&self, fd: impl AsFd, token: Token, flags: EventFlags) {
        let changed = epoll::modify(&self.epoll, fd, token.data(), flags);
        debug_assert!(changed.is_ok(), "it is in the epoll while it is open");
    }

    pub(super) fn delete(&self, fd: impl AsFd) -> Result<()> {
        epoll::delete(&self.epoll, fd)
    }

    /// Waits for events, or looks for them if `is_busy`.
    pub(super) fn wait(&self, events: &mut Vec<epoll::Event>, is_busy: bool) -> Result<()> {
        events.clear();
        let timeout = is_busy.then_some(&NOW);
        retry(|| {
            let space = rustix::buffer::spare_capacity(events);
            epoll::wait(&self.epoll, space, timeout)
        })
        .map(drop)
    }
}
