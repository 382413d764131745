//! Who is there, who listens, and who may talk to whom: the monitor's logic, without any I/O.
//!
//! ```text
//!   packets, credentials,      +----------+
//!   the kernel's word     ---> | Registry | ---> replies, channels to open,
//!   ends of descriptors  Event +----------+ Action   connections to make
//!                                ^        |
//!                                +--------+  Link -> Linked
//! ```
//! [`Registry::handle`] takes what happened and says what is to be done. Whoever does it (the [`monitor`], or a test)
//! does it at once and in order, and then what follows from it, before the next event.
//!
//! # Invariants
//! 1. *Every request has one answer*, unless its process has gone: a reply, a channel, a connection, or later the same
//!    for one that waits.
//! 2. *Memory is shared with the same user*, or with another where a rule says `direct`. Between other users planes
//!    move the bytes, or the kernel does. Whoever connects is the user who has sent the request; whoever accepts is
//!    the user who has shown the listening socket, and answers for those to whom it gives the channel.
//! 3. *Whoever waits does so because the channel is full.* A listener with room has nobody waiting.
//! 4. *What is kept is bounded* by [`Limits`]. What is over a limit is refused: processes with `EUSERS`, listeners with
//!    `EMFILE`, connections that would wait with `ENOBUFS`.
//!
//! [`monitor`]: crate::monitor

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
pub use event::{Action, Attempt, ClientId, Credentials, Event, ListenerId, Outcome, Proof, Wish};
pub use limits::Limits;
pub use listeners::Listener;
pub use ports::Ports;
pub use settings::{Carriage, Settings};

pub(crate) use hosts::Refusal;

use self::clients::User;
use self::hosts::Hosts;
use self::listeners::Listeners;
use crate::rules::{Direction, Verdict};

/// The most ports that are lent at once.
const LENT_PORTS: u16 = 128;
/// Ports below this one are root's.
const LOW_PORTS: u16 = 1024;

/// Who is there, who listens, and who may talk to whom.
#[derive(Debug)]
pub struct Registry {
    settings: Settings,
    clients: BTreeMap<ClientId, Client>,
    listeners: Listeners,
    users: HashMap<u32, User>,
    counters: Counters,
    last_listener: u64,
    /// Whether there are planes.
    has_planes: bool,
    hosts: Hosts,
}

impl Registry {
    /// Nobody is there.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            clients: BTreeMap::new(),
            listeners: Listeners::default(),
            users: HashMap::new(),
            counters: Counters::default(),
            last_listener: 0,
            has_planes: false,
            hosts: Hosts::default(),
        }
    }

    /// Takes what happened and appends what is to be done. What happened to processes or listeners that are gone
    /// changes nothing.
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
            Event::Connect { client, wish } => {
                self.counters.requests += u64::from(self.is_greeted(client));
                self.connect(client, wish, actions);
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

    /// Those who listen.
    pub fn listeners(&self) -> impl Iterator<Item = (ListenerId, &Listener)> {
        self.listeners.iter()
    }

    /// A listener.
    #[must_use]
    pub fn listener(&self, id: ListenerId) -> Option<&Listener> {
        self.listeners.get(id)
    }

    /// What has been counted so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What it was told.
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
            return self.hang(id, actions);
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
        for (client, wish) in left.into_iter().flat_map(|listener| listener.waiting) {
            self.count_out(client);
            self.connect(client, wish, actions);
        }
    }

    /// Adds a listener that may be one.
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

    fn connect(&mut self, id: ClientId, wish: Wish, actions: &mut Vec<Action>) {
        let Some(client) = self.clients.get(&id) else {
            return;
        };
        if !client.greeted {
            return self.hang(id, actions);
        }
        let user = wish.credentials.user;
        let peer = destination(wish.peer);
        let rules = &self.settings.rules;
        let verdict = rules.decide(Direction::Connect, user, peer);
        if verdict == Verdict::Deny {
            return self.refuse(id, wish.serial, Errno::ACCESS, actions);
        }
        if let Some(host) = self.hosts.of(peer.ip()).filter(|_| wish.source.is_none()) {
            if verdict == Verdict::Kernel || !self.has_planes {
                return self.leave_to_kernel(id, wish.serial, actions);
            }
            return actions.push(Action::Reach {
                client: id,
                wish,
                host,
            });
        }
        let chosen = wish
            .source
            .filter(|_| verdict != Verdict::Kernel)
            .and_then(|source| Some((self.listeners.choose(peer)?, source)));
        let Some((listener, source)) = chosen else {
            return self.leave_to_kernel(id, wish.serial, actions);
        };
        let Some(found) = self.listeners.get_mut(listener) else {
            return self.leave_to_kernel(id, wish.serial, actions);
        };
        let is_same = found.owner.user == user;
        let has_to_wait = found.full && !(wish.no_wait && found.waiting.is_empty());
        if self.mode(is_same, verdict).is_none() {
            self.leave_to_kernel(id, wish.serial, actions);
        } else if has_to_wait {
            self.wait(listener, id, wish, actions);
        } else {
            let mut attempt = self.attempt(listener, id, wish, source);
            if let Some(attempt) = &mut attempt {
                self.lend(attempt);
            }
            actions.extend(attempt.map(Action::Link));
        }
    }

    /// Who moves the bytes of a connection within this host; none: the kernel.
    const fn mode(&self, is_same: bool, verdict: Verdict) -> Option<Mode> {
        let may_share = is_same || matches!(verdict, Verdict::Direct);
        match self.settings.carriage {
            Carriage::Direct | Carriage::Auto if may_share => Some(Mode::Direct),
            Carriage::Proxy | Carriage::Auto if self.has_planes => Some(Mode::Proxy),
            _ => None,
        }
    }

    /// Puts a connection behind those that wait for a listener without room.
    fn wait(&mut self, listener: ListenerId, id: ClientId, wish: Wish, actions: &mut Vec<Action>) {
        if wish.no_wait {
            return self.turn_away(id, wish.serial, actions);
        }
        let limits = self.settings.limits;
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let user = self.users.entry(client.credentials.user).or_default();
        let too_many = client.waiting >= limits.waiting_per_client_max
            || user.waiting >= limits.waiting_per_user_max;
        if too_many {
            return self.refuse(id, wish.serial, Errno::NOBUFS, actions);
        }
        if let Some(listener) = self.listeners.get_mut(listener) {
            client.waiting += 1;
            user.waiting += 1;
            listener.waiting.push_back((id, wish));
            self.counters.waited += 1;
        }
    }

    /// The name of whoever connects.
    fn local(&mut self, wish: Wish, source: IpAddr) -> Address {
        let peer = destination(wish.peer);
        let mut local = wish.local.canonical();
        // As the kernel has it: nobody is on the loopback interface for those who are not.
        let is_strange = local.ip().is_loopback() && !peer.ip().is_loopback();
        if local.ip().is_unspecified() || is_strange || local.ip().is_ipv4() != peer.ip().is_ipv4()
        {
            local = Address::new(source, local.port());
        }
        // The kernel gives low ports to root alone, and whoever accepts may go by that.
        if local.port() < LOW_PORTS && wish.credentials.user != 0 {
            local = local.with_port(0);
        }
        if local.port() == 0 {
            let listeners = &self.listeners;
            local = local.with_port(self.settings.ports.take(|port| listeners.has_port(port)));
        }
        local
    }

    /// The two names of a connection, each side's as a socket of its family shows them.
    fn attempt(
        &mut self,
        listener: ListenerId,
        client: ClientId,
        wish: Wish,
        source: IpAddr,
    ) -> Option<Attempt> {
        let user = wish.credentials.user;
        let peer = destination(wish.peer);
        let local = self.local(wish, source);
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
            wish,
            connecting: link(local, peer, wish.peer.is_mapped()),
            accepting: link(peer, local, accepts_v6),
            lent: 0,
        })
    }

    /// Lends ports for an attempt whose process may make its connections itself: it is of the listener's user, any name
    /// of its own will do, and nobody else's turn comes.
    fn lend(&mut self, attempt: &mut Attempt) {
        let wish = attempt.wish;
        let local = wish.local.canonical();
        let is_any = local.ip().is_unspecified() && local.port() == 0;
        let Some(found) = self.listeners.get(attempt.listener) else {
            return;
        };
        let may_lend = wish.wants_lease
            && is_any
            && attempt.connecting.mode == Mode::Direct
            && found.owner.user == wish.credentials.user
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
        let (id, wish) = (attempt.client, attempt.wish);
        let listener = attempt.listener;
        match outcome {
            Outcome::Done { room } => {
                self.counters.connections += 1;
                self.counters.proxied += u64::from(attempt.connecting.mode == Mode::Proxy);
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
                if wish.no_wait {
                    self.turn_away(id, wish.serial, actions);
                } else {
                    self.connect(id, wish, actions);
                }
            }
            Outcome::Gone => {
                self.end_listener(listener, actions);
                self.connect(id, wish, actions);
            }
            Outcome::Failed => self.leave_to_kernel(id, wish.serial, actions),
        }
        self.serve_waiting(listener, actions);
    }

    /// Makes the connection that waits first, if the listener has room.
    fn serve_waiting(&mut self, id: ListenerId, actions: &mut Vec<Action>) {
        let Some(listener) = self.listeners.get_mut(id) else {
            return;
        };
        if listener.full {
            return;
        }
        let Some((client, wish)) = listener.waiting.pop_front() else {
            return;
        };
        self.count_out(client);
        // By this listener and no other: its next one is only served once this one is.
        let is_there = self.clients.contains_key(&client);
        if let Some(source) = wish.source.filter(|_| is_there) {
            match self.attempt(id, client, wish, source) {
                Some(attempt) => actions.push(Action::Link(attempt)),
                // Planes that it waited for are gone.
                None => self.leave_to_kernel(client, wish.serial, actions),
            }
        }
    }

    /// One less of a process's connections waits.
    fn count_out(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        client.waiting -= 1;
        if let Some(user) = self.users.get_mut(&client.credentials.user) {
            user.waiting -= 1;
        }
    }

    /// A listener is no more; whoever waits for it is served by another, or by the kernel.
    fn end_listener(&mut self, id: ListenerId, actions: &mut Vec<Action>) {
        let left = self.close_listener(id, actions);
        for (client, wish) in left.into_iter().flat_map(|listener| listener.waiting) {
            self.count_out(client);
            self.connect(client, wish, actions);
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

    /// Nobody has room, and whoever asks does not wait here.
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

/// Whom a peer's address means: an address of IPv4 as such, and this host for the unspecified one.
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
