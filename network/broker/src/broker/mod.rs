//! The broker: a [`Registry`] with sockets around it.
//!
//! ```text
//!   processes ==control sockets==\                       /== channels ==> listeners
//!                                 > epoll -> packets -> Registry -> actions
//!   slabs ------------ pread ----/                       \== wake-up fd, memory, replies
//! ```
//! One thread runs all of it ([`Broker::run`]) and blocks in the epoll alone. It maps no connection's memory and keeps
//! no end of a connection, so the kernel reports the exit of each side to the other.
//!
//! With forwarders ([`Broker::attach_forwarders`]) it connects processes that may not share memory; with peers
//! ([`Broker::enable_peers`]) it connects processes of two hosts. A forwarder gets one side of each connection's
//! memory.
//!
//! # Trust
//! Every process that may connect is taken to be hostile:
//! 1. *A malformed packet disconnects its sender*, as do wrong descriptors and a packet out of order. Its descriptors
//!    are closed at once, except slabs.
//! 2. *A process that does not read its replies is disconnected* when its socket is full.
//! 3. *An address is proven by the kernel's listening socket* of this network namespace, for as long as the kernel
//!    reports that the socket listens there. The broker asks the kernel before each connection.
//! 4. *User ids come from the kernel* with each packet (`SCM_CREDENTIALS`): the real user of the sending process. A
//!    worker that has dropped root's rights counts as its new user, even on a socket that root opened.
//! 5. *Slabs are sealed memory files*. The broker reads and never maps them.
//! 6. *A turn takes bounded time*: a bounded number of packets of each process and of bytes of slabs.
//!
//! Remaining risks: the kernel closes received descriptors in this thread. A process that can mount a FUSE file system
//! can delay that close; so can a process that sets SO_LINGER again right before it. Descriptors in flight count
//! against the broker's user: a broker of another user than root cannot send more of them than its RLIMIT_NOFILE, and
//! then leaves connections to the kernel.
//!
//! # Namespaces
//! All processes of one broker are in its network namespace. Processes of other network namespaces, and processes whose
//! namespace is unknown, are refused with `ENETUNREACH`; a listening socket of another namespace is refused with
//! `EXDEV`.

mod addresses;
mod channel;
mod connection;
mod control_socket;
mod forward_table;
mod forwarders;
mod listener_channels;
mod peer_addresses;
mod peer_link;
mod peer_listener;
mod peer_socket;
mod peers;
mod proof;
mod remote_connections;
mod report;
mod requests;
mod route;
mod slabs;
mod sock_diag;

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

pub use control_socket::prepare_folder;
pub use peers::PeerSettings;
pub use report::View;

use self::channel::{Channel, PacketCost};
use self::control_socket::ControlSocket;
use self::forwarders::Forwarders;
use self::peers::Peers;
use self::slabs::Slabs;
use self::sock_diag::SockDiag;
use crate::error::system;
use crate::registry::{Action, ClientId, Credentials, Event, ListenerId, Registry, Settings};
use crate::{Error, ErrorKind, Result};
use millrace_stream::sockets::packets::{self, Received, retry};

/// Packets of disconnected processes that are discarded in one turn.
const DISCARDS_PER_TURN: usize = 64;
/// Processes that are accepted in one turn.
const ARRIVALS_PER_TURN: usize = 64;

/// A timeout of zero: poll without blocking.
const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// The broker of one path: serves processes until it is stopped.
#[derive(Debug)]
pub struct Broker {
    control_socket: ControlSocket,
    epoll: OwnedFd,
    registry: Registry,
    /// The sockets of the processes. Each packet carries its sender's credentials.
    clients: HashMap<ClientId, OwnedFd>,
    /// The sockets of disconnected processes, with unread packets.
    leaving: VecDeque<OwnedFd>,
    channels: HashMap<ListenerId, Channel>,
    cost: PacketCost,
    sock_diag: SockDiag,
    slabs: Slabs,
    geometry: Geometry,
    forwarders: Option<Forwarders>,
    peers: Option<Peers>,
    last_client: u64,
    todo: VecDeque<Action>,
    /// A reserve descriptor. It is closed for a moment to accept and reject a process at the descriptor limit.
    spare: Option<File>,
}

/// The condition on which the broker exits by itself.
#[derive(Clone, Copy)]
enum Until<'a> {
    /// It runs until the stop descriptor is readable.
    Stopped,
    /// It exits when it has no process and no listener; with a descriptor, not before that has hung up.
    Unused(Option<BorrowedFd<'a>>),
}

/// The source of an epoll event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
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

/// The first epoll token of a connection to a peer.
const PEERS: u64 = 20;

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

    const fn of(data: u64) -> Self {
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

impl Broker {
    /// A broker that listens at `path`, in an existing folder ([`prepare_folder`]).
    ///
    /// # Errors
    /// [`ErrorKind::InUse`] if a broker listens there; [`ErrorKind::Unsafe`] if other users can create files in the
    /// folder; [`ErrorKind::System`] if a system call fails.
    pub fn bind(path: &Path, settings: Settings) -> Result<Self> {
        let attempted = || format!("a broker at {}", path.display());
        let geometry = Geometry {
            ring_lines: settings.ring_lines,
        };
        geometry
            .check()
            .map_err(|error| Error::new(ErrorKind::System, attempted()).caused_by(error))?;
        let owner = rustix::process::geteuid().as_raw();
        let control_socket = ControlSocket::take(path, settings.rules.admit_others(owner))?;
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(system(attempted()))?;
        epoll::add(
            &epoll,
            &control_socket.socket,
            Token::Arrival.data(),
            EventFlags::IN,
        )
        .map_err(system(attempted()))?;
        let cost = PacketCost::measure().map_err(system(attempted()))?;
        Ok(Self {
            control_socket,
            epoll,
            registry: Registry::new(settings),
            clients: HashMap::new(),
            leaving: VecDeque::new(),
            channels: HashMap::new(),
            cost,
            sock_diag: SockDiag::new(),
            slabs: Slabs::default(),
            geometry,
            forwarders: None,
            peers: None,
            last_client: 0,
            todo: VecDeque::new(),
            spare: spare(),
        })
    }

    /// Serves until `stop` is readable or hangs up.
    ///
    /// # Errors
    /// [`ErrorKind::System`] if `epoll_wait` fails.
    pub fn run(&mut self, stop: impl AsFd) -> Result<()> {
        self.run_until(stop.as_fd(), Until::Stopped)
    }

    /// Serves as [`Broker::run`] does, and exits also when the broker is unused: no process, no listener, and `wanted`
    /// (one end of a pipe or a socket pair) has hung up.
    ///
    /// # Errors
    /// As [`Broker::run`].
    pub fn run_while_used(&mut self, stop: impl AsFd, wanted: impl AsFd) -> Result<()> {
        let wanted = wanted.as_fd();
        epoll::add(
            &self.epoll,
            wanted,
            Token::ParentExited.data(),
            EventFlags::empty(),
        )
        .map_err(system("watching the parent's descriptor"))?;
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

    /// The registry: listeners, processes and counters.
    #[must_use]
    pub const fn registry(&self) -> &Registry {
        &self.registry
    }

    fn serve(&mut self, mut until: Until<'_>) -> Result<()> {
        let mut events = Vec::with_capacity(64);
        loop {
            events.clear();
            // Work that is split into pieces runs between polls without a timeout.
            let is_busy = self.slabs.is_busy() || !self.leaving.is_empty();
            let timeout = is_busy.then_some(&NOW);
            retry(|| {
                let space = rustix::buffer::spare_capacity(&mut events);
                epoll::wait(&self.epoll, space, timeout)
            })
            .map_err(system("waiting for processes"))?;
            self.sock_diag.begin();
            for event in &events {
                match Token::of(event.data.u64()) {
                    Token::Stop => return Ok(()),
                    Token::ParentExited => until = self.parent_exited(until),
                    Token::Arrival => self.accept_all(),
                    Token::Forwarders => self.handle_forwarder_events(),
                    Token::Tick => self.tick(),
                    Token::Dialled => self.accept_peers(),
                    Token::Peer(number) => self.serve_peer(number, event.flags),
                    Token::Client(id) => self.read(id),
                    Token::Channel(id) => self.serve_channel(id, event.flags),
                }
            }
            self.read_slabs();
            self.discard();
            if matches!(until, Until::Unused(None)) && self.is_unused() {
                // Processes may wait in the listen queue.
                self.accept_all();
                if self.is_unused() {
                    return Ok(());
                }
            }
        }
    }

    /// Handles the hang-up of the parent's descriptor: from here on an unused broker exits.
    fn parent_exited<'a>(&self, until: Until<'a>) -> Until<'a> {
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

    /// Applies an event to the registry, and queues its actions.
    fn apply(&mut self, event: Event) {
        let mut actions = Vec::new();
        self.registry.handle(event, &mut actions);
        self.todo.extend(actions);
    }

    /// Applies an event to the registry, and performs its actions.
    fn handle(&mut self, event: Event) {
        self.apply(event);
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
                self.apply(Event::Linked { attempt, outcome });
            }
            Action::ConnectRemote {
                client,
                request,
                host,
            } => self.connect_remote(client, request, host),
            Action::Disconnect { client } => self.forget(client),
            Action::Close { listener } => drop(self.channels.remove(&listener)),
        }
    }

    /// Accepts waiting processes, at most [`ARRIVALS_PER_TURN`].
    fn accept_all(&mut self) {
        for _ in 0..ARRIVALS_PER_TURN {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match accept_with(&self.control_socket.socket, flags) {
                Ok(socket) => self.admit(socket),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::MFILE | Errno::NFILE) => {
                    // Otherwise the epoll reports the listening socket in every turn.
                    self.spare = None;
                    drop(accept_with(&self.control_socket.socket, flags));
                    self.spare = spare();
                }
                Err(_) => break,
            }
        }
    }

    fn admit(&mut self, socket: OwnedFd) {
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
            self.handle(Event::Arrived {
                client: id,
                credentials,
            });
        }
    }

    /// Disconnects a process that has exited or broken the protocol.
    fn disconnect_client(&mut self, id: ClientId) {
        self.forget(id);
        self.handle(Event::Departed { client: id });
    }

    /// Reads and discards the packets of disconnected processes. `close` would release their descriptors in one call of
    /// unbounded length, and a lingering TCP socket among them would block this thread.
    fn discard(&mut self) {
        for _ in 0..DISCARDS_PER_TURN {
            let Some(socket) = self.leaving.front() else {
                return;
            };
            let received = retry(|| packets::receive(socket, RecvFlags::DONTWAIT));
            if !matches!(received, Ok(Received::Packet(_) | Received::Malformed(_))) {
                self.leaving.pop_front();
            }
        }
    }

    fn forget(&mut self, id: ClientId) {
        if let Some(socket) = self.clients.remove(&id) {
            // The process sees the end at once, and can send nothing more.
            if shutdown(&socket, Shutdown::Both).is_ok() {
                self.leaving.push_back(socket);
            }
        }
        self.slabs.retire(id);
    }
}

fn spare() -> Option<File> {
    File::open("/dev/null").ok()
}
