//! The broker's logic, without any I/O: processes, listeners, and the decision on each connection.
//!
//! ```text
//!   packets, credentials,      +----------+
//!   sock_diag answers     ---> | Registry | ---> replies, channels to open,
//!   closed descriptors   Event +----------+ Action   connections to make
//!                                ^        |
//!                                +--------+  Link -> Linked
//! ```
//! [`Registry::handle`] takes an event and returns actions. The caller (the [`broker`], or a test) performs them at
//! once and in order, and then the actions that follow from them, before the next event.
//!
//! # Invariants
//! 1. *Every request has one answer*, unless its process has exited: a reply, a channel or a connection, at once or
//!    after waiting.
//! 2. *Memory is shared with the same user*, or with another user where a rule says `direct`. Between other users
//!    forwarders move the bytes, or the kernel does. The connecting user is the sender of the request; the accepting
//!    user is the user that passed the listening socket, and is responsible for all holders of its channel.
//! 3. *A request waits only for a full channel.* A listener with room has no waiting request.
//! 4. *All state is bounded* by [`Limits`]. Beyond a limit processes are refused with `EUSERS`, listeners with
//!    `EMFILE`, and waiting requests with `ENOBUFS`.
//!
//! [`broker`]: crate::broker

mod clients;
mod counters;
mod event;
mod hosts;
mod limits;
mod listeners;
mod ports;
mod settings;

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use millrace_stream::Address;
use millrace_stream::control::{Link, Message, Mode, Packet};
use rustix::io::Errno;

pub use clients::Client;
pub use counters::Counters;
pub use event::{
    Action, Attempt, ClientId, ConnectRequest, Credentials, Event, ListenerId, Outcome, Proof,
};
pub use limits::Limits;
pub use listeners::Listener;
pub use ports::Ports;
pub use settings::{DataPath, Settings};

pub(crate) use hosts::Refusal;

use self::clients::User;
use self::hosts::Hosts;
use self::listeners::Listeners;
use crate::rules::{Direction, Verdict};

/// The most ports of one lease.
const LENT_PORTS: u16 = 128;
/// The first port that users other than root may use as a local port.
const LOW_PORTS: u16 = 1024;

/// The registry of processes, listeners and connections.
#[derive(Debug)]
pub struct Registry {
    settings: Settings,
    clients: BTreeMap<ClientId, Client>,
    listeners: Listeners,
    users: HashMap<u32, User>,
    counters: Counters,
    last_listener: u64,
    /// Whether forwarders are attached.
    has_forwarders: bool,
    hosts: Hosts,
}

impl Registry {
    /// An empty registry with these settings.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            clients: BTreeMap::new(),
            listeners: Listeners::default(),
            users: HashMap::new(),
            counters: Counters::default(),
            last_listener: 0,
            has_forwarders: false,
            hosts: Hosts::default(),
        }
    }

    /// Applies an event, and appends the resulting actions. Events of disconnected processes and closed listeners
    /// change nothing.
    pub fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::Arrived {
                client,
                credentials,
            } => self.arrived(client, credentials, actions),
            Event::Hello { client, serial } => self.hello(client, serial, actions),
            Event::Listen {
                client,
                serial,
                owner,
                backlog,
                proof,
            } => self.listen((client, serial), owner, backlog, proof, actions),
            Event::Connect { client, request } => {
                self.counters.requests += u64::from(self.is_greeted(client));
                self.connect(client, request, actions);
            }
            Event::Departed { client } => self.depart(client),
            Event::Linked { attempt, outcome } => self.linked(attempt, outcome, actions),
            Event::Room { listener } => {
                if let Some(found) = self.listeners.get_mut(listener) {
                    found.full = false;
                    self.serve_waiting(listener, actions);
                }
            }
            Event::Silent { listener } => self.end_listener(listener, actions),
        }
    }

    /// The registered listeners with their ids.
    pub fn listeners(&self) -> impl Iterator<Item = (ListenerId, &Listener)> {
        self.listeners.iter()
    }

    /// The registered listener of an id.
    #[must_use]
    pub fn listener(&self, id: ListenerId) -> Option<&Listener> {
        self.listeners.get(id)
    }

    /// The counters of the registry since its start.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The settings that the registry was made with.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    fn listen(
        &mut self,
        (id, serial): (ClientId, u32),
        owner: Credentials,
        backlog: u32,
        proof: Proof,
        actions: &mut Vec<Action>,
    ) {
        let Some(client) = self.clients.get(&id) else {
            return;
        };
        if !client.greeted {
            return self.disconnect(id, actions);
        }
        let rules = &self.settings.rules;
        match rules.decide(Direction::Listen, owner.user, proof.address) {
            Verdict::Deny => return self.refuse(id, serial, Errno::ACCESS, actions),
            Verdict::Kernel => return reply(id, serial, Message::Kernel, actions),
            Verdict::Allow | Verdict::Direct => {}
        }
        let stale = self.listeners.superseded_by(&proof);
        let left: Vec<Listener> = stale
            .into_iter()
            .filter_map(|stale| self.close_listener(stale, actions))
            .collect();
        self.register((id, serial), owner, backlog, proof, actions);
        for (client, request) in left.into_iter().flat_map(|listener| listener.waiting) {
            self.count_out(client);
            self.connect(client, request, actions);
        }
    }

    /// Registers a listener that the rules allow.
    fn register(
        &mut self,
        (id, serial): (ClientId, u32),
        owner: Credentials,
        backlog: u32,
        proof: Proof,
        actions: &mut Vec<Action>,
    ) {
        let limits = self.settings.limits;
        let user = self.users.entry(owner.user).or_default();
        if user.listeners >= limits.listeners_per_user_max
            || self.listeners.len() >= limits.listeners_max
        {
            return self.refuse(id, serial, Errno::MFILE, actions);
        }
        user.listeners += 1;
        self.last_listener += 1;
        let listener = ListenerId(self.last_listener);
        let left = limits.backlogs_per_user_max.saturating_sub(user.backlogs);
        let backlog = backlog
            .min(limits.backlog_max)
            .min(left.max(Limits::BACKLOG_MIN));
        user.backlogs += backlog;
        let new = Listener {
            proof,
            owner,
            backlog,
            accepted: 0,
            full: false,
            waiting: std::collections::VecDeque::new(),
        };
        self.listeners.insert(listener, new);
        self.counters.listeners += 1;
        actions.push(Action::Open {
            listener,
            client: id,
            serial,
            backlog,
        });
    }

    fn connect(&mut self, id: ClientId, request: ConnectRequest, actions: &mut Vec<Action>) {
        let Some(client) = self.clients.get(&id) else {
            return;
        };
        if !client.greeted {
            return self.disconnect(id, actions);
        }
        let user = request.credentials.user;
        let peer = destination(request.peer);
        let rules = &self.settings.rules;
        let verdict = rules.decide(Direction::Connect, user, peer);
        if verdict == Verdict::Deny {
            return self.refuse(id, request.serial, Errno::ACCESS, actions);
        }
        if let Some(host) = self
            .hosts
            .of(peer.ip())
            .filter(|_| request.source.is_none())
        {
            if verdict == Verdict::Kernel || !self.has_forwarders {
                return self.leave_to_kernel(id, request.serial, actions);
            }
            return actions.push(Action::ConnectRemote {
                client: id,
                request,
                host,
            });
        }
        let chosen = request
            .source
            .filter(|_| verdict != Verdict::Kernel)
            .and_then(|source| Some((self.listeners.choose(peer)?, source)));
        let Some((listener, source)) = chosen else {
            return self.leave_to_kernel(id, request.serial, actions);
        };
        let Some(found) = self.listeners.get_mut(listener) else {
            return self.leave_to_kernel(id, request.serial, actions);
        };
        let is_same = found.owner.user == user;
        let has_to_wait = found.full && !(request.no_wait && found.waiting.is_empty());
        if self.mode(is_same, verdict).is_none() {
            self.leave_to_kernel(id, request.serial, actions);
        } else if has_to_wait {
            self.wait(listener, id, request, actions);
        } else {
            let mut attempt = self.attempt(listener, id, request, source);
            if let Some(attempt) = &mut attempt {
                self.lend(attempt);
            }
            actions.extend(attempt.map(Action::Link));
        }
    }

    /// The data path of a connection within this host; `None` leaves it to the kernel.
    const fn mode(&self, is_same: bool, verdict: Verdict) -> Option<Mode> {
        let may_share = is_same || matches!(verdict, Verdict::Direct);
        match self.settings.data_path {
            DataPath::Direct | DataPath::Auto if may_share => Some(Mode::Direct),
            DataPath::Forwarded | DataPath::Auto if self.has_forwarders => Some(Mode::Forwarded),
            _ => None,
        }
    }

    /// Queues a request for a listener without room.
    fn wait(
        &mut self,
        listener: ListenerId,
        id: ClientId,
        request: ConnectRequest,
        actions: &mut Vec<Action>,
    ) {
        if request.no_wait {
            return self.turn_away(id, request.serial, actions);
        }
        let limits = self.settings.limits;
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let user = self.users.entry(client.credentials.user).or_default();
        let too_many = client.waiting >= limits.waiting_per_client_max
            || user.waiting >= limits.waiting_per_user_max;
        if too_many {
            return self.refuse(id, request.serial, Errno::NOBUFS, actions);
        }
        if let Some(listener) = self.listeners.get_mut(listener) {
            client.waiting += 1;
            user.waiting += 1;
            listener.waiting.push_back((id, request));
            self.counters.waited += 1;
        }
    }

    /// The local address of the connecting side.
    fn local(&mut self, request: ConnectRequest, source: IpAddr) -> Address {
        let peer = destination(request.peer);
        let mut local = request.local.canonical();
        // As in the kernel: a peer outside the loopback interface never sees a loopback address.
        let is_strange = local.ip().is_loopback() && !peer.ip().is_loopback();
        if local.ip().is_unspecified() || is_strange || local.ip().is_ipv4() != peer.ip().is_ipv4()
        {
            local = Address::new(source, local.port());
        }
        // The kernel gives low ports to root alone, and servers may authorize by that.
        if local.port() < LOW_PORTS && request.credentials.user != 0 {
            local = local.with_port(0);
        }
        if local.port() == 0 {
            let listeners = &self.listeners;
            local = local.with_port(self.settings.ports.take(|port| listeners.has_port(port)));
        }
        local
    }

    /// The connection from both sides' views, each in the address family of its socket.
    fn attempt(
        &mut self,
        listener: ListenerId,
        client: ClientId,
        request: ConnectRequest,
        source: IpAddr,
    ) -> Option<Attempt> {
        let user = request.credentials.user;
        let peer = destination(request.peer);
        let local = self.local(request, source);
        let found = self.listeners.get_mut(listener)?;
        let accepts_v6 = found.proof.address.ip().is_ipv6();
        let is_same = found.owner.user == user;
        let rules = &self.settings.rules;
        let verdict = rules.decide(Direction::Connect, user, peer);
        let mode = self.mode(is_same, verdict)?;
        let link = |local: Address, peer: Address, mapped: bool| Link {
            mode,
            ring_lines: self.settings.ring_lines,
            local: if mapped { local.mapped() } else { local },
            peer: if mapped { peer.mapped() } else { peer },
        };
        Some(Attempt {
            listener,
            client,
            request,
            connecting: link(local, peer, request.peer.is_mapped()),
            accepting: link(peer, local, accepts_v6),
            lent: 0,
        })
    }

    /// Lends ports to an attempt that qualifies for a lease: connecting and accepting user are equal, the local address
    /// is unspecified, and the listener is alone at its address.
    fn lend(&mut self, attempt: &mut Attempt) {
        let request = attempt.request;
        let local = request.local.canonical();
        let is_any = local.ip().is_unspecified() && local.port() == 0;
        let Some(found) = self.listeners.get(attempt.listener) else {
            return;
        };
        let may_lend = request.wants_lease
            && is_any
            && attempt.connecting.mode == Mode::Direct
            && found.owner.user == request.credentials.user
            && self.listeners.is_alone(found);
        if may_lend {
            let listeners = &self.listeners;
            let next = attempt.connecting.local.port().checked_add(1);
            let in_use = |port| listeners.has_port(port);
            let more = next.map_or(0, |next| {
                self.settings.ports.extend(next, LENT_PORTS - 1, in_use)
            });
            attempt.lent = 1 + more;
        }
    }

    fn linked(&mut self, attempt: Attempt, outcome: Outcome, actions: &mut Vec<Action>) {
        let (id, request) = (attempt.client, attempt.request);
        let listener = attempt.listener;
        match outcome {
            Outcome::Done { room } => {
                self.counters.connections += 1;
                self.counters.forwarded += u64::from(attempt.connecting.mode == Mode::Forwarded);
                if let Some(found) = self.listeners.get_mut(listener) {
                    found.accepted += 1;
                    found.full = !room;
                }
            }
            Outcome::Lent => self.counters.leases += 1,
            Outcome::Full => {
                if let Some(found) = self.listeners.get_mut(listener) {
                    found.full = true;
                }
                if request.no_wait {
                    self.turn_away(id, request.serial, actions);
                } else {
                    self.connect(id, request, actions);
                }
            }
            Outcome::Gone => {
                self.end_listener(listener, actions);
                self.connect(id, request, actions);
            }
            Outcome::Failed => self.leave_to_kernel(id, request.serial, actions),
        }
        self.serve_waiting(listener, actions);
    }

    /// Makes the oldest waiting connection, if the listener has room.
    fn serve_waiting(&mut self, id: ListenerId, actions: &mut Vec<Action>) {
        let Some(listener) = self.listeners.get_mut(id) else {
            return;
        };
        if listener.full {
            return;
        }
        let Some((client, request)) = listener.waiting.pop_front() else {
            return;
        };
        self.count_out(client);
        // This listener must serve it: its next request is served after this one.
        let is_there = self.clients.contains_key(&client);
        if let Some(source) = request.source.filter(|_| is_there) {
            match self.attempt(id, client, request, source) {
                Some(attempt) => actions.push(Action::Link(attempt)),
                // The forwarders that it waited for have exited.
                None => self.leave_to_kernel(client, request.serial, actions),
            }
        }
    }

    /// Counts one waiting request of a process less.
    fn count_out(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        client.waiting -= 1;
        if let Some(user) = self.users.get_mut(&client.credentials.user) {
            user.waiting -= 1;
        }
    }

    /// Removes a listener; its waiting requests go to another listener or to the kernel.
    fn end_listener(&mut self, id: ListenerId, actions: &mut Vec<Action>) {
        let left = self.close_listener(id, actions);
        for (client, request) in left.into_iter().flat_map(|listener| listener.waiting) {
            self.count_out(client);
            self.connect(client, request, actions);
        }
    }

    fn close_listener(&mut self, id: ListenerId, actions: &mut Vec<Action>) -> Option<Listener> {
        let listener = self.listeners.remove(id)?;
        actions.push(Action::Close { listener: id });
        if let Some(user) = self.users.get_mut(&listener.owner.user) {
            user.listeners -= 1;
            user.backlogs -= listener.backlog;
        }
        self.forget_user(listener.owner.user);
        Some(listener)
    }

    fn leave_to_kernel(&mut self, id: ClientId, serial: u32, actions: &mut Vec<Action>) {
        self.counters.kernel += 1;
        reply(id, serial, Message::Kernel, actions);
    }

    /// Refuses with EAGAIN a request that is not to wait for a full backlog.
    fn turn_away(&mut self, id: ClientId, serial: u32, actions: &mut Vec<Action>) {
        self.counters.waited += 1;
        let errno = Errno::AGAIN.raw_os_error().unsigned_abs();
        reply(id, serial, Message::Refused { errno }, actions);
    }

    fn refuse(&mut self, id: ClientId, serial: u32, errno: Errno, actions: &mut Vec<Action>) {
        self.counters.refused += 1;
        let errno = errno.raw_os_error().unsigned_abs();
        reply(id, serial, Message::Refused { errno }, actions);
    }
}

fn reply(client: ClientId, serial: u32, message: Message, actions: &mut Vec<Action>) {
    let packet = Packet { serial, message };
    actions.push(Action::Reply { client, packet });
}

/// The canonical destination of a peer address: the unspecified address means loopback.
#[must_use]
pub fn destination(peer: Address) -> Address {
    let peer = peer.canonical();
    let loopback: IpAddr = match peer.ip() {
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    if peer.ip().is_unspecified() {
        Address::new(loopback, peer.port())
    } else {
        peer
    }
}
