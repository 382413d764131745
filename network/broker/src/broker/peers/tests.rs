//! Two hosts with a network that loses connections, and what must hold of the actions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use millrace_random::Random;

use super::*;

const SEEDS: u64 = 60;
const EVENTS: usize = 400;
const PARTITIONS: u16 = 2;
const NAMES: [&str; 2] = ["left", "right"];

/// Bytes that differ at each call: a nonce is never used twice.
fn fill(bytes: &mut [u8]) {
    static CALLS: AtomicU64 = AtomicU64::new(1);
    let call = CALLS.fetch_add(1, Ordering::Relaxed).to_le_bytes();
    for (byte, value) in bytes.iter_mut().zip(call) {
        *byte = value;
    }
}

fn own(host: usize) -> IpAddr {
    IpAddr::from([192, 0, 2, [1, 2][host]])
}

/// One host and its descriptors.
#[derive(Debug)]
struct Host {
    peers: Peers,
    last: u64,
    /// Open connections: the wire, and its end.
    open: BTreeMap<u64, (usize, usize)>,
    closed: BTreeSet<u64>,
    /// Partitions that the forwarders have joined: the index, and whether the peer has answered.
    links: BTreeMap<u32, (u16, bool)>,
    registered: Option<Vec<IpAddr>>,
    messages: usize,
}

/// A TCP connection: the bytes to each end, and whether it is open.
#[derive(Debug, Default)]
struct Wire {
    /// The number at each host; `None` at an unknown host.
    ends: [Option<(usize, u64)>; 2],
    bytes: [VecDeque<u8>; 2],
    is_over: bool,
}

#[derive(Debug)]
struct Fixture {
    random: Random,
    hosts: Vec<Host>,
    wires: Vec<Wire>,
    /// Whether connects, windows and address tables fail now and then.
    is_faulty: bool,
}

impl Fixture {
    fn new(seed: u64) -> Self {
        let mut fixture = Self {
            random: Random::new(seed),
            hosts: Vec::new(),
            wires: Vec::new(),
            is_faulty: true,
        };
        let mut first = Vec::new();
        for (host, name) in NAMES.into_iter().enumerate() {
            let mut actions = Vec::new();
            let dials = host == 0 || seed % 2 == 0;
            let settings = PeerSettings {
                name: name.to_owned(),
                secret: Secret::new(&[7; 32]).expect("it is long enough"),
                listen: None,
                peers: dials
                    .then(|| SocketAddr::new(own(1 - host), 1))
                    .into_iter()
                    .collect(),
                windows: vec![(None, PathBuf::from("window"))],
                addresses: Vec::new(),
                partitions: PARTITIONS + u16::from(host == 1),
                fill_random: fill,
            };
            let peers = Peers::new(settings, vec![own(host)], true, &mut actions);
            fixture.hosts.push(Host {
                peers,
                last: 0,
                open: BTreeMap::new(),
                closed: BTreeSet::new(),
                links: BTreeMap::new(),
                registered: None,
                messages: 0,
            });
            first.push(actions);
        }
        for (host, actions) in first.into_iter().enumerate() {
            fixture.perform_all(host, actions.into());
        }
        fixture
    }

    fn handle(&mut self, host: usize, event: PeerEvent) {
        let mut actions = Vec::new();
        self.hosts[host].peers.handle(event, &mut actions);
        self.perform_all(host, actions.into());
    }

    fn perform_all(&mut self, host: usize, mut todo: VecDeque<PeerAction>) {
        while let Some(action) = todo.pop_front() {
            if let Some(event) = self.perform(host, action) {
                let mut actions = Vec::new();
                self.hosts[host].peers.handle(event, &mut actions);
                todo.extend(actions);
            }
        }
    }

    fn fails(&mut self) -> bool {
        self.is_faulty && self.random.chance(1, 12)
    }

    fn perform(&mut self, host: usize, action: PeerAction) -> Option<PeerEvent> {
        let fails = self.fails();
        let it = &mut self.hosts[host];
        let is_closed = |number: &u64| it.closed.contains(number);
        match action {
            PeerAction::Dial { dial, address } => {
                assert_eq!((dial, address.ip()), (0, own(1 - host)));
                if fails {
                    let connected = Err("refused".to_owned());
                    return Some(PeerEvent::Dialled { dial, connected });
                }
                let connected = Ok(self.wire(host, Some(1 - host)));
                Some(PeerEvent::Dialled { dial, connected })
            }
            PeerAction::Flush { number } => {
                assert!(!is_closed(&number), "flush of {number} after its end");
                self.flush(host, number);
                None
            }
            PeerAction::Close { number } => {
                assert!(it.closed.insert(number), "{number} is closed twice");
                let (wire, _) = it.open.remove(&number).expect("it was open");
                self.wires[wire].is_over = true;
                None
            }
            PeerAction::ReadAddresses => {
                let more = fails.then(|| IpAddr::from([192, 0, 2, 9]));
                let addresses = more.into_iter().chain([own(host)]).collect();
                Some(PeerEvent::Addresses(addresses))
            }
            PeerAction::Measure {
                number, purpose, ..
            } => {
                let size = if fails {
                    Err("no such file".to_owned())
                } else {
                    Ok(1 << 20)
                };
                Some(PeerEvent::Measured {
                    number,
                    purpose,
                    size,
                })
            }
            other => self.perform_shared(host, other),
        }
    }

    /// Performs an action that concerns the registry or the forwarders.
    fn perform_shared(&mut self, host: usize, action: PeerAction) -> Option<PeerEvent> {
        let it = &mut self.hosts[host];
        let is_closed = |number: &u64| it.closed.contains(number);
        match action {
            PeerAction::HostUp {
                number,
                host: other,
                addresses,
            } => {
                assert!(!is_closed(&number), "{number} is up after its end");
                assert_eq!(other, host_number(NAMES[1 - host]));
                assert!(!it.links.is_empty() && it.links.values().all(|(_, joined)| *joined));
                assert!(!addresses.contains(&own(host)) && addresses.len() <= 2);
                it.registered = Some(addresses);
                let addresses = Vec::new();
                Some(PeerEvent::Taken { number, addresses })
            }
            PeerAction::HostDown { host: other } => {
                assert_eq!(other, host_number(NAMES[1 - host]));
                it.registered = None;
                None
            }
            PeerAction::Join(join) => {
                assert!(
                    join.index > 0 || it.links.is_empty(),
                    "others are left first"
                );
                assert!(join.index < PARTITIONS && it.registered.is_none());
                let old = it.links.insert(join.link, (join.index, false));
                assert_eq!(old, None, "the link {} is in use", join.link);
                None
            }
            PeerAction::Leave { partition, link } => {
                let left = it.links.remove(&link).expect("it was joined");
                assert_eq!(left.0, partition);
                None
            }
            PeerAction::Message { number, message } => {
                assert!(!it.links.is_empty(), "{message:?} of {number} before NAMES");
                it.messages += 1;
                None
            }
            PeerAction::Fail { number } => {
                assert!(is_closed(&number));
                None
            }
            other => panic!("{other:?} concerns a connection"),
        }
    }

    /// A connection of a host to another one, or of an unknown host to it. Returns its number at the first.
    fn wire(&mut self, from: usize, to: Option<usize>) -> u64 {
        let wire = self.wires.len();
        self.wires.push(Wire::default());
        let mut numbers = Vec::new();
        for (end, host) in [Some(from), to].into_iter().enumerate() {
            let Some(host) = host else {
                continue;
            };
            let it = &mut self.hosts[host];
            it.last += 1;
            it.open.insert(it.last, (wire, end));
            self.wires[wire].ends[end] = Some((host, it.last));
            numbers.push(it.last);
        }
        if let Some(to) = to {
            let (number, from) = (numbers[1], Some(own(from)));
            self.handle(to, PeerEvent::Accepted { number, from });
        }
        numbers[0]
    }

    fn flush(&mut self, host: usize, number: u64) {
        let it = &mut self.hosts[host];
        let (wire, end) = it.open[&number];
        // It may be disconnected already, by an event behind the one that queued the output.
        let Some(session) = it.peers.session(number) else {
            return;
        };
        let bytes = session.output().to_vec();
        session.sent(bytes.len());
        self.wires[wire].bytes[1 - end].extend(bytes);
    }

    /// Moves bytes of a connection to one of its hosts, or the news that it has ended.
    fn deliver(&mut self, host: usize, number: u64, most: usize) {
        if !self.hosts[host].open.contains_key(&number) {
            return;
        }
        self.flush(host, number);
        let (wire, end) = self.hosts[host].open[&number];
        let wire = &mut self.wires[wire];
        let count = most.min(wire.bytes[end].len());
        let bytes: Vec<u8> = wire.bytes[end].drain(..count).collect();
        if !bytes.is_empty() {
            self.handle(host, PeerEvent::Received { number, bytes });
        } else if wire.is_over {
            let why = "closed".to_owned();
            self.handle(host, PeerEvent::Closed { number, why });
        }
    }

    /// The forwarders of both hosts meet in a partition.
    fn join(&mut self) {
        let pending = |host: &Host| -> BTreeMap<u16, u32> {
            let links = host.links.iter().filter(|(_, (_, joined))| !joined);
            links.map(|(link, (index, _))| (*index, *link)).collect()
        };
        let has = |host: &Host, index| host.links.values().any(|(it, _)| *it == index);
        for host in [0, 1] {
            for (index, link) in pending(&self.hosts[host]) {
                if has(&self.hosts[1 - host], index) {
                    self.hosts[host].links.insert(link, (index, true));
                    self.handle(host, PeerEvent::Joined { link });
                }
            }
        }
    }

    fn event(&mut self) {
        let host = self.random.index(2);
        let numbers: Vec<u64> = self.hosts[host].open.keys().copied().collect();
        let number = numbers.get(self.random.index(numbers.len().max(1)));
        match (self.random.below(40), number.copied()) {
            (0..6, _) => self.handle(host, PeerEvent::Tick),
            (6..26, Some(number)) => {
                let most = self.random.index(600);
                self.deliver(host, number, most);
            }
            (26..32, _) => self.join(),
            (32, Some(number)) => {
                let why = "reset".to_owned();
                self.handle(host, PeerEvent::Closed { number, why });
            }
            (33, _) => {
                let links = &self.hosts[host].links;
                if let Some(link) = links.keys().next().copied() {
                    let loss = millrace_stream::partition::SessionError::HeartbeatTimeout;
                    self.handle(host, PeerEvent::Lost { link, loss });
                }
            }
            (34, _) if self.random.chance(1, 4) => {
                self.handle(host, PeerEvent::ForwardersExited);
                assert!(self.hosts[host].open.is_empty());
                self.handle(host, PeerEvent::ForwardersAttached);
            }
            (35 | 36, Some(number)) => {
                let message = PeerMessage::Refuse { token: 1, errno: 0 };
                let is_joined = self.hosts[host].peers.peer_link(number).is_some();
                if is_joined {
                    self.handle(host, PeerEvent::Send { number, message });
                }
            }
            (37, _) => {
                self.unknown_host(host);
            }
            _ => {}
        }
    }

    /// A connection from an unknown host, which may send bytes without meaning.
    fn unknown_host(&mut self, host: usize) {
        let number = self.wire(host, None);
        let from = Some(IpAddr::from([203, 0, 113, 1]));
        self.handle(host, PeerEvent::Accepted { number, from });
        if self.random.chance(1, 2) {
            let mut bytes = vec![0; 20];
            self.random.fill(&mut bytes);
            self.handle(host, PeerEvent::Received { number, bytes });
        }
    }

    fn is_alive(&self) -> bool {
        [0, 1].into_iter().all(|host| {
            let other = host_number(NAMES[1 - host]);
            let is_up = self.hosts[host].registered.as_deref() == Some(&[own(1 - host)]);
            is_up && self.hosts[host].peers.route(other).is_some()
        })
    }

    /// Without faults both hosts reach each other after some seconds.
    fn settle(&mut self) {
        self.is_faulty = false;
        for _ in 0..80 {
            for host in [0, 1] {
                self.handle(host, PeerEvent::Tick);
            }
            for _ in 0..6 {
                for host in [0, 1] {
                    let numbers: Vec<u64> = self.hosts[host].open.keys().copied().collect();
                    for number in numbers {
                        self.deliver(host, number, usize::MAX);
                    }
                }
                self.join();
            }
        }
        assert!(self.is_alive(), "{:#?}", self.hosts);
    }
}

#[test]
fn hosts_find_each_other_again() {
    let mut messages = 0;
    for seed in 0..SEEDS {
        let mut fixture = Fixture::new(seed);
        for _ in 0..EVENTS {
            fixture.event();
        }
        fixture.settle();
        messages += fixture
            .hosts
            .iter()
            .map(|host| host.messages)
            .sum::<usize>();
    }
    assert!(messages > 50, "{messages} messages arrived");
}

#[test]
fn unauthenticated_connections_are_few() {
    let mut fixture = Fixture::new(1);
    fixture.settle();
    let before: Vec<u64> = fixture.hosts[0].open.keys().copied().collect();
    for _ in 0..200 {
        fixture.unknown_host(0);
        assert!(fixture.hosts[0].open.len() <= UNAUTHENTICATED_MAX + before.len());
    }
    assert!(
        before
            .iter()
            .all(|number| fixture.hosts[0].open.contains_key(number))
    );
    assert!(fixture.is_alive());
    // They live for two seconds.
    for _ in 0..=AUTHENTICATE_TICKS {
        fixture.handle(0, PeerEvent::Tick);
    }
    assert_eq!(fixture.hosts[0].open.len(), before.len());
}
