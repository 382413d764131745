//! The monitor: the [`Registry`] with sockets around it.
//!
//! ```text
//!   processes ==control sockets==\                       /== channels ==> listeners
//!                                 > epoll -> packets -> Registry -> actions
//!   slabs ------------ pread ----/                       \== bell, memory, replies
//! ```
//! One thread does all ([`Monitor::run`]); it waits for nothing but the epoll. It is given no memory of a connection
//! to map and keeps no end of one, so that the kernel tells each side when the other has died.
//!
//! With planes ([`Monitor::carry`]) it joins processes that may not share memory, and with peers ([`Monitor::meet`])
//! those of two hosts. It gives planes one side of each connection's memory and keeps none of it.
//!
//! # Trust
//! Every process that may connect is taken to be hostile:
//! 1. *A packet that is none ends its own connection*, as does one with the wrong descriptors, or one out of turn.
//!    Descriptors that came along are closed at once, but for slabs.
//! 2. *Whoever does not read its replies is hung up on* as soon as they fill its socket.
//! 3. *An address belongs to whoever shows the kernel's own listening socket* of this network namespace, for as long
//!    as the kernel says that this socket listens there: it is asked before each connection.
//! 4. *Users come from the kernel*, with each packet (`SCM_CREDENTIALS`): the real user of the process that has sent it.
//!    A worker that has given up root's rights is no root any more, though the socket was opened before.
//! 5. *Slabs are files in memory* (sealed against shrinking) and are only read, never mapped.
//! 6. *A turn takes a bounded time*: so many packets of one process, then the next; so much of the slabs.
//!
//! What is left: a descriptor is closed by the kernel in this thread. Whoever may mount a FUSE file system can delay
//! that, and so can whoever has a socket of TCP linger again just before its close, after this thread has ended that.
//! Descriptors under way count as the monitor's user's: one that is not root's cannot send more of them than it may
//! have open, and then leaves connections to the kernel.
//!
//! # Namespaces
//! All processes of one monitor are in its network namespace. Those of others, and those of which the kernel does not
//! tell, are sent away with `ENETUNREACH`; a listening socket of another namespace is refused with `EXDEV`.

mod addresses;
mod announced;
mod carried;
mod carriers;
mod channel;
mod connection;
mod door;
mod hosts;
mod joint;
mod links;
mod listening;
mod peers;
mod place;
mod proof;
mod report;
mod requests;
mod route;
mod slabs;
mod wire;

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use millrace_stream::Geometry;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvFlags, Shutdown, SocketFlags, accept_with, shutdown};

pub use peers::PeerSettings;
pub use place::prepare_folder;
pub use report::View;

use self::carriers::Carriers;
use self::channel::{Channel, PacketCost};
use self::listening::Listening;
use self::peers::Peers;
use self::place::Place;
use self::slabs::Slabs;
use crate::error::system;
use crate::registry::{Action, ClientId, Credentials, Event, ListenerId, Registry, Settings};
use crate::{Error, ErrorKind, Result};
use millrace_stream::sockets::packets::{self, Received, retry};

/// Packets of those who are gone that are thrown away in a turn.
const DISCARDS_PER_TURN: usize = 64;
/// Processes that are let in in a turn.
const ARRIVALS_PER_TURN: usize = 64;

/// No time at all.
const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// Serves processes at a path until told to stop.
#[derive(Debug)]
pub struct Monitor {
    place: Place,
    epoll: OwnedFd,
    registry: Registry,
    /// Their sockets. Each packet comes with whoever has sent it.
    clients: HashMap<ClientId, OwnedFd>,
    /// The sockets of those who are none any more, with what they have said last.
    leaving: VecDeque<OwnedFd>,
    channels: HashMap<ListenerId, Channel>,
    cost: PacketCost,
    listening: Listening,
    slabs: Slabs,
    geometry: Geometry,
    carriers: Option<Carriers>,
    peers: Option<Peers>,
    last_client: u64,
    todo: VecDeque<Action>,
    /// Given up for a moment to turn a process away when there are no descriptors left.
    spare: Option<File>,
}

/// When the monitor ends by itself.
#[derive(Clone, Copy)]
enum Until<'a> {
    /// Never.
    Stopped,
    /// When nobody is left; some, while this is not hung up.
    Unused(Option<BorrowedFd<'a>>),
}

/// What an event of the epoll is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Stop,
    Arrival,
    Wanted,
    /// Planes have something to say.
    Planes,
    /// Time has passed for peers.
    Tick,
    /// A peer dials.
    Dialled,
    /// A stream to a peer.
    Peer(u64),
    Client(ClientId),
    Channel(ListenerId),
}

/// The streams to peers, from this number on.
const PEERS: u64 = 20;

impl Token {
    const fn data(self) -> EventData {
        EventData::new_u64(match self {
            Self::Stop => 0,
            Self::Wanted => 4,
            Self::Planes => 8,
            Self::Tick => 12,
            Self::Dialled => 16,
            Self::Peer(number) => (number << 2) + PEERS,
            Self::Arrival => 1,
            Self::Client(ClientId(id)) => id << 2 | 2,
            Self::Channel(ListenerId(id)) => id << 2 | 3,
        })
    }

    const fn of(data: u64) -> Self {
        match data & 3 {
            0 => match data {
                0 => Self::Stop,
                4 => Self::Wanted,
                8 => Self::Planes,
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

impl Monitor {
    /// Listens at a path. Its folder is there already ([`prepare_folder`]).
    ///
    /// # Errors
    /// [`ErrorKind::InUse`] if a monitor listens there; [`ErrorKind::Unsafe`] if others may put something into the
    /// folder; [`ErrorKind::System`] for what the kernel refuses.
    pub fn bind(path: &Path, settings: Settings) -> Result<Self> {
        let attempted = || format!("a monitor at {}", path.display());
        let geometry = Geometry {
            ring_lines: settings.ring_lines,
        };
        geometry
            .check()
            .map_err(|error| Error::new(ErrorKind::System, attempted()).caused_by(error))?;
        let owner = rustix::process::geteuid().as_raw();
        let place = Place::take(path, settings.rules.admit_others(owner))?;
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(system(attempted()))?;
        epoll::add(&epoll, &place.socket, Token::Arrival.data(), EventFlags::IN)
            .map_err(system(attempted()))?;
        let cost = PacketCost::measure().map_err(system(attempted()))?;
        Ok(Self {
            place,
            epoll,
            registry: Registry::new(settings),
            clients: HashMap::new(),
            leaving: VecDeque::new(),
            channels: HashMap::new(),
            cost,
            listening: Listening::new(),
            slabs: Slabs::default(),
            geometry,
            carriers: None,
            peers: None,
            last_client: 0,
            todo: VecDeque::new(),
            spare: spare(),
        })
    }

    /// Serves until `stop` is readable, or nobody can write to it any more.
    ///
    /// # Errors
    /// [`ErrorKind::System`] if the kernel refuses to wait.
    pub fn run(&mut self, stop: impl AsFd) -> Result<()> {
        self.run_until(stop.as_fd(), Until::Stopped)
    }

    /// The same, or until nobody is left: no process, no listener, and nobody who could write to `wanted`, which is
    /// one end of a pipe or a pair of sockets.
    ///
    /// # Errors
    /// As [`Monitor::run`].
    pub fn run_while_used(&mut self, stop: impl AsFd, wanted: impl AsFd) -> Result<()> {
        let wanted = wanted.as_fd();
        epoll::add(
            &self.epoll,
            wanted,
            Token::Wanted.data(),
            EventFlags::empty(),
        )
        .map_err(system("watching whoever has started the monitor"))?;
        self.run_until(stop.as_fd(), Until::Unused(Some(wanted)))
    }

    fn run_until(&mut self, stop: BorrowedFd<'_>, until: Until<'_>) -> Result<()> {
        let attempted = "waiting for processes";
        epoll::add(&self.epoll, stop, Token::Stop.data(), EventFlags::IN)
            .map_err(system(attempted))?;
        let served = self.serve(until);
        epoll::delete(&self.epoll, stop).map_err(system(attempted))?;
        served
    }

    /// The logic inside.
    #[must_use]
    pub const fn registry(&self) -> &Registry {
        &self.registry
    }

    fn serve(&mut self, mut until: Until<'_>) -> Result<()> {
        let mut events = Vec::with_capacity(64);
        loop {
            events.clear();
            // What is done piece by piece waits for nobody, and nobody waits for it.
            let is_busy = self.slabs.is_busy() || !self.leaving.is_empty();
            let timeout = is_busy.then_some(&NOW);
            retry(|| {
                let space = rustix::buffer::spare_capacity(&mut events);
                epoll::wait(&self.epoll, space, timeout)
            })
            .map_err(system("waiting for processes"))?;
            self.listening.begin();
            for event in &events {
                match Token::of(event.data.u64()) {
                    Token::Stop => return Ok(()),
                    Token::Wanted => until = self.not_wanted(until),
                    Token::Arrival => self.welcome_all(),
                    Token::Planes => self.hear_planes(),
                    Token::Tick => self.tick(),
                    Token::Dialled => self.answer_peers(),
                    Token::Peer(number) => self.serve_peer(number, event.flags),
                    Token::Client(id) => self.read(id),
                    Token::Channel(id) => self.look_at_channel(id, event.flags),
                }
            }
            self.read_slabs();
            self.discard();
            if matches!(until, Until::Unused(None)) && self.is_unused() {
                // Some may be at the door.
                self.welcome_all();
                if self.is_unused() {
                    return Ok(());
                }
            }
        }
    }

    /// Whoever has started the monitor has gone.
    fn not_wanted<'a>(&self, until: Until<'a>) -> Until<'a> {
        let Until::Unused(Some(wanted)) = until else {
            return until;
        };
        let deleted = epoll::delete(&self.epoll, wanted);
        debug_assert!(deleted.is_ok(), "it is in the epoll until now");
        Until::Unused(None)
    }

    fn is_unused(&self) -> bool {
        self.clients.is_empty() && self.channels.is_empty()
    }

    /// Tells the registry what happened, for later.
    fn tell(&mut self, event: Event) {
        let mut actions = Vec::new();
        self.registry.handle(event, &mut actions);
        self.todo.extend(actions);
    }

    /// Tells the registry what happened and does what it wants done.
    fn happened(&mut self, event: Event) {
        self.tell(event);
        self.perform_all();
    }

    fn perform_all(&mut self) {
        while let Some(action) = self.todo.pop_front() {
            self.perform(action);
        }
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Reply { client, packet } => self.reply(client, &packet, &[]),
            Action::Open {
                listener,
                client,
                serial,
                backlog,
            } => self.open(listener, client, serial, backlog),
            Action::Link(attempt) => {
                let outcome = self.link(&attempt);
                self.tell(Event::Linked { attempt, outcome });
            }
            Action::Reach { client, wish, host } => self.reach(client, wish, host),
            Action::Hang { client } => self.forget(client),
            Action::Close { listener } => drop(self.channels.remove(&listener)),
        }
    }

    /// Lets processes in.
    fn welcome_all(&mut self) {
        for _ in 0..ARRIVALS_PER_TURN {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match accept_with(&self.place.socket, flags) {
                Ok(socket) => self.welcome(socket),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::MFILE | Errno::NFILE) => {
                    // Else the epoll would tell of it again and again.
                    self.spare = None;
                    drop(accept_with(&self.place.socket, flags));
                    self.spare = spare();
                }
                Err(_) => break,
            }
        }
    }

    fn welcome(&mut self, socket: OwnedFd) {
        let Ok(peer) = socket_peercred(&socket) else {
            return;
        };
        let credentials = Credentials {
            user: peer.uid.as_raw(),
            process: peer.pid.as_raw_pid().unsigned_abs(),
        };
        self.last_client += 1;
        let id = ClientId(self.last_client);
        let watched = epoll::add(
            &self.epoll,
            &socket,
            Token::Client(id).data(),
            EventFlags::IN,
        );
        if watched.is_ok() {
            self.clients.insert(id, socket);
            self.happened(Event::Arrived {
                client: id,
                credentials,
            });
        }
    }

    /// A process has gone, or is sent away.
    fn hang(&mut self, id: ClientId) {
        self.forget(id);
        self.happened(Event::Departed { client: id });
    }

    /// Takes what processes have said that were sent away, or have gone: closed with the socket, it would be closed as
    /// it is, however much it is, and a socket that lingers would have this thread wait.
    fn discard(&mut self) {
        for _ in 0..DISCARDS_PER_TURN {
            let Some(socket) = self.leaving.front() else {
                return;
            };
            let received = retry(|| packets::receive(socket, RecvFlags::DONTWAIT));
            if !matches!(received, Ok(Received::Packet(_) | Received::Wrong(_))) {
                self.leaving.pop_front();
            }
        }
    }

    fn forget(&mut self, id: ClientId) {
        if let Some(socket) = self.clients.remove(&id) {
            // It has an end at once, and says nothing more.
            if shutdown(&socket, Shutdown::Both).is_ok() {
                self.leaving.push_back(socket);
            }
        }
        self.slabs.bury(id);
    }
}

fn spare() -> Option<File> {
    File::open("/dev/null").ok()
}
