//! The registry against a model that recomputes everything.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use millrace_broker::registry::{
    Action, ClientId, ConnectRequest, Credentials, Event, Limits, ListenerId, Outcome, Proof,
    Registry, Settings, destination,
};
use millrace_broker::rules::Rules;
use millrace_random::Random;
use millrace_stream::Address;
use millrace_stream::control::Message;

const USERS: u64 = 3;
const PORTS: u64 = 3;
/// A user that may connect directly to others, by a rule.
const TRUSTED: u32 = 2;

const LIMITS: Limits = Limits {
    clients_max: 12,
    clients_per_user_max: 6,
    listeners_max: 10,
    listeners_per_user_max: 5,
    waiting_per_client_max: 3,
    waiting_per_user_max: 5,
    backlog_max: 3,
    ..Limits::DEFAULT
};

/// Prints the seed of a failed test.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the seed is {}", self.0);
        }
    }
}

struct Client {
    user: u32,
    greeted: bool,
}

struct Listener {
    user: u32,
    proof: Proof,
    capacity: usize,
    /// Connections in the channel.
    queued: usize,
    /// Whether the registry was last informed that the channel is full.
    known_full: bool,
}

/// The true state, independent of the registry.
struct Model {
    random: Random,
    registry: Registry,
    clients: BTreeMap<ClientId, Client>,
    listeners: BTreeMap<ListenerId, Listener>,
    /// Requests without an answer.
    open: BTreeMap<(ClientId, u32), ConnectRequest>,
    todo: VecDeque<Action>,
    pending_proof: Option<(Proof, u32)>,
    /// Requests whose connections could not be made.
    failed: BTreeSet<(ClientId, u32)>,
    last_client: u64,
    last_serial: u32,
    last_socket: u64,
    connected: u64,
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

impl Model {
    fn new(seed: u64) -> Self {
        let text = format!("[[rule]]\naction = \"direct\"\nuser = {TRUSTED}\n");
        let rules = Rules::parse(&text, &|_| None).expect("they make sense");
        let settings = Settings {
            rules,
            limits: LIMITS,
            ..Settings::default()
        };
        Self {
            random: Random::new(seed),
            registry: Registry::new(settings),
            clients: BTreeMap::new(),
            listeners: BTreeMap::new(),
            open: BTreeMap::new(),
            todo: VecDeque::new(),
            pending_proof: None,
            failed: BTreeSet::new(),
            last_client: 0,
            last_serial: 0,
            last_socket: 0,
            connected: 0,
        }
    }

    fn number(&mut self, bound: u64) -> u32 {
        u32::try_from(self.random.below(bound)).expect("it is small")
    }

    /// A client, mostly one in this state.
    fn any_client(&mut self, greeted: bool) -> Option<ClientId> {
        let all = self.random.chance(1, 64);
        let fits = |client: &Client| all || client.greeted == greeted;
        let fitting = self.clients.iter().filter(|(_, client)| fits(client));
        let ids: Vec<ClientId> = fitting.map(|(id, _)| *id).collect();
        (!ids.is_empty()).then(|| ids[self.random.index(ids.len())])
    }

    fn any_listener(&mut self) -> Option<ListenerId> {
        let ids: Vec<ListenerId> = self.listeners.keys().copied().collect();
        (!ids.is_empty()).then(|| ids[self.random.index(ids.len())])
    }

    fn address(&mut self, of: &[&str]) -> Address {
        let ip = ip(of[self.random.index(of.len())]);
        let port = u16::try_from(self.random.below(PORTS)).expect("it is small");
        Address::new(ip, 80 + port)
    }

    fn step(&mut self) {
        match self.random.below(64) {
            0..=3 => self.arrive(),
            4..=9 => self.hello(),
            10..=15 => self.listen(),
            16..=47 => self.connect(),
            48..=59 => self.accept(),
            60 => self.depart(),
            _ => self.silence(),
        }
        self.check();
    }

    fn happen(&mut self, event: Event) {
        self.tell(event);
        while let Some(action) = self.todo.pop_front() {
            self.perform(action);
        }
    }

    fn tell(&mut self, event: Event) {
        let mut actions = Vec::new();
        self.registry.handle(event, &mut actions);
        self.todo.extend(actions);
    }

    fn arrive(&mut self) {
        self.last_client += 1;
        let id = ClientId(self.last_client);
        let user = self.number(USERS);
        let greeted = false;
        self.clients.insert(id, Client { user, greeted });
        let credentials = Credentials { user, process: 1 };
        self.happen(Event::Arrived {
            client: id,
            credentials,
        });
    }

    fn hello(&mut self) {
        let Some(client) = self.any_client(false) else {
            return;
        };
        self.last_serial += 1;
        let serial = self.last_serial;
        self.happen(Event::Hello { client, serial });
        if let Some(client) = self.clients.get_mut(&client) {
            client.greeted = true;
        }
    }

    fn listen(&mut self) {
        let Some(client) = self.any_client(true) else {
            return;
        };
        self.last_serial += 1;
        self.last_socket += 1;
        let address = self.address(&["127.0.0.1", "127.0.0.2", "0.0.0.0", "::1", "::"]);
        let proof = Proof {
            address,
            only_v6: self.random.chance(1, 3),
            reuse_port: self.random.chance(2, 3),
            socket: self.last_socket,
        };
        self.pending_proof = Some((proof, self.clients[&client].user));
        let backlog = self.number(5);
        self.happen(Event::Listen {
            client,
            serial: self.last_serial,
            owner: Credentials {
                user: self.clients[&client].user,
                process: 1,
            },
            backlog,
            proof,
        });
    }

    fn connect(&mut self) {
        let Some(client) = self.any_client(true) else {
            return;
        };
        self.last_serial += 1;
        let peers = [
            "127.0.0.1",
            "127.0.0.2",
            "0.0.0.0",
            "::1",
            "::",
            "::ffff:127.0.0.1",
        ];
        let peer = self.address(&peers);
        let source = if destination(peer).ip().is_ipv4() {
            ip("127.0.0.1")
        } else {
            ip("::1")
        };
        let user = self.clients[&client].user;
        let request = ConnectRequest {
            credentials: Credentials { user, process: 1 },
            serial: self.last_serial,
            no_wait: self.random.chance(1, 4),
            wants_lease: self.random.chance(1, 4),
            local: Address::new(ip("0.0.0.0"), 0),
            peer,
            source: self.random.chance(15, 16).then_some(source),
        };
        if self.clients[&client].greeted {
            self.open.insert((client, request.serial), request);
        }
        self.happen(Event::Connect { client, request });
    }

    fn accept(&mut self) {
        let Some(id) = self.any_listener() else {
            return;
        };
        let listener = self.listeners.get_mut(&id).expect("it was drawn from them");
        listener.queued = listener.queued.saturating_sub(1);
        if listener.known_full {
            listener.known_full = false;
            self.happen(Event::Room { listener: id });
        }
    }

    fn depart(&mut self) {
        let Some(id) = self.any_client(true) else {
            return;
        };
        self.clients.remove(&id);
        self.open.retain(|(client, _), _| *client != id);
        self.happen(Event::Departed { client: id });
    }

    fn silence(&mut self) {
        let Some(listener) = self.any_listener() else {
            return;
        };
        if self.random.chance(1, 2) {
            // The next attempt will find it.
            let found = self.listeners.get_mut(&listener);
            found.expect("it was drawn from them").capacity = 0;
        } else {
            self.happen(Event::Silent { listener });
        }
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Reply { client, packet } => self.replied(client, packet.serial, packet.message),
            Action::Open {
                listener, backlog, ..
            } => {
                let (proof, user) = self.pending_proof.take().expect("one asked for it");
                assert!(backlog <= LIMITS.backlog_max);
                let capacity = backlog as usize + 1;
                let opened = Listener {
                    user,
                    proof,
                    capacity,
                    queued: 0,
                    known_full: false,
                };
                assert!(self.listeners.insert(listener, opened).is_none());
            }
            Action::Link(attempt) => {
                let outcome = self.link(&attempt);
                self.tell(Event::Linked { attempt, outcome });
            }
            Action::ConnectRemote { .. } => panic!("no host has said that it is there"),
            Action::Disconnect { client } => {
                self.clients.remove(&client);
                self.open.retain(|(other, _), _| *other != client);
            }
            Action::Close { listener } => {
                assert!(self.listeners.remove(&listener).is_some(), "it was open");
            }
        }
    }

    fn replied(&mut self, client: ClientId, serial: u32, message: Message) {
        let request = self.open.remove(&(client, serial));
        let failed = self.failed.remove(&(client, serial));
        if message != Message::Kernel || failed {
            return;
        }
        // Or no listener of the same user exists, or none has room.
        if let Some(request) = request.filter(|request| !request.no_wait) {
            let able = self.expect(client, &request);
            assert_eq!(able, None, "{client:?} {request:?}");
        }
    }

    /// The listeners that may serve a request, by the documented rules.
    fn expect(&self, client: ClientId, request: &ConnectRequest) -> Option<Vec<ListenerId>> {
        request.source?;
        let user = self.clients.get(&client)?.user;
        let peer = destination(request.peer);
        let at = |address: &str, takes_v4: bool| -> Vec<ListenerId> {
            let wanted = Address::new(ip(address), peer.port());
            let fits = |listener: &Listener| {
                listener.proof.address == wanted && !(takes_v4 && listener.proof.only_v6)
            };
            let found = self.listeners.iter().filter(|(_, listener)| fits(listener));
            found.map(|(id, _)| *id).collect()
        };
        let levels = if peer.ip().is_ipv4() {
            vec![
                at(&peer.ip().to_string(), false),
                at("0.0.0.0", false),
                at("::", true),
            ]
        } else {
            vec![at(&peer.ip().to_string(), false), at("::", false)]
        };
        let level = levels.into_iter().find(|level| !level.is_empty())?;
        let direct = |id: &&ListenerId| user == TRUSTED || self.listeners[id].user == user;
        let able: Vec<ListenerId> = level.iter().filter(direct).copied().collect();
        // Users that share a port take turns at random.
        (able.len() == level.len()).then_some(able)
    }

    fn link(&mut self, attempt: &millrace_broker::registry::Attempt) -> Outcome {
        let key = (attempt.client, attempt.request.serial);
        assert!(
            self.open.contains_key(&key),
            "it was asked for once: {attempt:?}"
        );
        let client = &self.clients[&attempt.client];
        let Some(listener) = self.listeners.get(&attempt.listener) else {
            return Outcome::Gone;
        };
        assert!(client.user == TRUSTED || client.user == listener.user);
        assert_eq!(
            attempt.connecting.local.canonical(),
            attempt.accepting.peer.canonical()
        );
        assert_eq!(
            attempt.connecting.peer.canonical(),
            attempt.accepting.local.canonical()
        );
        assert_ne!(attempt.connecting.local.port(), 0);
        // A waiting request stays with its listener, even if a nearer one was announced since.
        let fresh = attempt.request.serial == self.last_serial;
        if let Some(able) = self
            .expect(attempt.client, &attempt.request)
            .filter(|_| fresh)
        {
            assert!(able.contains(&attempt.listener), "{able:?} {attempt:?}");
        }
        if listener.capacity == 0 {
            return Outcome::Gone;
        }
        let lacking = self.random.chance(1, 32);
        let listener = self
            .listeners
            .get_mut(&attempt.listener)
            .expect("it is there");
        if listener.queued >= listener.capacity {
            listener.known_full = true;
            return Outcome::Full;
        }
        if lacking {
            self.failed.insert(key);
            return Outcome::Failed;
        }
        if attempt.lent > 0 {
            assert!(attempt.request.wants_lease);
            assert_eq!(self.clients[&attempt.client].user, listener.user);
            self.open.remove(&key);
            return Outcome::Lent;
        }
        listener.queued += 1;
        let room = listener.queued < listener.capacity;
        listener.known_full = !room;
        self.open.remove(&key);
        self.connected += 1;
        Outcome::Done { room }
    }

    fn check(&self) {
        let mut waiting = 0;
        for (id, listener) in self.registry.listeners() {
            let real = &self.listeners[&id];
            assert_eq!(real.proof, listener.proof);
            assert!(
                real.known_full || listener.waiting_count() == 0,
                "{id:?} has room"
            );
            waiting += listener.waiting_count();
        }
        assert_eq!(self.registry.listeners().count(), self.listeners.len());
        assert!(self.listeners.len() <= LIMITS.listeners_max);
        assert_eq!(
            waiting,
            self.open.len(),
            "every request is answered or waits"
        );
        let mut clients = 0;
        let mut sum = 0;
        for (id, client) in self.registry.clients() {
            assert_eq!(client.credentials.user, self.clients[&id].user);
            assert!(client.waiting <= LIMITS.waiting_per_client_max);
            sum += client.waiting;
            clients += 1;
        }
        assert_eq!((clients, sum), (self.clients.len(), waiting));
        assert!(clients <= LIMITS.clients_max);
        assert_eq!(self.registry.counters().connections, self.connected);
    }
}

#[test]
fn the_registry_does_what_is_written_down() {
    let (mut connected, mut waited) = (0, 0);
    for seed in 0..400 {
        let _seed = Seed(seed);
        let mut model = Model::new(seed);
        for _ in 0..400 {
            model.step();
        }
        connected += model.connected;
        waited += model.registry.counters().waited;
    }
    // Otherwise nothing was shown.
    assert!(
        connected > 10_000 && waited > 1000,
        "{connected} connections, {waited} waited"
    );
}
