//! A whole server in this process, on a folder of its own, spoken to in raw messages.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};
use clap::Parser;
use millrace::log::RecentLines;
use millrace::serve::{ServeError, Server};
use millrace::settings::{Cli, Settings, Subcommand};
use millrace::state::Stop;
use millrace_blobfs::{CheckOptions, check};
use millrace_block::{Device, FileDevice, FileOptions};
use millrace_wire::{Message, MsgFlags, OpMsg, encode_msg, encode_query};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn settings(folder: &Path, extra: &[&str]) -> Settings {
    let folder = folder.to_str().expect("the path is UTF-8");
    settings_of(["--dbpath", folder].iter().chain(extra))
}

fn settings_of<'a>(options: impl Iterator<Item = &'a &'a str>) -> Settings {
    let fixed = ["millrace", "serve", "--cacheSizeGB", "0.01", "--quiet"];
    let port = format!("--port={}", free_port());
    let all = fixed.into_iter().chain(options.copied());
    let all = all.map(str::to_owned).chain([port]);
    let Subcommand::Serve(options) = Cli::try_parse_from(all).expect("legal options").command
    else {
        unreachable!("the subcommand is serve");
    };
    Settings::resolve(*options, vec!["millrace".to_owned()]).expect("legal settings")
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
    listener.local_addr().expect("it listens").port()
}

struct Running {
    server: Option<Server>,
    address: SocketAddr,
    stopped: Receiver<Stop>,
    folder: tempfile::TempDir,
}

impl Running {
    fn start(extra: &[&str]) -> Self {
        Self::start_on(tempfile::tempdir().expect("a temporary folder"), extra)
    }

    fn start_on(folder: tempfile::TempDir, extra: &[&str]) -> Self {
        let settings = settings(folder.path(), extra);
        Self::start_with(folder, settings)
    }

    fn start_with(folder: tempfile::TempDir, settings: Settings) -> Self {
        let address = settings.addresses[0];
        let (stop, stopped) = channel();
        let lines = Arc::new(RecentLines::default());
        let server = Server::start(settings, lines, stop).expect("the server starts");
        Self {
            server: Some(server),
            address,
            stopped,
            folder,
        }
    }

    fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.address).expect("the server listens");
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("a timeout can be set");
        Client { stream, next_id: 1 }
    }

    fn stop(mut self) -> tempfile::TempDir {
        self.server.take().expect("it runs").stop(Stop::Command);
        let empty = tempfile::tempdir().expect("a temporary folder");
        std::mem::replace(&mut self.folder, empty)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop(Stop::Command);
        }
    }
}

struct Client {
    stream: TcpStream,
    next_id: i32,
}

impl Client {
    fn send(&mut self, flags: MsgFlags, body: Document) {
        self.send_with(flags, body, &[]);
    }

    fn send_with(
        &mut self,
        flags: MsgFlags,
        body: Document,
        sequences: &[(&str, &[&RawDocument])],
    ) {
        let raw = RawDocumentBuf::try_from(body).expect("the request is small");
        let mut bytes = Vec::new();
        encode_msg(&mut bytes, self.next_id, flags, &raw, sequences);
        self.next_id += 1;
        self.stream
            .write_all(&bytes)
            .expect("the server takes requests");
    }

    fn receive_bytes(&mut self) -> std::io::Result<Vec<u8>> {
        let mut bytes = vec![0; 16];
        self.stream.read_exact(&mut bytes)?;
        let length = i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        bytes.resize(usize::try_from(length).expect("a reply has a length"), 0);
        self.stream.read_exact(&mut bytes[16..])?;
        Ok(bytes)
    }

    fn receive(&mut self) -> (Document, MsgFlags) {
        let bytes = self.receive_bytes().expect("the server answers");
        let message = Message::parse(&bytes).expect("a reply is well-formed");
        let reply = OpMsg::parse(&message).expect("a reply is well-formed");
        (
            Document::try_from(reply.body).expect("a reply is well-formed"),
            reply.flags,
        )
    }

    fn call(&mut self, database: &str, mut body: Document) -> Document {
        body.insert("$db", database);
        self.send(MsgFlags::NONE, body);
        self.receive().0
    }

    fn admin(&mut self, body: Document) -> Document {
        self.call("admin", body)
    }
}

/// The value at a dotted path; null if there is none.
fn at(document: &Document, path: &str) -> Bson {
    match path.split_once('.') {
        None => document.get(path).cloned().unwrap_or(Bson::Null),
        Some((first, rest)) => document
            .get_document(first)
            .map_or(Bson::Null, |inner| at(inner, rest)),
    }
}

fn code(reply: &Document) -> i32 {
    match reply.get_f64("ok") {
        Ok(1.0) => 0,
        _ => reply.get_i32("code").expect("an error has a code"),
    }
}

#[test]
fn the_handshake_is_that_of_mongodb_8_0() {
    let server = Running::start(&[]);
    let mut client = server.connect();
    let metadata = doc! {
        "driver": { "name": "test", "version": "1" }, "os": { "type": "Linux" },
        "application": { "name": "tests" },
    };
    let hello = doc! {
        "hello": 1, "helloOk": true, "client": metadata.clone(), "compression": ["x", "zlib"],
    };
    let reply = client.admin(hello);
    assert_eq!(code(&reply), 0, "{reply}");
    for (field, value) in [
        ("helloOk", Bson::from(true)),
        ("isWritablePrimary", Bson::from(true)),
        ("maxBsonObjectSize", Bson::from(16_777_216)),
        ("maxMessageSizeBytes", Bson::from(48_000_000)),
        ("maxWriteBatchSize", Bson::from(100_000)),
        ("logicalSessionTimeoutMinutes", Bson::from(30)),
        ("minWireVersion", Bson::from(0)),
        ("maxWireVersion", Bson::from(25)),
        ("readOnly", Bson::from(false)),
        ("compression", Bson::from(vec!["zlib"])),
    ] {
        assert_eq!(reply.get(field), Some(&value), "{field}");
    }
    assert!(!reply.contains_key("setName") && !reply.contains_key("msg"));
    let again = client.admin(doc! { "hello": 1, "client": metadata });
    assert_eq!(code(&again), 186);
    let incomplete = server.connect().admin(doc! { "hello": 1, "client": {} });
    assert_eq!(code(&incomplete), 183);
    let half = server
        .connect()
        .admin(doc! { "hello": 1, "maxAwaitTimeMS": 1 });
    assert_eq!(code(&half), 31371);
}

#[test]
fn old_drivers_begin_with_op_query() {
    let server = Running::start(&[]);
    let mut client = server.connect();
    for (command, expected) in [
        ("isMaster", 0),
        ("ismaster", 0),
        ("hello", 0),
        ("find", 352),
    ] {
        let query = RawDocumentBuf::try_from(doc! { command: 1, "helloOk": true }).expect("small");
        let mut bytes = Vec::new();
        encode_query(&mut bytes, 9, "admin.$cmd", &query);
        client
            .stream
            .write_all(&bytes)
            .expect("the server takes requests");
        let reply = client.receive_bytes().expect("the server answers");
        assert_eq!(reply[12..16], 1_i32.to_le_bytes(), "an OP_REPLY");
        assert_eq!(reply[8..12], 9_i32.to_le_bytes(), "to this request");
        let document = Document::from_reader(&reply[36..]).expect("one document");
        assert_eq!(code(&document), expected, "{command}: {document}");
    }
}

#[test]
fn a_client_that_knows_the_topology_waits_and_may_stream() {
    let server = Running::start(&[]);
    let mut client = server.connect();
    let first = client.admin(doc! { "hello": 1 });
    let version = first
        .get_document("topologyVersion")
        .expect("it is there")
        .clone();
    let body = doc! {
        "hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 5, "$db": "admin",
    };
    client.send(MsgFlags::NONE, body.clone());
    let (reply, flags) = client.receive();
    assert_eq!((code(&reply), flags), (0, MsgFlags::NONE));
    client.send(MsgFlags::EXHAUST_ALLOWED, body);
    for _ in 0..3 {
        let (reply, flags) = client.receive();
        assert_eq!((code(&reply), flags), (0, MsgFlags::MORE_TO_COME));
    }
}

#[test]
fn what_tools_ask_for_is_answered() {
    let server = Running::start(&["--setParameter", "enableTestCommands=1"]);
    let mut client = server.connect();
    let info = client.admin(doc! { "buildInfo": 1 });
    assert_eq!(at(&info, "version"), Bson::from("8.0.0"));
    let all = client.admin(doc! { "getParameter": "*" });
    assert_eq!(at(&all, "enableTestCommands"), Bson::from(true));
    let version = client.admin(doc! { "getParameter": 1, "featureCompatibilityVersion": 1 });
    assert_eq!(
        at(&version, "featureCompatibilityVersion.version"),
        Bson::from("8.0")
    );
    let details = doc! { "getParameter": { "showDetails": true }, "ttlMonitorEnabled": 1 };
    let details = client.admin(details);
    assert_eq!(
        at(&details, "ttlMonitorEnabled.settableAtRuntime"),
        Bson::from(true)
    );
    assert_eq!(
        code(&client.admin(doc! { "getParameter": 1, "nothing": 1 })),
        72
    );
    let set = client.admin(doc! { "setParameter": 1, "ttlMonitorSleepSecs": 30 });
    assert_eq!(at(&set, "was"), Bson::from(60));
    assert_eq!(
        code(&client.admin(doc! { "setParameter": 1, "nothing": 1 })),
        72
    );

    let status = client.admin(doc! { "serverStatus": 1, "mem": 0 });
    assert_eq!(code(&status), 0);
    assert!(!status.contains_key("mem"));
    assert_eq!(at(&status, "connections.current"), Bson::from(1));
    for name in [
        "opcounters",
        "network",
        "metrics",
        "asserts",
        "storageEngine",
        "localTime",
    ] {
        assert!(status.contains_key(name), "{name}");
    }
    for (command, expected) in [
        ("ping", 0),
        ("hostInfo", 0),
        ("getCmdLineOpts", 0),
        ("connectionStatus", 0),
        ("whatsmyuri", 0),
        ("listCommands", 0),
        ("features", 0),
        ("logout", 0),
        ("startSession", 0),
        ("replSetGetStatus", 76),
        ("fsyncUnlock", 20),
        ("atlasVersion", 59),
        ("getFreeMonitoringStatus", 59),
    ] {
        assert_eq!(
            code(&client.admin(doc! { command: 1 })),
            expected,
            "{command}"
        );
    }
    let unknown = client.admin(doc! { "atlasVersion": 1 });
    assert_eq!(
        at(&unknown, "errmsg"),
        Bson::from("no such command: 'atlasVersion'")
    );
    assert_eq!(at(&unknown, "codeName"), Bson::from("CommandNotFound"));
    assert_eq!(code(&client.call("test", doc! { "getParameter": "*" })), 13);
    let strange = client.admin(doc! { "whatsmyuri": 1, "x": 1 });
    let message = "BSON field 'whatsmyuri.x' is an unknown field.";
    assert_eq!(at(&strange, "errmsg"), Bson::from(message));
    assert_eq!(code(&client.admin(doc! { "getLog": "global" })), 0);
    assert_eq!(code(&client.admin(doc! { "getLog": "nothing" })), 96);
}

#[test]
fn documents_go_in_and_come_out_and_survive_a_restart() {
    let server = Running::start(&[]);
    let mut client = server.connect();
    let document = RawDocumentBuf::try_from(doc! { "_id": 1, "a": "b" }).expect("small");
    client.send_with(
        MsgFlags::CHECKSUM_PRESENT,
        doc! { "insert": "c", "$db": "test", "writeConcern": { "w": 1, "j": true } },
        &[("documents", &[&document])],
    );
    let (reply, flags) = client.receive();
    assert_eq!(
        (code(&reply), at(&reply, "n")),
        (0, Bson::from(1)),
        "{reply}"
    );
    assert_eq!(flags, MsgFlags::CHECKSUM_PRESENT);
    assert_eq!(
        code(&client.call("test", doc! { "find": "c", "writeConcern": { "w": 1 } })),
        72
    );
    let two = doc! { "insert": "c", "documents": [{}], "writeConcern": { "w": 2 } };
    assert_eq!(code(&client.call("test", two)), 2);

    let folder = server.stop();
    let server = Running::start_on(folder, &[]);
    let mut client = server.connect();
    let found = client.call("test", doc! { "find": "c", "filter": { "_id": 1 } });
    let expected = Bson::from(vec![doc! { "_id": 1, "a": "b" }]);
    assert_eq!(at(&found, "cursor.firstBatch"), expected, "{found}");
    let status = client.admin(doc! { "serverStatus": 1 });
    assert_eq!(at(&status, "opcounters.query"), Bson::from(1_i64));
}

#[test]
fn a_server_that_stops_in_order_unmounts_its_device() {
    let mut folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("disk.img");
    FileDevice::create(&path, 64 << 20).expect("the folder is ours");
    let spec = format!("file:{}", path.display());
    for round in 0..2 {
        let settings = settings_of(["--device", spec.as_str(), "--format"].iter());
        let server = Running::start_with(folder, settings);
        let mut client = server.connect();
        let found = client.call("test", doc! { "find": "mills" });
        let batch = at(&found, "cursor.firstBatch");
        assert_eq!(batch.as_array().map(Vec::len), Some(round), "{found}");
        let id = i32::try_from(round).expect("few rounds");
        let inserted = client.call(
            "test",
            doc! { "insert": "mills", "documents": [{ "_id": id }] },
        );
        assert_eq!(code(&inserted), 0, "{inserted}");
        folder = server.stop();
        let device = FileDevice::open(&path, FileOptions::default()).expect("nobody has it");
        let device: Arc<dyn Device> = Arc::new(device);
        let report = check(&device, CheckOptions::default(), &mut |_| {}).expect("it is a volume");
        assert!(report.is_clean_unmount && report.is_sound(), "{report:?}");
    }
}

#[test]
fn a_folder_is_served_once() {
    let server = Running::start(&[]);
    let second = settings(server.folder.path(), &[]);
    let (stop, _) = channel();
    match Server::start(second, Arc::new(RecentLines::default()), stop) {
        Err(error @ ServeError::FolderInUse { .. }) => {
            assert!(error.to_string().contains("in use"), "{error}");
        }
        other => panic!("a second server was started: {other:?}"),
    }
}

#[test]
fn fail_points_exist_only_for_tests() {
    let server = Running::start(&[]);
    let configure = doc! { "configureFailPoint": "failCommand", "mode": "alwaysOn" };
    assert_eq!(code(&server.connect().admin(configure)), 59);
}

#[test]
fn fail_points_fail_block_and_close() {
    let server = Running::start(&["--setParameter", "enableTestCommands=1"]);
    let mut client = server.connect();
    let configure = |mode: Bson, data: Document| {
        let command = doc! { "configureFailPoint": "failCommand", "mode": mode, "data": data };
        assert_eq!(code(&server.connect().admin(command)), 0);
    };
    let once = || Bson::from(doc! { "times": 1 });

    let data = doc! { "failCommands": ["ping"], "errorCode": 91, "errorLabels": ["Retry"] };
    configure(once(), data);
    let reply = client.admin(doc! { "ping": 1 });
    assert_eq!(
        (code(&reply), at(&reply, "codeName")),
        (91, Bson::from("ShutdownInProgress"))
    );
    assert_eq!(at(&reply, "errorLabels"), Bson::from(vec!["Retry"]));
    assert_eq!(code(&client.admin(doc! { "ping": 1 })), 0);

    configure(
        once(),
        doc! { "failCommands": ["find"], "blockConnection": true, "blockTimeMS": 1 },
    );
    assert_eq!(code(&client.call("test", doc! { "find": "c" })), 0);

    let error = doc! { "code": 64, "errmsg": "waiting for replication timed out" };
    configure(
        once(),
        doc! { "failCommands": ["insert"], "writeConcernError": error.clone() },
    );
    let reply = client.call("test", doc! { "insert": "c", "documents": [{ "_id": 1 }] });
    assert_eq!(
        (code(&reply), at(&reply, "writeConcernError")),
        (0, Bson::from(error))
    );

    configure(
        once(),
        doc! { "failCommands": ["ping"], "closeConnection": true },
    );
    client.send(MsgFlags::NONE, doc! { "ping": 1, "$db": "admin" });
    assert!(client.receive_bytes().is_err(), "the connection is closed");
}

#[test]
fn fail_points_know_the_application_of_a_first_hello() {
    let server = Running::start(&["--setParameter", "enableTestCommands=1"]);
    let data = doc! { "failCommands": ["isMaster"], "appName": "mill", "errorCode": 91 };
    let command = doc! {
        "configureFailPoint": "failCommand", "mode": { "times": 1 },
        "data": data,
    };
    assert_eq!(code(&server.connect().admin(command)), 0);
    let hello = |application: &str| {
        doc! { "ismaster": 1, "client": {
            "application": { "name": application },
            "driver": { "name": "test", "version": "1" },
            "os": { "type": "Linux" },
        } }
    };
    assert_eq!(code(&server.connect().admin(hello("other"))), 0);
    assert_eq!(code(&server.connect().admin(hello("mill"))), 91);
    assert_eq!(code(&server.connect().admin(hello("mill"))), 0);
}

#[test]
fn a_hello_that_a_fail_point_delayed_is_served_in_full() {
    let server = Running::start(&["--setParameter", "enableTestCommands=1"]);
    let data = doc! { "failCommands": ["hello"], "blockConnection": true, "blockTimeMS": 1 };
    let command = doc! {
        "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": data,
    };
    assert_eq!(code(&server.connect().admin(command)), 0);
    let reply = server
        .connect()
        .admin(doc! { "hello": 1, "compression": ["zlib"] });
    assert_eq!(at(&reply, "compression"), Bson::from(vec!["zlib"]));
}

#[test]
fn operations_can_be_seen_and_killed() {
    let server = Running::start(&["--setParameter", "enableTestCommands=1"]);
    let mut client = server.connect();
    let reply = client.admin(doc! { "currentOp": 1 });
    let operations = reply.get_array("inprog").expect("a list");
    let own = |op: &Bson| {
        op.as_document()
            .is_some_and(|op| at(op, "command.currentOp") == Bson::from(1))
    };
    assert!(operations.iter().any(own), "it sees itself: {reply}");
    let filtered = client.admin(doc! { "currentOp": 1, "op": "nothing" });
    assert_eq!(
        at(&filtered, "inprog"),
        Bson::Array(Vec::new()),
        "{filtered}"
    );
    assert_eq!(code(&client.admin(doc! { "killOp": 1, "op": 999_999 })), 0);
    assert_eq!(code(&client.admin(doc! { "killOp": 1 })), 4);
}

#[test]
fn an_idle_tailable_cursor_is_woken_by_an_insertion() {
    let server = Running::start(&[]);
    let mut writer = server.connect();
    let mut reader = server.connect();
    let create = doc! { "create": "c", "capped": true, "size": 100_000 };
    assert_eq!(code(&writer.call("test", create)), 0);
    let insert = |n: i32| doc! { "insert": "c", "documents": [{ "_id": n }] };
    assert_eq!(code(&writer.call("test", insert(1))), 0);
    let find = doc! { "find": "c", "tailable": true, "awaitData": true };
    let found = reader.call("test", find);
    let id = at(&found, "cursor.id").as_i64().expect("an id");
    assert_ne!(id, 0, "it stays open");
    let more = doc! { "getMore": id, "collection": "c", "maxTimeMS": 600_000, "$db": "test" };
    reader.send(MsgFlags::NONE, more);
    assert_eq!(code(&writer.call("test", insert(2))), 0);
    let (reply, _) = reader.receive();
    let expected = Bson::from(vec![doc! { "_id": 2 }]);
    assert_eq!(at(&reply, "cursor.nextBatch"), expected, "{reply}");
    let patient = doc! { "getMore": id, "collection": "c", "maxTimeMS": 1 };
    let reply = reader.call("test", patient);
    assert_eq!(
        at(&reply, "cursor.nextBatch"),
        Bson::Array(Vec::new()),
        "its patience ends"
    );
}

#[test]
fn an_idle_tailable_cursor_can_be_killed() {
    let server = Running::start(&[]);
    let mut admin = server.connect();
    let mut reader = server.connect();
    let create = doc! { "create": "c", "capped": true, "size": 100_000 };
    assert_eq!(code(&admin.call("test", create)), 0);
    let insert = doc! { "insert": "c", "documents": [{ "_id": 1 }] };
    assert_eq!(code(&admin.call("test", insert)), 0);
    let find = doc! { "find": "c", "tailable": true, "awaitData": true };
    let id = at(&reader.call("test", find), "cursor.id");
    let more = doc! { "getMore": id, "collection": "c", "maxTimeMS": 3_600_000, "$db": "test" };
    reader.send(MsgFlags::EXHAUST_ALLOWED, more);
    let operation = loop {
        let reply = admin.admin(doc! { "currentOp": 1, "op": "getmore" });
        let operations = reply.get_array("inprog").expect("a list");
        if let Some(operation) = operations.first().and_then(Bson::as_document) {
            break at(operation, "opid");
        }
    };
    let kill = doc! { "killOp": 1, "op": operation };
    assert_eq!(code(&admin.admin(kill)), 0);
    let (reply, flags) = reader.receive();
    assert_eq!((code(&reply), flags), (11601, MsgFlags::NONE), "{reply}");
}

#[test]
fn malformed_messages_are_answered_or_end_the_connection() {
    let server = Running::start(&[]);
    let mut client = server.connect();
    client.send(MsgFlags::NONE, doc! { "ping": 1 });
    assert_eq!(code(&client.receive().0), 40571);
    client.send(MsgFlags::NONE, doc! {});
    assert_eq!(code(&client.receive().0), 59);
    // A flag that must be understood: the error, then the end.
    let raw = RawDocumentBuf::try_from(doc! { "ping": 1, "$db": "admin" }).expect("small");
    let mut bytes = Vec::new();
    encode_msg(&mut bytes, 1, MsgFlags::NONE, &raw, &[]);
    bytes[16] = 4;
    client
        .stream
        .write_all(&bytes)
        .expect("the server takes requests");
    let (reply, _) = client.receive();
    assert_eq!(
        (code(&reply), at(&reply, "codeName")),
        (223, Bson::from("IllegalOpMsgFlag"))
    );
    assert!(client.receive_bytes().is_err());
}

#[test]
fn a_client_may_stop_the_server() {
    let server = Running::start(&[]);
    assert_eq!(code(&server.connect().admin(doc! { "shutdown": 1 })), 0);
    assert_eq!(server.stopped.recv_timeout(PATIENCE), Ok(Stop::Command));
}

#[test]
fn metrics_are_prometheus_text() {
    let port = free_port().to_string();
    let server = Running::start(&["--metricsPort", &port]);
    assert_eq!(code(&server.connect().admin(doc! { "ping": 1 })), 0);
    let get = |path: &str| {
        let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).expect("it listens");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").expect("it takes requests");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it answers");
        text
    };
    let text = get("/metrics");
    assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
    let count = "millrace_command_duration_seconds_count{command=\"ping\"} 1";
    assert!(text.contains(count), "{text}");
    let body = text.split("\r\n\r\n").nth(1).expect("a body");
    for line in body.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').expect("a name and a value");
        assert!(name.starts_with("millrace_"), "{line}");
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
    assert!(get("/livez").starts_with("HTTP/1.1 200"));
    assert!(get("/readyz").starts_with("HTTP/1.1 200"));
    assert!(get("/nothing").starts_with("HTTP/1.1 404"));
}
