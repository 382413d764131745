//! The time that a message may take to arrive: it runs while the server waits for the client, and only then.
//! The worker's time is set by the tests.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use bson::rawdoc;
use millrace_engine::{CommitSeq, MemoryEngine};
use millrace_wire::{Decoder, MsgFlags, encode_msg};

use super::*;
use crate::acknowledgement::{Acknowledgement, Level, Watermarks};
use crate::clock::{Clock, SystemClock};
use crate::journal::Journal;
use crate::memory::{Limits, MemoryBudget};
use crate::network::blocking_pool::BlockingPool;
use crate::network::parked::Verdict;
use crate::network::{
    ConnectionInfo, Counters, NetworkConfig, Notifier, Outcome, ReplyBuffer, Request,
};

/// The limit in the tests.
const RECEIVE_TIME_MAX: Duration = Duration::from_secs(60);

/// What the service answers to every request.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Offload,
    Park,
    Wait,
    Done,
}

/// A service with one answer. An offloaded request ends when the test permits it.
#[derive(Debug)]
struct Fixed {
    answer: Answer,
    until: Duration,
    permits: Mutex<Receiver<()>>,
}

impl Service for Fixed {
    type Session = ();

    fn open(&self, _: &ConnectionInfo) {}

    fn call(&self, (): &mut (), request: &Request<'_>, reply: &mut ReplyBuffer<'_>) -> Outcome {
        reply
            .document()
            .extend_from_slice(rawdoc! { "ok": 1.0 }.as_bytes());
        match self.answer {
            _ if request.resumed.is_some() => Outcome::Done,
            Answer::Offload => Outcome::Offload,
            Answer::Park => Outcome::Acknowledge(Acknowledgement {
                commit_seq: CommitSeq::new(1),
                level: Level::Durable,
                until: None,
            }),
            Answer::Wait => Outcome::Wait {
                until: self.until,
                ticket: None,
            },
            Answer::Done => Outcome::Done,
        }
    }

    fn call_blocking(&self, (): &mut (), _: &Request<'_>, reply: &mut ReplyBuffer<'_>) -> Outcome {
        reply
            .document()
            .extend_from_slice(rawdoc! { "ok": 1.0 }.as_bytes());
        let permits = self.permits.lock().expect("no panics");
        permits.recv().expect("the test permits it");
        Outcome::Done
    }

    fn durability_failed(&self, _: &mut ReplyBuffer<'_>) {}

    fn acknowledgement_timed_out(&self, (): &mut (), _: &mut ReplyBuffer<'_>) {}

    fn panicked(&self, _: &mut ReplyBuffer<'_>) {}

    fn disconnected(&self, _: ConnectionId) {}

    fn interrupt_all(&self) {}

    fn close(&self, (): ()) {}
}

/// A transport whose received bytes and whose room for replies are given by the test.
#[derive(Debug)]
struct Scripted {
    socket: UnixStream,
    chunks: Receiver<Vec<u8>>,
    room: Arc<Mutex<bool>>,
}

impl Transport for Scripted {
    fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        let chunk = self
            .chunks
            .try_recv()
            .map_err(|_| io::ErrorKind::WouldBlock)?;
        buffer.extend_from_slice(&chunk);
        Ok(chunk.len())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if *self.room.lock().expect("no panics") {
            Ok(bytes.len())
        } else {
            Err(io::ErrorKind::WouldBlock.into())
        }
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn peer(&self) -> String {
        "a test".to_owned()
    }
}

/// A worker with one connection, and the test's hands on it.
struct Fixture {
    worker: Worker<Fixed>,
    token: Token,
    start: Duration,
    chunks: Sender<Vec<u8>>,
    permits: Sender<()>,
    room: Arc<Mutex<bool>>,
    _peer: UnixStream,
}

impl Fixture {
    fn new(answer: Answer) -> Self {
        let start = Duration::from_secs(5000);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let (permits, permitted) = channel();
        let config = NetworkConfig {
            workers: 1,
            receive_time_max: RECEIVE_TIME_MAX,
            ..NetworkConfig::default()
        };
        let shared = Arc::new(Shared {
            service: Arc::new(Fixed {
                answer,
                until: start + Duration::from_secs(1000),
                permits: Mutex::new(permitted),
            }),
            config,
            decoder: Decoder::with_message_len_max(config.message_len_max),
            journal: Journal::new(
                Arc::new(MemoryEngine::new()),
                Duration::ZERO,
                Arc::clone(&clock),
            ),
            clock,
            budget: MemoryBudget::new(Limits::default()),
            notifier: Notifier::new(),
            blocking_pool: BlockingPool::new(1),
            counters: Arc::new(Counters::default()),
            inboxes: vec![Arc::new(Inbox::new().expect("there are descriptors"))],
            stopping: false.into(),
        });
        let mut worker = Worker::new(0, shared, None).expect("there are descriptors");
        let (socket, peer) = UnixStream::pair().expect("there are descriptors");
        let (chunks, received) = channel();
        let room = Arc::new(Mutex::new(true));
        worker.now = start;
        worker.open(Box::new(Scripted {
            socket,
            chunks: received,
            room: Arc::clone(&room),
        }));
        let token = worker.connections.tokens()[0];
        Self {
            worker,
            token,
            start,
            chunks,
            permits,
            room,
            _peer: peer,
        }
    }

    /// Has the worker receive `bytes`, `seconds` after the start.
    fn receive(&mut self, seconds: u64, bytes: &[u8]) {
        self.worker.now = self.start + Duration::from_secs(seconds);
        self.chunks.send(bytes.to_vec()).expect("it is received");
        self.worker.with_connection(self.token, Worker::receive);
    }

    /// The connection's deadline in seconds after the start.
    fn deadline(&mut self) -> Option<u64> {
        let start = self.start;
        let connection = self.worker.connections.get_mut(self.token);
        let deadline = connection.expect("the connection is open").deadline;
        deadline.map(|deadline| (deadline - start).as_secs())
    }
}

/// A request in two parts, the second of which ends with `more` bytes of the next request.
fn parts(more: usize) -> (Vec<u8>, Vec<u8>) {
    let mut request = Vec::new();
    encode_msg(&mut request, 1, MsgFlags::NONE, &rawdoc! { "x": 1 }, &[]);
    let mut second = request.split_off(20);
    let next: Vec<u8> = request.iter().chain(&second).copied().take(more).collect();
    second.extend(next);
    (request, second)
}

#[test]
fn a_request_on_a_pool_thread_has_no_deadline() {
    let mut fixture = Fixture::new(Answer::Offload);
    let (first, second) = parts(10);
    fixture.receive(0, &first);
    assert_eq!(fixture.deadline(), Some(60));
    fixture.receive(59, &second);
    assert_eq!(fixture.deadline(), None);

    // The request ends long after; the time of the next one, of which a part is here, begins then.
    fixture.permits.send(()).expect("the request runs");
    let mut ready = Vec::new();
    while ready.is_empty() {
        let waited = fixture.worker.poller.wait(None, &mut ready);
        waited.expect("polling works");
    }
    fixture.worker.now = fixture.start + Duration::from_secs(200);
    fixture.worker.on_inbox();
    assert_eq!(fixture.deadline(), Some(260));
    fixture.worker.shared.blocking_pool.stop();
}

#[test]
fn a_reply_that_waits_for_the_journal_has_no_deadline() {
    let mut fixture = Fixture::new(Answer::Park);
    let (first, second) = parts(10);
    fixture.receive(0, &first);
    fixture.receive(59, &second);
    assert_eq!(fixture.deadline(), None);
    let reached = Watermarks::alone(CommitSeq::new(1)).reached();
    let released = fixture.worker.parked.pop(&reached, fixture.start);
    assert_eq!(released, Some((fixture.token, Verdict::Reached)));
    fixture.worker.now = fixture.start + Duration::from_secs(200);
    let token = fixture.token;
    fixture
        .worker
        .with_connection(token, |worker, token, connection| {
            worker.unpark(token, connection, Verdict::Reached)
        });
    assert_eq!(fixture.deadline(), Some(260));
}

#[test]
fn a_request_that_waits_has_its_own_deadline() {
    let mut fixture = Fixture::new(Answer::Wait);
    let (first, second) = parts(10);
    fixture.receive(0, &first);
    fixture.receive(59, &second);
    assert_eq!(fixture.deadline(), Some(1000));
    fixture.worker.now = fixture.start + Duration::from_secs(200);
    let token = fixture.token;
    fixture
        .worker
        .with_connection(token, |worker, token, connection| {
            worker.resume(token, connection, Some(Resumed::TimedOut))
        });
    assert_eq!(fixture.deadline(), Some(260));
}

#[test]
fn bytes_that_trickle_in_do_not_move_the_deadline() {
    let mut fixture = Fixture::new(Answer::Done);
    let (first, second) = parts(0);
    for (second, byte) in (0..).zip(&first) {
        fixture.receive(second, &[*byte]);
        assert_eq!(fixture.deadline(), Some(60));
    }
    fixture.receive(30, &second);
    assert_eq!(fixture.deadline(), None);
}

#[test]
fn the_time_of_a_message_does_not_run_while_replies_are_sent() {
    let mut fixture = Fixture::new(Answer::Done);
    let stall_time_max = fixture.worker.shared.config.stall_time_max.as_secs();
    *fixture.room.lock().expect("no panics") = false;
    let (first, second) = parts(10);
    fixture.receive(0, &first);
    fixture.receive(59, &second);
    assert_eq!(fixture.deadline(), Some(59 + stall_time_max));
    *fixture.room.lock().expect("no panics") = true;
    fixture.worker.now = fixture.start + Duration::from_secs(200);
    let token = fixture.token;
    fixture
        .worker
        .with_connection(token, |worker, token, connection| {
            worker.on_connection_ready(
                token,
                connection,
                Readiness::of(token.key(), Interest::Write),
            )
        });
    assert_eq!(fixture.deadline(), Some(260));
}
