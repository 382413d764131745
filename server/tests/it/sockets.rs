//! A whole server in this process, spoken to by user-level sockets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use crate::windows::{Broker, Through};
use bson::{Document, RawDocumentBuf, doc};
use clap::Parser;
use millrace::log::RecentLines;
use millrace::serve::Server;
use millrace::settings::{Cli, Settings, Subcommand};
use millrace::state::Stop;
use millrace_broker::{broker, registry};
use millrace_wire::{Message, MsgFlags, OpMsg, encode_msg};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use tempfile::TempDir;

/// A server, its broker, and the folder of both.
struct Place<M = Broker> {
    server: Option<Server>,
    address: SocketAddr,
    broker: M,
    path: PathBuf,
    _folder: TempDir,
}

impl<M> Place<M> {
    fn new(broker: impl FnOnce(&Path) -> M) -> Self {
        let folder = TempDir::with_prefix("millrace-").expect("a temporary folder");
        let path = folder.path().join("sockets");
        let broker = broker(&path);
        let settings = settings(&folder.path().join("data"), &path);
        let address = settings.addresses[0];
        let (stop, _) = channel();
        let lines = Arc::new(RecentLines::default());
        let server = Server::start(settings, lines, stop).expect("the server starts");
        Self {
            server: Some(server),
            address,
            broker,
            path,
            _folder: folder,
        }
    }

    fn client(&self) -> Client<Through> {
        Client(Through::connect(&self.path, self.address))
    }

    fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop(Stop::Command);
        }
    }
}

impl<M> Drop for Place<M> {
    fn drop(&mut self) {
        self.stop();
    }
}

fn settings(data: &Path, broker: &Path) -> Settings {
    let port = TcpListener::bind(("127.0.0.1", 0))
        .and_then(|listener| listener.local_addr())
        .expect("a port is free")
        .port();
    let options = [
        "millrace".to_owned(),
        "serve".to_owned(),
        "--quiet".to_owned(),
        "--cacheSizeGB=0.01".to_owned(),
        format!("--port={port}"),
        format!("--dbpath={}", data.display()),
        format!("--sockets={}", broker.display()),
    ];
    let Subcommand::Serve(options) = Cli::try_parse_from(options).expect("legal options").command
    else {
        unreachable!("the subcommand is serve");
    };
    Settings::resolve(*options, vec!["millrace".to_owned()]).expect("legal settings")
}

struct Client<T>(T);

impl<T: Read + Write> Client<T> {
    fn send(&mut self, body: Document) {
        let raw = RawDocumentBuf::try_from(body).expect("the request is small");
        let mut bytes = Vec::new();
        encode_msg(&mut bytes, 1, MsgFlags::NONE, &raw, &[]);
        self.0.write_all(&bytes).expect("the server takes requests");
    }

    fn call(&mut self, body: Document) -> Document {
        self.send(body);
        let mut bytes = vec![0; 16];
        self.0.read_exact(&mut bytes).expect("the server answers");
        let length = i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        bytes.resize(usize::try_from(length).expect("a reply has a length"), 0);
        self.0
            .read_exact(&mut bytes[16..])
            .expect("the server answers");
        let message = Message::parse(&bytes).expect("a reply is well-formed");
        let reply = OpMsg::parse(&message).expect("a reply is well-formed");
        let reply = Document::try_from(reply.body).expect("a reply is well-formed");
        assert_eq!(reply.get_f64("ok").ok(), Some(1.0), "{reply}");
        reply
    }

    /// Inserts documents of 10 kB.
    fn insert(&mut self, ids: std::ops::Range<i32>) {
        let documents: Vec<_> = ids
            .map(|id| doc! { "_id": id, "text": "t".repeat(10_000) })
            .collect();
        let count = i32::try_from(documents.len()).expect("a few");
        let reply = self.call(doc! { "insert": "mills", "documents": documents, "$db": "test" });
        assert_eq!(reply.get_i32("n").ok(), Some(count), "{reply}");
    }

    /// How many documents a cursor of everything returns.
    fn count(&mut self) -> usize {
        let batch = |reply: &Document, name| {
            let cursor = reply.get_document("cursor").expect("a cursor");
            let documents = cursor.get_array(name).expect("a batch").len();
            (documents, cursor.get_i64("id").expect("a number"))
        };
        let reply = self.call(doc! { "find": "mills", "batchSize": 10_000, "$db": "test" });
        let (mut count, mut cursor) = batch(&reply, "firstBatch");
        while cursor != 0 {
            let more = doc! { "getMore": cursor, "collection": "mills", "$db": "test" };
            let (documents, next) = batch(&self.call(more), "nextBatch");
            count += documents;
            cursor = next;
        }
        count
    }
}

/// The broker that people run, on a thread.
struct RealBroker {
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl RealBroker {
    fn start(path: &Path) -> Self {
        let mut broker =
            broker::Broker::bind(path, registry::Settings::default()).expect("the folder is ours");
        let (stop, stopped) = UnixStream::pair().expect("a pair");
        let serve = move || broker.run(&stopped).expect("it waits");
        Self {
            stop: Some(stop),
            thread: Some(std::thread::spawn(serve)),
        }
    }
}

impl Drop for RealBroker {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of it has failed the test already, or is one beside the point.
            let _ = thread.join();
        }
    }
}

#[test]
fn documents_are_written_and_read_by_many_connections() {
    write_and_read(&Place::new(Broker::start));
}

#[test]
fn so_they_are_by_the_real_broker() {
    write_and_read(&Place::new(RealBroker::start));
}

fn write_and_read<M: Sync>(place: &Place<M>) {
    let mut first = place.client();
    let hello = first.call(doc! { "hello": 1, "$db": "admin" });
    assert_eq!(hello.get_bool("isWritablePrimary").ok(), Some(true));

    // 10 MB, by eight connections at once.
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let mut client = place.client();
            scope.spawn(move || {
                for batch in 0..5 {
                    let start = writer * 125 + batch * 25;
                    client.insert(start..start + 25);
                }
            });
        }
    });
    assert_eq!(first.count(), 1000);
    let mut kernel = Client(TcpStream::connect(place.address).expect("the server listens"));
    assert_eq!(kernel.count(), 1000);

    let mut many: Vec<_> = (0..300).map(|_| place.client()).collect();
    for client in &mut many {
        client.send(doc! { "ping": 1, "$db": "admin" });
    }
    drop(many.split_off(150));
    for client in &mut many {
        client.call(doc! { "ping": 1, "$db": "admin" });
    }
    assert_eq!(first.count(), 1000);
}

#[test]
fn a_client_that_leaves_within_a_reply_ends_no_other_connection() {
    let place = Place::new(Broker::start);
    let mut first = place.client();
    first.insert(0..1000);
    for _ in 0..5 {
        let mut leaving = place.client();
        leaving.send(doc! { "find": "mills", "batchSize": 10_000, "$db": "test" });
        let mut some = [0; 1000];
        leaving.0.read_exact(&mut some).expect("the server answers");
    }
    assert_eq!(first.count(), 1000);
}

#[test]
fn a_silent_broker_delays_no_client() {
    let place = Place::new(|path| {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).expect("a socket");
        bind(&socket, &SocketAddrUnix::new(path).expect("a path")).expect("the folder is ours");
        listen(&socket, 1).expect("it is bound");
        socket
    });
    let mut kernel = Client(TcpStream::connect(place.address).expect("the server listens"));
    kernel.insert(0..10);
    assert_eq!(kernel.count(), 10);
}

#[test]
fn stopping_ends_the_connections_and_reports_what_they_did() {
    let mut place = Place::new(Broker::start);
    let mut client = place.client();
    client.insert(0..10);
    place.stop();
    let mut rest = Vec::new();
    client
        .0
        .read_to_end(&mut rest)
        .expect("the end is an end, not a reset");
    assert!(rest.is_empty());
    let totals = place.broker.totals();
    assert_eq!(totals.sent, client.0.stream.total_received());
    assert_eq!(totals.received, client.0.stream.total_sent());
    assert_eq!((totals.accepts, totals.kernel_accepts), (1, 0));
}
