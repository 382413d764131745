//! A service that does what requests say, an engine whose syncs wait for permission, and a client
//! that speaks in raw bytes.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use bson::{Document, RawDocumentBuf, doc};
use millrace::acknowledgement::{Acknowledgement, Level};
use millrace::clock::{Clock, SystemClock};
use millrace::journal::Journal;
use millrace::memory::{Limits, MemoryBudget};
use millrace::network::{
    ConnectionId, ConnectionInfo, Counters, Listener, Network, NetworkConfig, NetworkContext,
    Notifier, Outcome, ReplyBuffer, Request, Resumed, Service, TcpListener, Ticket, WindowListener,
    WindowTotals,
};
use millrace_engine::conformance::hooked::{Hooked, Hooks};
use millrace_engine::{Batch, Durability, Engine, Error, ErrorKind, MemoryEngine, ReadSet, Result};
use millrace_wire::{Message, MsgFlags, OpMsg, encode_msg};

/// Longer than anything here takes; a test that waits this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// How many permits there are, or that everything fails.
#[derive(Debug, Default)]
struct Permits {
    count: u64,
    failing: bool,
}

/// Syncs wait for permission.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    permits: Mutex<Permits>,
    changed: Condvar,
}

/// A memory engine whose syncs wait for permission.
pub(crate) type GatedEngine = Hooked<MemoryEngine, Gate>;

impl Gate {
    pub(crate) fn permit_syncs(&self, count: u64) {
        self.permits.lock().expect("no panics").count = count;
        self.changed.notify_all();
    }

    pub(crate) fn fail_syncs(&self) {
        self.permits.lock().expect("no panics").failing = true;
        self.changed.notify_all();
    }
}

impl Hooks for Gate {
    fn before_sync(&self) -> Result<()> {
        let mut permits = self.permits.lock().expect("no panics");
        while permits.count == 0 && !permits.failing {
            permits = self.changed.wait(permits).expect("no panics");
        }
        if permits.failing {
            return Err(Error::new(ErrorKind::Io, "the test's device is broken"));
        }
        permits.count -= 1;
        Ok(())
    }
}

/// What the service tells the test.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Opened(u64),
    Closed(u64),
    Holding(u64),
    Waiting(u64, Ticket),
    Round { began: Duration, until: Duration },
    Parking(u64),
    Disconnected(u64),
    Interrupted,
}

/// Does what the first field of a request says.
#[derive(Debug)]
pub(crate) struct Puppet {
    engine: Arc<GatedEngine>,
    notifier: Arc<Notifier>,
    /// What the last request that waits waits for.
    awaited: Mutex<Option<Ticket>>,
    said: Mutex<Sender<Said>>,
    held: Mutex<bool>,
    released: Condvar,
}

impl Puppet {
    fn say(&self, said: Said) {
        // A test that has seen enough listens no more.
        let _ = self.said.lock().expect("no panics").send(said);
    }

    /// Lets the requests on executor threads go on.
    pub(crate) fn release(&self) {
        *self.held.lock().expect("no panics") = false;
        self.released.notify_all();
    }

    fn wait_for_release(&self) {
        let mut held = self.held.lock().expect("no panics");
        while *held {
            held = self.released.wait(held).expect("no panics");
        }
    }

    fn park(&self, session: u64, until: Option<Duration>, reply: &mut ReplyBuffer<'_>) -> Outcome {
        let mut batch = Batch::new();
        batch.put(b"k", b"v");
        let commit_seq = self
            .engine
            .commit(&batch, &ReadSet::none(), Durability::Buffered)
            .expect("the memory engine takes everything");
        answer(reply, doc! { "parked": true });
        self.say(Said::Parking(session));
        Outcome::Acknowledge(Acknowledgement {
            commit_seq,
            level: Level::Majority,
            until,
        })
    }
}

/// One reply of `count` to the same request.
fn stream(round: u32, count: i32, reply: &mut ReplyBuffer<'_>) {
    answer(reply, doc! { "round": i64::from(round) });
    if i64::from(round) + 1 < i64::from(count) {
        reply.set_flags(MsgFlags::MORE_TO_COME);
    }
}

fn answer(reply: &mut ReplyBuffer<'_>, document: Document) {
    let raw = RawDocumentBuf::try_from(document).expect("the reply is small");
    reply.document().extend_from_slice(raw.as_bytes());
}

impl Service for Puppet {
    type Session = u64;

    fn open(&self, connection: &ConnectionInfo) -> u64 {
        self.say(Said::Opened(connection.id.0));
        connection.id.0
    }

    fn call(
        &self,
        session: &mut u64,
        request: &Request<'_>,
        reply: &mut ReplyBuffer<'_>,
    ) -> Outcome {
        let message = match OpMsg::parse(&request.message) {
            Ok(message) => message,
            Err(error) => {
                answer(reply, doc! { "ok": 0, "code": error.code() });
                return Outcome::Done;
            }
        };
        let body = Document::try_from(message.body).expect("the wire crate has checked it");
        let (name, value) = body.iter().next().expect("a request has a command");
        let number = value.as_i32().unwrap_or(0);
        match name.as_str() {
            "echo" => answer(reply, doc! { "echo": value.clone() }),
            "big" => {
                let length = usize::try_from(number).expect("not negative");
                answer(reply, doc! { "big": "x".repeat(length) });
            }
            "write" => return self.park(*session, None, reply),
            "writeWithin" => {
                let milliseconds = u64::try_from(number).expect("not negative");
                let until = request.began + Duration::from_millis(milliseconds);
                return self.park(*session, Some(until), reply);
            }
            "hold" | "writeLong" => return Outcome::Offload,
            "none" => return Outcome::NoReply,
            "close" => return Outcome::Close,
            "panic" => panic!("a request asked for it"),
            "stream" => stream(request.round, number, reply),
            "streamSlowly" => {
                let (began, until) = (request.began, request.began + Duration::from_millis(2));
                if request.resumed.is_none() {
                    self.say(Said::Round { began, until });
                    let ticket = None;
                    return Outcome::Wait { until, ticket };
                }
                stream(request.round, number, reply);
            }
            "wait" => match request.resumed {
                None => {
                    let ticket = self.notifier.ticket();
                    *self.awaited.lock().expect("no panics") = Some(ticket);
                    self.say(Said::Waiting(*session, ticket));
                    let milliseconds = u64::try_from(number).expect("not negative");
                    let until = request.began + Duration::from_millis(milliseconds);
                    return Outcome::Wait {
                        until,
                        ticket: Some(ticket),
                    };
                }
                Some(Resumed::Notified) => answer(reply, doc! { "resumed": "notified" }),
                Some(Resumed::TimedOut) => answer(reply, doc! { "resumed": "timed out" }),
            },
            other => panic!("unknown command {other}"),
        }
        Outcome::Done
    }

    fn call_blocking(
        &self,
        session: &mut u64,
        request: &Request<'_>,
        reply: &mut ReplyBuffer<'_>,
    ) -> Outcome {
        let message = OpMsg::parse(&request.message).expect("it was parsed before");
        if message
            .body
            .get("writeLong")
            .is_ok_and(|field| field.is_some())
        {
            return self.park(*session, None, reply);
        }
        self.say(Said::Holding(*session));
        self.wait_for_release();
        answer(reply, doc! { "held": true });
        Outcome::Done
    }

    fn durability_failed(&self, reply: &mut ReplyBuffer<'_>) {
        answer(reply, doc! { "ok": 0, "errmsg": "not durable" });
    }

    fn acknowledgement_timed_out(&self, _: &mut u64, reply: &mut ReplyBuffer<'_>) {
        let mut document = Document::from_reader(reply.written()).expect("the reply is whole");
        document.insert("late", true);
        answer(reply, document);
    }

    fn panicked(&self, reply: &mut ReplyBuffer<'_>) {
        answer(reply, doc! { "ok": 0, "errmsg": "panicked" });
    }

    fn disconnected(&self, connection: ConnectionId) {
        self.say(Said::Disconnected(connection.0));
        self.release();
    }

    fn interrupt_all(&self) {
        let awaited = *self.awaited.lock().expect("no panics");
        if let Some(ticket) = awaited {
            self.notifier.notify(ticket);
        }
        self.say(Said::Interrupted);
    }

    fn close(&self, session: u64) {
        self.say(Said::Closed(session));
    }
}

/// A network with a [`Puppet`] behind it.
pub(crate) struct Stage {
    pub(crate) address: SocketAddr,
    pub(crate) engine: Arc<GatedEngine>,
    pub(crate) puppet: Arc<Puppet>,
    pub(crate) budget: Arc<MemoryBudget>,
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) network: Network<Puppet>,
    /// What connections through windows have done, if there is a broker.
    pub(crate) totals: Option<Arc<WindowTotals>>,
    pub(crate) said: Receiver<Said>,
    journal_thread: Option<std::thread::JoinHandle<()>>,
}

impl Stage {
    pub(crate) fn new(config: NetworkConfig, limits: Limits) -> Self {
        Self::announced(config, limits, None)
    }

    /// Its clients may also come by user-level sockets, of the broker at this path.
    pub(crate) fn announced(config: NetworkConfig, limits: Limits, broker: Option<&Path>) -> Self {
        Self::listening(config, limits, broker, |windows| Box::new(windows))
    }

    /// The same with something around the listener for those.
    pub(crate) fn listening(
        config: NetworkConfig,
        limits: Limits,
        broker: Option<&Path>,
        around: impl FnOnce(WindowListener) -> Box<dyn Listener>,
    ) -> Self {
        let engine = Arc::new(GatedEngine::new(MemoryEngine::new(), Gate::default()));
        let notifier = Notifier::new();
        let (sender, said) = channel();
        let puppet = Arc::new(Puppet {
            engine: Arc::clone(&engine),
            notifier: Arc::clone(&notifier),
            awaited: Mutex::default(),
            said: Mutex::new(sender),
            held: Mutex::new(true),
            released: Condvar::new(),
        });
        let shared_engine: Arc<dyn Engine> = engine.clone();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let journal = Journal::new(shared_engine, Duration::ZERO, Arc::clone(&clock));
        let thread = Arc::clone(&journal);
        let budget = MemoryBudget::new(limits);
        let counters = Arc::new(Counters::default());
        let mut listener = TcpListener::bind(([127, 0, 0, 1], 0).into()).expect("a port is free");
        let address = listener.local_address();
        let windows = broker.map(|path| {
            let sockets = std::slice::from_mut(&mut listener);
            WindowListener::start(path, sockets, PATIENCE, &*clock).expect("there are descriptors")
        });
        let totals = windows.as_ref().map(|windows| Arc::clone(windows.totals()));
        let mut listeners: Vec<Box<dyn Listener>> = vec![Box::new(listener)];
        listeners.extend(windows.map(around));
        let network = Network::start(
            listeners,
            Arc::clone(&puppet),
            config,
            NetworkContext {
                clock: Arc::clone(&clock),
                journal: Arc::clone(&journal),
                budget: Arc::clone(&budget),
                notifier: Arc::clone(&notifier),
                counters: Arc::clone(&counters),
            },
        )
        .expect("the network starts");
        let journal_thread = Some(std::thread::spawn(move || thread.run()));
        Self {
            address,
            engine,
            puppet,
            budget,
            notifier,
            counters,
            journal,
            network,
            totals,
            said,
            journal_thread,
        }
    }

    pub(crate) fn one_worker() -> Self {
        Self::new(
            NetworkConfig {
                workers: 1,
                ..NetworkConfig::default()
            },
            Limits::default(),
        )
    }

    /// The next thing said that `select` accepts.
    pub(crate) fn expect<T>(&self, select: impl Fn(&Said) -> Option<T>) -> T {
        loop {
            let said = self
                .said
                .recv_timeout(PATIENCE)
                .expect("the service says something");
            if let Some(selected) = select(&said) {
                return selected;
            }
        }
    }

    pub(crate) fn open_connections(&self) -> usize {
        self.counters.open.load(Ordering::Relaxed)
    }

    /// Stops everything and waits for its end.
    pub(crate) fn stop(&mut self) {
        self.network.stop();
        self.journal.stop();
        if let Some(thread) = self.journal_thread.take() {
            thread.join().expect("the journal thread does not panic");
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.puppet.release();
        self.engine.hooks().permit_syncs(1_000);
        self.stop();
    }
}

/// A client's end of a connection.
#[derive(Debug)]
pub(crate) struct Client<T = TcpStream> {
    pub(crate) stream: T,
    next_id: i32,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("a timeout can be set");
        stream
            .set_write_timeout(Some(PATIENCE))
            .expect("a timeout can be set");
        Self::over(stream)
    }

    pub(crate) fn finish_sending(&self) {
        self.stream
            .shutdown(Shutdown::Write)
            .expect("the connection is open");
    }
}

impl<T: Read + Write> Client<T> {
    pub(crate) const fn over(stream: T) -> Self {
        Self { stream, next_id: 1 }
    }

    /// The bytes of a request.
    pub(crate) fn message(&mut self, flags: MsgFlags, body: Document) -> Vec<u8> {
        let raw = RawDocumentBuf::try_from(body).expect("the request is small");
        let mut bytes = Vec::new();
        encode_msg(&mut bytes, self.next_id, flags, &raw, &[]);
        self.next_id += 1;
        bytes
    }

    pub(crate) fn send(&mut self, body: Document) {
        let bytes = self.message(MsgFlags::NONE, body);
        self.write(&bytes);
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.stream
            .write_all(bytes)
            .expect("the server takes requests");
    }

    /// One message, whole.
    pub(crate) fn receive_bytes(&mut self) -> std::io::Result<Vec<u8>> {
        let mut bytes = vec![0; 16];
        self.stream.read_exact(&mut bytes)?;
        let length = i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        bytes.resize(usize::try_from(length).expect("a reply has a length"), 0);
        self.stream.read_exact(&mut bytes[16..])?;
        Ok(bytes)
    }

    /// The next reply and whether another one follows.
    pub(crate) fn receive_flagged(&mut self) -> (Document, bool) {
        let bytes = self.receive_bytes().expect("the server answers");
        let message = Message::parse(&bytes).expect("a reply is well-formed");
        let reply = OpMsg::parse(&message).expect("a reply is well-formed");
        let more = reply.flags.contains(MsgFlags::MORE_TO_COME);
        (
            Document::try_from(reply.body).expect("a reply is well-formed"),
            more,
        )
    }

    pub(crate) fn receive(&mut self) -> Document {
        self.receive_flagged().0
    }

    pub(crate) fn call(&mut self, body: Document) -> Document {
        self.send(body);
        self.receive()
    }

    /// Waits until the server closes the connection; nothing may come before.
    pub(crate) fn expect_end(&mut self) {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => assert!(rest.is_empty(), "the server said something before the end"),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
    }
}
