//! The network layer through user-level sockets: the same as through the kernel's, and what is theirs alone.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bson::doc;
use millrace::memory::{Limits, Share};
use millrace::network::{Interest, Listener, NetworkConfig, Transport, WindowListener};
use millrace_stream::sockets::{Channel, Interest as StreamInterest};
use millrace_wire::MsgFlags;
use rustix::net::SendFlags;
use tempfile::TempDir;

use super::{closed, holding};
use crate::stage::{Client, PATIENCE, Said, Stage};
use crate::windows::{Broker, Through};

/// Where the child of a test connects to: the broker's path and the server's port.
const CHILD_BROKER: &str = "MILLRACE_TEST_BROKER";
const CHILD_PORT: &str = "MILLRACE_TEST_PORT";

/// A stage, its broker and the folder of that.
struct Place {
    stage: Stage,
    broker: Option<Broker>,
    path: PathBuf,
    _folder: TempDir,
}

impl Place {
    fn with(config: NetworkConfig, has_broker: bool) -> Self {
        let folder = TempDir::with_prefix("millrace-").expect("a temporary folder");
        let path = folder.path().join("sockets");
        let broker = has_broker.then(|| Broker::start(&path));
        Self {
            stage: Stage::announced(config, Limits::default(), Some(&path)),
            broker,
            path,
            _folder: folder,
        }
    }

    fn one_worker() -> Self {
        let config = NetworkConfig {
            workers: 1,
            ..NetworkConfig::default()
        };
        Self::with(config, true)
    }

    fn broker(&self) -> &Broker {
        self.broker.as_ref().expect("this place has one")
    }

    fn client(&self) -> Client<Through> {
        Client::over(Through::connect(&self.path, self.stage.address))
    }

    /// Waits until the broker that listens now knows of the server.
    fn wait_until_announced(&self) {
        let until = Instant::now() + PATIENCE;
        let mut channel = Channel::open(&self.path).expect("a broker listens");
        while channel
            .connect(self.stage.address)
            .expect("the broker answers")
            .is_none()
        {
            assert!(Instant::now() < until, "the server was not announced");
            std::thread::yield_now();
        }
    }
}

/// Once without spinning before a worker sleeps, once with.
fn for_each_spin_time(test: impl Fn(&Place)) {
    for spin_time_max in [Duration::ZERO, NetworkConfig::default().spin_time_max] {
        test(&Place::with(
            NetworkConfig {
                workers: 2,
                spin_time_max,
                ..NetworkConfig::default()
            },
            true,
        ));
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    for_each_spin_time(|place| {
        place.stage.engine.hooks().permit_syncs(100);
        place.stage.puppet.release();
        let mut client = place.client();
        let mut bytes = Vec::new();
        for number in 0..200 {
            let body = match number % 5 {
                0 => doc! { "write": 1 },
                1 => doc! { "hold": 1 },
                2 => doc! { "wait": 0 },
                3 => doc! { "writeLong": 1 },
                _ => doc! { "echo": number },
            };
            bytes.extend(client.message(MsgFlags::NONE, body));
        }
        client.write(&bytes);
        for number in 0..200 {
            let expected = match number % 5 {
                0 | 3 => doc! { "parked": true },
                1 => doc! { "held": true },
                2 => doc! { "resumed": "timed out" },
                _ => doc! { "echo": number },
            };
            assert_eq!(client.receive(), expected, "reply {number}");
        }
    });
}

#[test]
fn messages_longer_than_the_rings_come_whole() {
    for_each_spin_time(|place| {
        let mut client = place.client();
        let mut bytes = client.message(MsgFlags::NONE, doc! { "echo": 1 });
        bytes.extend(client.message(MsgFlags::NONE, doc! { "echo": 2 }));
        for byte in &bytes {
            client.write(&[*byte]);
        }
        assert_eq!(client.receive(), doc! { "echo": 1 });
        assert_eq!(client.receive(), doc! { "echo": 2 });
        let long = "y".repeat(10_000_000);
        assert_eq!(client.call(doc! { "echo": &long }), doc! { "echo": &long });
    });
}

#[test]
fn both_kinds_of_connections_are_served_side_by_side() {
    for_each_spin_time(|place| {
        let mut windows: Vec<_> = (0..200).map(|_| place.client()).collect();
        let mut kernel: Vec<_> = (0..20)
            .map(|_| Client::connect(place.stage.address))
            .collect();
        for round in 0..5 {
            for client in &mut windows {
                client.send(doc! { "echo": round });
            }
            for client in &mut kernel {
                client.send(doc! { "echo": round });
            }
            for client in &mut windows {
                assert_eq!(client.receive(), doc! { "echo": round });
            }
            for client in &mut kernel {
                assert_eq!(client.receive(), doc! { "echo": round });
            }
        }
        assert_eq!(place.stage.open_connections(), 220);
        let used = place.stage.budget.gauge(Share::Messages).used;
        assert!(
            used <= 2 * 64 * 16 * 1024,
            "{used} bytes are held for idle connections"
        );
        let counters = place.stage.totals.as_ref().expect("it is announced");
        let totals = counters.read();
        assert_eq!((totals.accepts, totals.kernel_accepts), (200, 20));
        assert!(totals.sent > 0 && totals.received > 0, "{totals:?}");
        // The broker is told within a tick; a reply may be here before it is counted.
        let until = Instant::now() + PATIENCE;
        while place.broker().totals() != counters.read() {
            assert!(Instant::now() < until, "the totals were not reported");
            std::thread::yield_now();
        }
    });
}

/// Counts how often each of its connections is looked at, by the order in which they came.
#[derive(Debug)]
struct Counting {
    listener: WindowListener,
    looks: Looks,
}

type Looks = Arc<Mutex<Vec<Arc<AtomicU64>>>>;

#[derive(Debug)]
struct Counted {
    transport: Box<dyn Transport>,
    looks: Arc<AtomicU64>,
}

impl Listener for Counting {
    fn accept(&mut self) -> io::Result<Box<dyn Transport>> {
        let transport = self.listener.accept()?;
        let looks = Arc::default();
        let mut all = self.looks.lock().expect("no panics");
        all.push(Arc::clone(&looks));
        Ok(Box::new(Counted { transport, looks }))
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.listener.readiness()
    }

    fn address(&self) -> String {
        self.listener.address()
    }
}

impl Transport for Counted {
    fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        self.transport.read(buffer)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.transport.write(bytes)
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.transport.readiness()
    }

    fn peer(&self) -> String {
        self.transport.peer()
    }

    fn is_ready(&self, interest: Interest) -> Option<bool> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.transport.is_ready(interest)
    }

    fn arm_wakeup(&mut self, interest: Interest) -> bool {
        self.transport.arm_wakeup(interest)
    }

    fn drain_wakeup(&mut self) -> bool {
        self.transport.drain_wakeup()
    }
}

#[test]
fn idle_connections_are_not_looked_at() {
    let config = NetworkConfig {
        workers: 1,
        ..NetworkConfig::default()
    };
    let looks = Looks::default();
    let around = |listener| {
        let looks = Arc::clone(&looks);
        Box::new(Counting { listener, looks }) as Box<dyn Listener>
    };
    let folder = TempDir::with_prefix("millrace-").expect("a temporary folder");
    let path = folder.path().join("sockets");
    let _broker = Broker::start(&path);
    let stage = Stage::listening(config, Limits::default(), Some(&path), around);
    let client = || Client::over(Through::connect(&path, stage.address));
    let mut busy = client();
    busy.call(doc! { "echo": 0 });
    let mut idle: Vec<_> = (0..50).map(|_| client()).collect();
    for client in &mut idle {
        client.call(doc! { "echo": 1 });
    }
    let counts = || -> Vec<u64> {
        let looks = looks.lock().expect("no panics");
        looks.iter().map(|l| l.load(Ordering::Relaxed)).collect()
    };
    // Once all have been idle for a while, nobody looks at them however busy the other is.
    let until = Instant::now() + PATIENCE;
    loop {
        let before = counts();
        for _ in 0..100 {
            busy.call(doc! { "echo": 2 });
        }
        let after = counts();
        assert!(after[0] >= before[0] + 100, "{before:?} {after:?}");
        if after[1..] == before[1..] {
            break;
        }
        assert!(Instant::now() < until, "{before:?} {after:?}");
    }
    for client in &mut idle {
        assert_eq!(client.call(doc! { "echo": 3 }), doc! { "echo": 3 });
    }
}

#[test]
fn kernel_connections_are_served_while_windows_are_busy() {
    let place = Place::one_worker();
    let mut busy = place.client();
    // So many requests are always on the way.
    for _ in 0..8 {
        busy.send(doc! { "echo": 0 });
    }
    let mut kernel = Client::connect(place.stage.address);
    for number in 0..50 {
        kernel.send(doc! { "echo": number });
        kernel
            .stream
            .set_nonblocking(true)
            .expect("a socket can be non-blocking");
        let until = Instant::now() + PATIENCE;
        loop {
            assert_eq!(busy.receive(), doc! { "echo": 0 });
            busy.send(doc! { "echo": 0 });
            match kernel.stream.peek(&mut [0; 1]) {
                Ok(_) => break,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            assert!(Instant::now() < until, "the kernel's client starves");
        }
        kernel
            .stream
            .set_nonblocking(false)
            .expect("a socket can be blocking");
        assert_eq!(kernel.receive(), doc! { "echo": number });
    }
}

#[test]
fn a_client_that_does_not_read_is_not_read_either() {
    let place = Place::one_worker();
    let mut slow = place.client();
    let padded = doc! { "big": 100_000, "padding": "p".repeat(20_000) };
    let request = slow.message(MsgFlags::NONE, padded);
    let (mut sent, mut requests) = (0, 0_u64);
    'sending: loop {
        let mut rest = &request[..];
        while !rest.is_empty() {
            match slow.stream.stream.send(rest) {
                Ok(count) => {
                    rest = &rest[count..];
                    sent += count;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    // Full for now; full for good once the server has served what it will serve.
                    let mut other = place.client();
                    let before = place.stage.counters.requests.load(Ordering::Relaxed);
                    assert_eq!(other.call(doc! { "echo": 1 }), doc! { "echo": 1 });
                    let after = place.stage.counters.requests.load(Ordering::Relaxed);
                    let room = StreamInterest {
                        readable: false,
                        writable: true,
                    };
                    if after == before + 1 && !slow.stream.stream.is_ready(room) {
                        break 'sending;
                    }
                }
                Err(error) => panic!("{error}"),
            }
        }
        requests += 1;
    }
    let served = place.stage.counters.requests.load(Ordering::Relaxed);
    assert!(sent > 0 && requests > 0, "{served} were served");
    let held = place.stage.budget.gauge(Share::Messages).used;
    assert!(
        held < 2_000_000,
        "{held} bytes are held for a client that does not read"
    );
    // The client reads: everything comes that was sent whole.
    let expected = doc! { "big": "x".repeat(100_000) };
    for _ in 0..requests {
        assert_eq!(slow.receive(), expected);
    }
}

#[test]
fn the_request_of_a_client_that_left_is_interrupted() {
    for_each_spin_time(|place| {
        let mut client = place.client();
        client.send(doc! { "hold": 1 });
        place.stage.expect(holding);
        drop(client);
        place
            .stage
            .expect(|said| matches!(said, Said::Disconnected(_)).then_some(()));
        place.stage.expect(closed);
    });
}

#[test]
fn so_is_that_of_one_that_sends_no_more() {
    let place = Place::one_worker();
    let mut client = place.client();
    client.send(doc! { "hold": 1 });
    place.stage.expect(holding);
    assert!(client.stream.stream.finish());
    place
        .stage
        .expect(|said| matches!(said, Said::Disconnected(_)).then_some(()));
    place.stage.expect(closed);
    client.expect_end();
}

#[test]
fn a_parked_reply_reaches_a_client_that_has_finished_sending() {
    let place = Place::one_worker();
    let mut client = place.client();
    client.send(doc! { "write": 1 });
    place
        .stage
        .expect(|said| matches!(said, Said::Parking(_)).then_some(()));
    assert!(client.stream.stream.finish());
    place.stage.engine.hooks().permit_syncs(1);
    assert_eq!(client.receive(), doc! { "parked": true });
    client.expect_end();
}

#[test]
fn a_killed_client_ends_no_other_connection() {
    let place = Place::one_worker();
    let mut other = place.client();
    let mut child = Command::new(std::env::current_exe().expect("this is a program"))
        .args(["--exact", "network::windows::child_that_is_killed"])
        .env(CHILD_BROKER, &place.path)
        .env(CHILD_PORT, place.stage.address.port().to_string())
        .stdout(Stdio::null())
        .spawn()
        .expect("this program starts");
    place.stage.expect(holding);
    assert_eq!(other.call(doc! { "echo": 1 }), doc! { "echo": 1 });
    child.kill().expect("it runs");
    child.wait().expect("it is ours");
    place
        .stage
        .expect(|said| matches!(said, Said::Disconnected(_)).then_some(()));
    place.stage.expect(closed);
    assert_eq!(other.call(doc! { "echo": 2 }), doc! { "echo": 2 });
}

/// No test but a part of one: sends a request and half of another, and waits to be killed.
#[test]
fn child_that_is_killed() {
    let (Some(path), Ok(port)) = (std::env::var_os(CHILD_BROKER), std::env::var(CHILD_PORT)) else {
        return;
    };
    let port: u16 = port.parse().expect("the parent has set it");
    let mut channel = Channel::open(path.as_ref()).expect("the broker is there");
    let mut stream = channel
        .connect(SocketAddr::from(([127, 0, 0, 1], port)))
        .expect("the broker answers")
        .expect("the server has announced its socket");
    let mut encoder = Client::over(io::Cursor::new(Vec::new()));
    let mut bytes = encoder.message(MsgFlags::NONE, doc! { "hold": 1 });
    bytes.extend_from_within(..bytes.len() / 2);
    assert_eq!(stream.send(&bytes).expect("there is room"), bytes.len());
    loop {
        std::thread::park();
    }
}

#[test]
fn a_violation_ends_its_own_connection_alone() {
    let place = Place::one_worker();
    let mut other = place.client();
    let mut bad = place.client();
    assert_eq!(bad.call(doc! { "echo": 1 }), doc! { "echo": 1 });
    let bell = bad.stream.stream.as_fd();
    rustix::net::send(bell, b"GET / HTTP/1.1", SendFlags::NOSIGNAL).expect("there is room");
    bad.expect_end();
    place.stage.expect(closed);
    assert_eq!(other.call(doc! { "echo": 1 }), doc! { "echo": 1 });
    // A bell that is shut down has no other side any more.
    let shut = place.client();
    rustix::net::shutdown(shut.stream.stream.as_fd(), rustix::net::Shutdown::Write)
        .expect("it is connected");
    place.stage.expect(closed);
    assert_eq!(other.call(doc! { "echo": 2 }), doc! { "echo": 2 });
}

#[test]
fn connections_survive_the_broker_and_the_next_one_learns_of_the_listener() {
    let mut place = Place::one_worker();
    let mut client = place.client();
    assert_eq!(client.call(doc! { "echo": 1 }), doc! { "echo": 1 });
    drop(place.broker.take());
    assert_eq!(client.call(doc! { "echo": 2 }), doc! { "echo": 2 });
    let mut kernel = Client::connect(place.stage.address);
    assert_eq!(kernel.call(doc! { "echo": 3 }), doc! { "echo": 3 });
    place.broker = Some(Broker::start(&place.path));
    place.wait_until_announced();
    let mut new = place.client();
    assert_eq!(new.call(doc! { "echo": 4 }), doc! { "echo": 4 });
    assert_eq!(client.call(doc! { "echo": 5 }), doc! { "echo": 5 });
}

#[test]
fn a_server_starts_without_a_broker() {
    let mut place = Place::with(NetworkConfig::default(), false);
    let mut kernel = Client::connect(place.stage.address);
    assert_eq!(kernel.call(doc! { "echo": 1 }), doc! { "echo": 1 });
    place.broker = Some(Broker::start(&place.path));
    place.wait_until_announced();
    assert_eq!(place.client().call(doc! { "echo": 2 }), doc! { "echo": 2 });
}

#[test]
fn connections_above_the_limit_are_closed_at_once() {
    let config = NetworkConfig {
        workers: 2,
        connections_max: 3,
        ..NetworkConfig::default()
    };
    let place = Place::with(config, true);
    let mut clients: Vec<_> = (0..3).map(|_| place.client()).collect();
    for client in &mut clients {
        assert_eq!(client.call(doc! { "echo": 1 }), doc! { "echo": 1 });
    }
    place.client().expect_end();
    assert_eq!(place.stage.counters.rejected.load(Ordering::Relaxed), 1);
}

#[test]
fn shutdown_answers_what_runs_and_closes_what_is_idle() {
    let mut place = Place::one_worker();
    let mut idle = place.client();
    assert_eq!(idle.call(doc! { "echo": 1 }), doc! { "echo": 1 });
    let mut running = place.client();
    running.send(doc! { "hold": 1 });
    place.stage.expect(holding);
    let mut writing = place.client();
    writing.send(doc! { "write": 1 });
    place
        .stage
        .expect(|said| matches!(said, Said::Parking(_)).then_some(()));

    std::thread::scope(|scope| {
        let (stage, network) = (&place.stage, &place.stage.network);
        let stopping = scope.spawn(|| network.stop());
        stage.expect(|said| (*said == Said::Interrupted).then_some(()));
        idle.expect_end();
        stage.puppet.release();
        stage.engine.hooks().permit_syncs(1);
        assert_eq!(running.receive(), doc! { "held": true });
        assert_eq!(writing.receive(), doc! { "parked": true });
        running.expect_end();
        writing.expect_end();
        stopping.join().expect("stopping does not panic");
    });
    assert_eq!(place.stage.open_connections(), 0);
    // Everything was reported at the end, and the kernel has connections again.
    let totals = place.stage.totals.as_ref().expect("it is announced").read();
    assert_eq!(place.broker().totals(), totals);
    let mut channel = Channel::open(&place.path).expect("the broker is there");
    let left = channel
        .connect(place.stage.address)
        .expect("the broker answers");
    assert!(left.is_none(), "nobody listens any more");
    place.stage.stop();
}
