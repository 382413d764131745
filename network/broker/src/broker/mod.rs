//! The broker: states without I/O, and sockets around them.
//!
//! ```text
//!   processes ==control sockets==\                /-> Registry  -\             /== channels ==> listeners
//!   peers ==TCP, timer============> epoll, events --> Peers     ---> actions ---== wake-up fd, memory, replies
//!   forwarders ==events==========/                \-> Forwarded -/      |      \== TCP, commands
//!                                                        ^             |
//!                                                        +--- results -+
//! ```
//! The broker reads events from descriptors, hands each to its state, and performs the actions in order. An action may
//! have a result, which is an event again. The [`Registry`] decides on each connection; `Peers` are the connections to
//! other hosts' brokers; `Forwarded` are the connections whose bytes a forwarder moves. Slabs are read when a report is
//! requested.
//!
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
mod clients;
mod connection;
mod control_socket;
mod flow;
mod forward_table;
mod forwarded;
mod forwarders;
mod links;
mod listener_channels;
mod peer_addresses;
mod peer_event;
mod peer_link;
mod peer_socket;
mod peer_sockets;
mod peers;
mod perform;
mod poller;
mod proof;
mod report;
mod requests;
mod route;
mod slabs;
mod sock_diag;
mod unauthenticated;
mod view;

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use millrace_stream::Geometry;
use millrace_stream::control::{Message, Packet};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

pub use control_socket::prepare_folder;
pub use peers::PeerSettings;
pub use view::View;

use self::clients::Clients;
use self::control_socket::ControlSocket;
use self::forwarded::{ForwardAction, ForwardEvent, Forwarded};
use self::forwarders::Forwarders;
use self::listener_channels::ListenerChannels;
use self::peer_event::{PeerAction, PeerEvent};
use self::peer_socket::Input;
use self::peer_sockets::PeerSockets;
use self::peers::Peers;
use self::poller::{Poller, Token};
use self::slabs::Slabs;
use self::sock_diag::SockDiag;
use crate::error::system;
use crate::forwarder::{Event as FromForwarder, ForwarderPool};
use crate::registry::{Action, ClientId, Event, ListenerId, Registry, Settings};
use crate::{Error, ErrorKind, Result};

/// Processes that are accepted in one turn.
const ARRIVALS_PER_TURN: usize = 64;
/// Reads of one connection to a peer in a turn.
const CHUNKS_PER_TURN: usize = 8;

/// The broker of one path: serves processes until it is stopped.
#[derive(Debug)]
pub struct Broker {
    control_socket: ControlSocket,
    poller: Poller,
    registry: Registry,
    clients: Clients,
    channels: ListenerChannels,
    sock_diag: SockDiag,
    slabs: Slabs,
    geometry: Geometry,
    forwarders: Option<Forwarders>,
    forwarded: Forwarded,
    peers: Option<Peers>,
    peer_sockets: Option<PeerSockets>,
    todo: VecDeque<Todo>,
    /// A reserve descriptor. It is closed for a moment to accept and reject a process at the descriptor limit.
    spare: Option<File>,
}

/// An action of one of the states.
#[derive(Debug)]
enum Todo {
    Registry(Action),
    Peers(PeerAction),
    Forwarded(ForwardAction),
}

/// The condition on which the broker exits by itself.
#[derive(Clone, Copy)]
enum Until<'a> {
    /// It runs until the stop descriptor is readable.
    Stopped,
    /// It exits when it has no process and no listener; with a descriptor, not before that has hung up.
    Unused(Option<BorrowedFd<'a>>),
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
        let poller = Poller::new().map_err(system(attempted()))?;
        poller
            .add(&control_socket.socket, Token::Arrival, EventFlags::IN)
            .map_err(system(attempted()))?;
        let channels = ListenerChannels::new().map_err(system(attempted()))?;
        Ok(Self {
            control_socket,
            poller,
            forwarded: Forwarded::new(settings.limits),
            registry: Registry::new(settings),
            clients: Clients::default(),
            channels,
            sock_diag: SockDiag::new(),
            slabs: Slabs::default(),
            geometry,
            forwarders: None,
            peers: None,
            peer_sockets: None,
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
        self.poller
            .add(wanted, Token::ParentExited, EventFlags::empty())
            .map_err(system("watching the parent's descriptor"))?;
        self.run_until(stop.as_fd(), Until::Unused(Some(wanted)))
    }

    fn run_until(&mut self, stop: BorrowedFd<'_>, until: Until<'_>) -> Result<()> {
        let attempted = "waiting for processes";
        self.poller
            .add(stop, Token::Stop, EventFlags::IN)
            .map_err(system(attempted))?;
        let served = self.serve(until);
        self.poller.delete(stop).map_err(system(attempted))?;
        served
    }

    /// Attaches forwarders for connections whose processes share no memory. Their threads run until
    /// [`Broker::stop_forwarders`].
    ///
    /// # Errors
    /// [`ErrorKind::System`] if `epoll_ctl` fails.
    pub fn attach_forwarders(&mut self, pool: ForwarderPool) -> Result<()> {
        let is_any = !pool.forwarders().is_empty();
        self.forwarders = Some(Forwarders::new(pool, &self.poller)?);
        self.registry.set_forwarders(is_any);
        if is_any {
            self.apply_peers(PeerEvent::ForwardersAttached);
            self.perform_all();
        }
        Ok(())
    }

    /// Stops the forwarders: forwarded connections end in resets.
    pub fn stop_forwarders(&mut self) {
        self.registry.set_forwarders(false);
        if let Some(forwarders) = &self.forwarders {
            forwarders.stop();
        }
    }

    /// Accepts and connects to other hosts. Forwarders must be attached ([`Broker::attach_forwarders`]).
    ///
    /// # Errors
    /// [`ErrorKind::System`] if a socket or a timer cannot be created.
    pub fn enable_peers(&mut self, settings: PeerSettings) -> Result<()> {
        self.peer_sockets = Some(PeerSockets::new(settings.listen, &self.poller)?);
        let has_forwarders = self.registry.has_forwarders();
        let mut actions = Vec::new();
        let peers = Peers::new(settings, addresses::own(), has_forwarders, &mut actions);
        self.peers = Some(peers);
        self.todo.extend(actions.into_iter().map(Todo::Peers));
        self.perform_all();
        Ok(())
    }

    /// The registry: listeners, processes and counters.
    #[must_use]
    pub const fn registry(&self) -> &Registry {
        &self.registry
    }

    fn serve(&mut self, mut until: Until<'_>) -> Result<()> {
        let mut events = Vec::with_capacity(64);
        loop {
            // Work that is split into pieces runs between polls without a timeout.
            let is_busy = self.slabs.is_busy() || self.clients.is_discarding();
            self.poller
                .wait(&mut events, is_busy)
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
                    Token::Peer(number) => self.serve_peer(number),
                    Token::Client(id) => self.read(id),
                    Token::Channel(id) => self.serve_channel(id, event.flags),
                }
            }
            self.read_slabs();
            self.clients.discard();
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
        let deleted = self.poller.delete(wanted);
        debug_assert!(deleted.is_ok(), "it is in the epoll until now");
        Until::Unused(None)
    }

    fn is_unused(&self) -> bool {
        self.clients.is_empty() && self.channels.is_empty()
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
        if let Some((client, credentials)) = self.clients.admit(socket, &self.poller) {
            self.handle(Event::Arrived {
                client,
                credentials,
            });
        }
    }

    /// Handles an event of a listener's channel.
    fn serve_channel(&mut self, listener: ListenerId, flags: EventFlags) {
        if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
            self.channels.close(listener);
            self.handle(Event::Silent { listener });
        } else if flags.contains(EventFlags::OUT) {
            self.channels.watch_room(listener, false, &self.poller);
            self.handle(Event::Room { listener });
        }
    }

    /// Serves a connection to a peer that is readable, writable or closed.
    fn serve_peer(&mut self, number: u64) {
        self.todo
            .push_back(Todo::Peers(PeerAction::Flush { number }));
        self.perform_all();
        for _ in 0..CHUNKS_PER_TURN {
            let sockets = self.peer_sockets.as_ref();
            let Some(received) = sockets.and_then(|it| it.receive(number)) else {
                return;
            };
            let why = match received {
                Ok(Input::Bytes(bytes)) => {
                    self.handle_peers(PeerEvent::Received { number, bytes });
                    continue;
                }
                Ok(Input::Nothing) => return,
                Ok(Input::End) => "the peer closed the connection".to_owned(),
                Err(errno) => errno.to_string(),
            };
            return self.handle_peers(PeerEvent::Closed { number, why });
        }
    }

    /// Accepts waiting peers.
    fn accept_peers(&mut self) {
        while let Some(sockets) = &mut self.peer_sockets {
            let Some((number, from)) = sockets.accept(&self.poller) else {
                return;
            };
            self.handle_peers(PeerEvent::Accepted { number, from });
        }
    }

    fn tick(&mut self) {
        if let Some(sockets) = &mut self.peer_sockets {
            sockets.tick(&self.poller);
        }
        self.apply_forwarded(ForwardEvent::Tick);
        self.handle_peers(PeerEvent::Tick);
    }

    /// Handles the events of the forwarders.
    fn handle_forwarder_events(&mut self) {
        let Some(forwarders) = &self.forwarders else {
            return;
        };
        let (events, is_there) = forwarders.take_events();
        for (_, event) in events {
            match event {
                FromForwarder::Joined { link } => self.apply_peers(PeerEvent::Joined { link }),
                FromForwarder::Lost { link, loss } => {
                    self.apply_peers(PeerEvent::Lost { link, loss });
                }
                FromForwarder::Opened { token, opened } => {
                    self.apply_forwarded(ForwardEvent::Opened { token, opened });
                }
                FromForwarder::Refused { token } => {
                    self.apply_forwarded(ForwardEvent::Refused { token });
                }
                FromForwarder::Ended { token, bytes } => {
                    self.apply_forwarded(ForwardEvent::Ended { token, bytes });
                }
                // The broker never sends [`Command::Report`](crate::forwarder::Command::Report).
                FromForwarder::Report(_) => {}
            }
            self.perform_all();
        }
        if !is_there {
            self.forwarders_exited();
        }
    }

    /// Drops the forwarders after their process has exited, and resets all forwarded connections.
    fn forwarders_exited(&mut self) {
        self.registry.set_forwarders(false);
        self.apply_peers(PeerEvent::ForwardersExited);
        self.apply_forwarded(ForwardEvent::ForwardersExited);
        self.perform_all();
        if let Some(forwarders) = self.forwarders.take() {
            forwarders.detach(&self.poller);
        }
        self.forwarded = Forwarded::new(self.registry.settings().limits);
    }

    /// Applies an event to the registry, and performs its actions.
    fn handle(&mut self, event: Event) {
        self.apply(event);
        self.perform_all();
    }

    /// Applies an event to the peers, and performs its actions.
    fn handle_peers(&mut self, event: PeerEvent) {
        self.apply_peers(event);
        self.perform_all();
    }

    /// Applies an event to the registry, and queues its actions.
    fn apply(&mut self, event: Event) {
        let mut actions = Vec::new();
        self.registry.handle(event, &mut actions);
        self.todo.extend(actions.into_iter().map(Todo::Registry));
    }

    /// Applies an event to the peers, and queues its actions.
    fn apply_peers(&mut self, event: PeerEvent) {
        let mut actions = Vec::new();
        if let Some(peers) = &mut self.peers {
            peers.handle(event, &mut actions);
        }
        self.todo.extend(actions.into_iter().map(Todo::Peers));
    }

    /// Applies an event to the forwarded connections, and queues its actions.
    fn apply_forwarded(&mut self, event: ForwardEvent) {
        let mut actions = Vec::new();
        self.forwarded.handle(event, &mut actions);
        self.todo.extend(actions.into_iter().map(Todo::Forwarded));
    }

    fn perform_all(&mut self) {
        while let Some(todo) = self.todo.pop_front() {
            match todo {
                Todo::Registry(action) => self.perform(action),
                Todo::Peers(action) => self.perform_of_peers(action),
                Todo::Forwarded(action) => self.perform_of_forwarded(action),
            }
        }
    }

    /// Disconnects a process that has exited or broken the protocol.
    fn disconnect_client(&mut self, id: ClientId) {
        self.forget(id);
        self.handle(Event::Departed { client: id });
    }

    fn forget(&mut self, id: ClientId) {
        self.clients.disconnect(id);
        self.slabs.retire(id);
    }

    fn refuse(&mut self, id: ClientId, serial: u32, errno: Errno) {
        let errno = errno.raw_os_error().unsigned_abs();
        let message = Message::Refused { errno };
        self.reply(id, &Packet { serial, message }, &[]);
    }

    /// Sends a reply. A process whose socket is full is disconnected, which answers its requests as well.
    fn reply(&mut self, id: ClientId, packet: &Packet, descriptors: &[BorrowedFd<'_>]) {
        if !self.clients.send(id, packet, descriptors) {
            self.forget(id);
            self.apply(Event::Departed { client: id });
        }
    }
}

fn spare() -> Option<File> {
    File::open("/dev/null").ok()
}
