//! Commands through the dispatcher, without a network: the test says when a request is served again.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};
use clap::Parser;
use millrace_command::{
    Action, CommandRequest, Effects, Grants, Principal, Privilege, Resource, StableApi,
    WriteConcernSupport,
};
use millrace_engine::MemoryEngine;
use millrace_value::operation::Limits;
use millrace_value::{Environment, Operation};
use millrace_wire::{Message, MsgFlags, OpCode, OpMsg, encode_msg};

use super::Dispatcher;
use super::inspect::command_name;
use crate::clock::Clock;
use crate::commands::generic::GenericArguments;
use crate::environment::SystemEntropy;
use crate::log::RecentLines;
use crate::network::{
    ConnectionId, ConnectionInfo, Outcome, ReplyBuffer, Request, Resumed, Service,
};
use crate::parameters::Parameters;
use crate::serve::{Parts, assemble};
use crate::session::Session;
use crate::settings::{Cli, Settings, Subcommand};
use crate::simulation::SimulatedClock;

/// Simulated time for which the server has been up.
const UPTIME: Duration = Duration::from_secs(10);

struct Fixture {
    dispatcher: Dispatcher,
    clock: Arc<SimulatedClock>,
    _folder: tempfile::TempDir,
}

/// What came of a request: the reply is empty if there is none yet.
struct Answered {
    outcome: Outcome,
    reply: Document,
    streams: bool,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().to_str().expect("the path is UTF-8");
        let tests = ["--setParameter", "enableTestCommands=1", "--quiet"];
        let options = ["millrace", "serve", "--dbpath", path];
        let cli = Cli::try_parse_from(options.into_iter().chain(tests)).expect("legal options");
        let Subcommand::Serve(options) = cli.command else {
            unreachable!("the subcommand is serve");
        };
        let settings = Settings::resolve(*options, Vec::new()).expect("legal settings");
        let (stop, _) = channel();
        let clock = Arc::new(SimulatedClock::default());
        clock.advance_to(UPTIME);
        let state = assemble(
            settings,
            Parameters::default(),
            Parts {
                engine: Arc::new(MemoryEngine::new()),
                clock: clock.clone(),
                entropy: Arc::new(SystemEntropy),
                recent_lines: Arc::new(RecentLines::default()),
                stop,
            },
        );
        Self {
            dispatcher: Dispatcher::new(state.expect("an empty engine can be opened")),
            clock,
            _folder: folder,
        }
    }

    fn connect(&self, number: u64) -> Session {
        self.dispatcher.open(&ConnectionInfo {
            id: ConnectionId(number),
            peer: "test".to_owned(),
        })
    }

    /// Serves a request as the network does: on the worker, and then on a thread of its own if the
    /// worker says so.
    fn serve(
        &self,
        session: &mut Session,
        bytes: &[u8],
        (resumed, began, round): (Option<Resumed>, Duration, u32),
    ) -> Answered {
        let mut request = Request {
            message: Message::parse(bytes).expect("the request is well-formed"),
            began,
            resumed,
            round,
        };
        let mut out = Vec::new();
        let mut reply = ReplyBuffer::new(&mut out, OpCode::Msg, 1, 1, None);
        let mut outcome = self.dispatcher.call(session, &request, &mut reply);
        if let Outcome::Offload = outcome {
            request.resumed = None;
            outcome = self.dispatcher.call_blocking(session, &request, &mut reply);
        }
        let streams = reply.flags().contains(MsgFlags::MORE_TO_COME);
        let reply = match outcome {
            Outcome::Done | Outcome::Acknowledge(_) => Document::from_reader(reply.written()),
            _ => Ok(Document::new()),
        };
        Answered {
            outcome,
            reply: reply.expect("a reply is a document"),
            streams,
        }
    }

    /// Runs a command on a connection of its own.
    fn run(&self, database: &str, mut body: Document) -> Document {
        body.insert("$db", database);
        let mut session = self.connect(1);
        let first = (None, self.clock.now(), 0);
        let answered = self.serve(&mut session, &message(MsgFlags::NONE, body), first);
        self.dispatcher.close(session);
        answered.reply
    }

    fn ok(&self, database: &str, body: Document) -> Document {
        let command = body.to_string();
        let reply = self.run(database, body);
        assert_eq!(code(&reply), 0, "{command}: {reply}");
        reply
    }

    /// A capped collection, and a tailable cursor that has been read to its end.
    fn tail(&self) -> i64 {
        self.ok(
            "test",
            doc! { "create": "log", "capped": true, "size": 4096 },
        );
        self.ok(
            "test",
            doc! { "insert": "log", "documents": [{ "_id": 1 }] },
        );
        let find = doc! { "find": "log", "tailable": true, "awaitData": true, "lsid": lsid() };
        let reply = self.ok("test", find);
        let cursor = reply.get_document("cursor").expect("a find has it");
        cursor.get_i64("id").expect("it is open")
    }

    /// The effects of a command of the document layer, run without dispatching.
    fn look(&self, body: &RawDocument) -> Effects {
        let state = &self.dispatcher.state;
        let environment: Arc<dyn Environment> = state.environment.clone();
        let operation = Operation::new(environment, Arc::default(), Limits::default());
        let lsid = body.get_document("lsid").expect("the cursor's session");
        let request = CommandRequest {
            database: body.get_str("$db").expect("a database"),
            name: command_name(body),
            body,
            sequences: &[],
            session: lsid.get_binary("id").ok().map(|id| id.bytes),
            principal: &Principal::EVERYBODY,
        };
        let result = state.documents.run(&request, &operation, &mut Vec::new());
        result.expect("it is answered")
    }

    /// Serves a `getMore` that has to wait, and returns what tells that it is woken.
    fn wait(&self, session: &mut Session, bytes: &[u8], began: Duration) -> Receiver<()> {
        let answered = self.serve(session, bytes, (None, began, 0));
        self.woken(&answered)
    }

    fn woken(&self, answered: &Answered) -> Receiver<()> {
        let Outcome::Wait {
            ticket: Some(ticket),
            ..
        } = answered.outcome
        else {
            panic!("it waits for no data: {:?}", answered.reply);
        };
        let (sender, woken) = channel();
        let wake = move || {
            // A test that has seen enough listens no more.
            let _ = sender.send(());
        };
        let waiters = &self.dispatcher.state.waiters;
        waiters.notifier().wait(ticket, Box::new(wake));
        woken
    }
}

fn message(flags: MsgFlags, body: Document) -> Vec<u8> {
    let raw = RawDocumentBuf::try_from(body).expect("the request is small");
    let mut bytes = Vec::new();
    encode_msg(&mut bytes, 1, flags, &raw, &[]);
    bytes
}

fn lsid() -> Document {
    let subtype = bson::spec::BinarySubtype::Uuid;
    let bytes = vec![7; 16];
    doc! { "id": bson::Binary { subtype, bytes } }
}

fn get_more(id: i64, flags: MsgFlags) -> Vec<u8> {
    let body = doc! {
        "getMore": id, "collection": "log", "maxTimeMS": 3_600_000, "lsid": lsid(), "$db": "test",
    };
    message(flags, body)
}

fn code(reply: &Document) -> i32 {
    reply.get_i32("code").unwrap_or(0)
}

fn next_batch(reply: &Document) -> &[Bson] {
    let cursor = reply
        .get_document("cursor")
        .unwrap_or_else(|_| panic!("no cursor: {reply}"));
    cursor.get_array("nextBatch").expect("a getMore has it")
}

/// The operation that a waiting `getMore` is.
fn waiting_operation(fixture: &Fixture) -> Option<i64> {
    let reply = fixture.ok("admin", doc! { "currentOp": 1, "op": "getmore" });
    let operations = reply.get_array("inprog").expect("a list");
    let operation = operations.first()?.as_document().expect("a document");
    Some(operation.get_i64("opid").expect("it has a number"))
}

#[test]
fn a_wait_is_over_when_its_time_or_its_collection_says_so() {
    let fixture = Fixture::new();
    let bytes = get_more(fixture.tail(), MsgFlags::NONE);
    let mut session = fixture.connect(5);
    let began = fixture.clock.now();
    let woken = fixture.wait(&mut session, &bytes, began);
    assert!(woken.try_recv().is_err(), "nothing has happened yet");
    let operation = waiting_operation(&fixture).expect("it can be seen");
    let resumed = Some(Resumed::Notified);
    let again = fixture.serve(&mut session, &bytes, (resumed, began, 0));
    let woken = fixture.woken(&again);
    assert_eq!(waiting_operation(&fixture), Some(operation), "the same one");
    fixture.ok(
        "test",
        doc! { "insert": "log", "documents": [{ "_id": 2 }] },
    );
    woken.try_recv().expect("the insertion wakes");
    let answered = fixture.serve(&mut session, &bytes, (resumed, began, 0));
    assert_eq!(next_batch(&answered.reply), [doc! { "_id": 2 }.into()]);
    assert_eq!(waiting_operation(&fixture), None, "it has ended");
}

#[test]
fn whatever_inserts_wakes_the_one_who_waits() {
    let upsert = doc! { "q": { "_id": 2 }, "u": { "$set": { "a": 1 } }, "upsert": true };
    let modify = doc! { "$set": { "a": 1 } };
    let insertions = [
        (
            "test",
            doc! { "insert": "log", "documents": [{ "_id": 2 }] },
        ),
        ("test", doc! { "update": "log", "updates": [upsert] }),
        (
            "test",
            doc! { "findAndModify": "log", "query": { "_id": 2 }, "update": modify, "upsert": true },
        ),
        (
            "admin",
            doc! {
                "bulkWrite": 1,
                "ops": [{ "insert": 0, "document": { "_id": 2 } }],
                "nsInfo": [{ "ns": "test.log" }],
            },
        ),
        (
            "test",
            doc! { "aggregate": "other", "pipeline": [{ "$merge": "log" }], "cursor": {} },
        ),
    ];
    for (database, insertion) in insertions {
        let fixture = Fixture::new();
        let bytes = get_more(fixture.tail(), MsgFlags::NONE);
        let mut session = fixture.connect(5);
        let woken = fixture.wait(&mut session, &bytes, fixture.clock.now());
        let other = doc! { "insert": "other", "documents": [{ "_id": 2 }] };
        fixture.ok("test", other);
        let change = doc! { "q": { "_id": 1 }, "u": { "$set": { "a": 1 } } };
        fixture.ok("test", doc! { "update": "log", "updates": [change] });
        assert!(woken.try_recv().is_err(), "nothing was inserted into it");
        fixture.ok(database, insertion.clone());
        woken
            .try_recv()
            .unwrap_or_else(|_| panic!("{insertion} wakes"));
    }
}

#[test]
fn every_round_of_a_stream_has_the_whole_patience() {
    let fixture = Fixture::new();
    let bytes = get_more(fixture.tail(), MsgFlags::EXHAUST_ALLOWED);
    let mut session = fixture.connect(5);
    let patience = Duration::from_secs(3600);
    let began = fixture.clock.now();
    let now = began + patience;
    fixture.clock.advance_to(now);
    let timed_out = Some(Resumed::TimedOut);
    let first = fixture.serve(&mut session, &bytes, (timed_out, began, 0));
    assert_eq!(next_batch(&first.reply), []);
    assert!(first.streams, "another reply follows");
    let second = fixture.serve(&mut session, &bytes, (None, now, 1));
    assert!(
        matches!(second.outcome, Outcome::Wait { until, .. } if until == now + patience),
        "{:?}",
        second.outcome
    );
}

#[test]
fn whatever_ends_a_wait_wakes_the_one_who_waits() {
    let ends = [
        ("test", doc! { "drop": "log" }, 175),
        ("test", doc! { "dropDatabase": 1 }, 175),
        (
            "admin",
            doc! { "renameCollection": "test.log", "to": "test.old" },
            175,
        ),
        ("test", doc! { "killCursors": "log" }, 237),
        ("admin", doc! { "endSessions": [lsid()] }, 237),
        ("admin", doc! { "killSessions": [lsid()] }, 237),
        ("admin", doc! { "killAllSessions": [] }, 237),
        ("admin", doc! { "killOp": 1 }, 11601),
    ];
    for (database, mut end, expected) in ends {
        let fixture = Fixture::new();
        let id = fixture.tail();
        let bytes = get_more(id, MsgFlags::EXHAUST_ALLOWED);
        let mut session = fixture.connect(5);
        let began = fixture.clock.now();
        let woken = fixture.wait(&mut session, &bytes, began);
        fixture.ok("test", doc! { "create": "other" });
        fixture.ok("test", doc! { "drop": "other" });
        assert!(woken.try_recv().is_err(), "that was another collection");
        if end.contains_key("killCursors") {
            end.insert("cursors", [id]);
        }
        if end.contains_key("killOp") {
            end.insert("op", waiting_operation(&fixture).expect("it waits"));
        }
        fixture.ok(database, end.clone());
        woken.try_recv().unwrap_or_else(|_| panic!("{end} wakes"));
        let resumed = (Some(Resumed::Notified), began, 0);
        let answered = fixture.serve(&mut session, &bytes, resumed);
        assert_eq!(code(&answered.reply), expected, "{end}: {}", answered.reply);
        assert!(!answered.streams, "{end}: an error is the last reply");
        let after = fixture.serve(&mut session, &bytes, (None, fixture.clock.now(), 0));
        assert_eq!(code(&after.reply), 43, "{end}: the cursor is gone");
    }
}

#[test]
fn an_ending_between_the_look_and_the_wait_is_not_missed() {
    let fixture = Fixture::new();
    let bytes = get_more(fixture.tail(), MsgFlags::NONE);
    let mut session = fixture.connect(5);
    let message = Message::parse(&bytes).expect("the request is well-formed");
    let parsed = OpMsg::parse(&message).expect("the request is well-formed");
    let generic = GenericArguments::parse(parsed.body).expect("the request is legal");
    let request = Request {
        message,
        began: fixture.clock.now(),
        resumed: None,
        round: 0,
    };
    let mut wait = |endings| {
        let effects = fixture.look(parsed.body);
        let waits =
            fixture
                .dispatcher
                .await_data(&mut session, &request, &generic, &effects, endings);
        fixture.woken(&Answered {
            outcome: waits.expect("there is nothing"),
            reply: Document::new(),
            streams: false,
        })
    };
    let waiters = &fixture.dispatcher.state.waiters;
    let looked = waiters.endings();
    waiters.ended(|_| true);
    wait(looked).try_recv().expect("it looks again");
    let woken = wait(waiters.endings());
    assert!(woken.try_recv().is_err(), "nothing has happened since");
}

#[test]
fn the_stop_of_the_server_ends_waits() {
    let fixture = Fixture::new();
    let bytes = get_more(fixture.tail(), MsgFlags::NONE);
    let mut session = fixture.connect(5);
    let began = fixture.clock.now();
    let woken = fixture.wait(&mut session, &bytes, began);
    fixture.dispatcher.interrupt_all();
    woken.try_recv().expect("the stop wakes");
    let resumed = (Some(Resumed::Notified), began, 0);
    let answered = fixture.serve(&mut session, &bytes, resumed);
    assert_eq!(code(&answered.reply), 11600, "{}", answered.reply);
}

#[test]
fn who_leaves_waits_no_more() {
    let fixture = Fixture::new();
    let bytes = get_more(fixture.tail(), MsgFlags::NONE);
    let mut session = fixture.connect(5);
    let slot = Arc::downgrade(session.slot());
    let woken = fixture.wait(&mut session, &bytes, fixture.clock.now());
    fixture.dispatcher.close(session);
    fixture.ok(
        "test",
        doc! { "insert": "log", "documents": [{ "_id": 2 }] },
    );
    assert!(woken.try_recv().is_err(), "nobody is there to be woken");
    assert_eq!(waiting_operation(&fixture), None);
    assert_eq!(Weak::strong_count(&slot), 0, "its operation is gone too");
}

/// A client that has logged in and may only find in `test.c`.
#[derive(Debug)]
struct Finder;

impl Grants for Finder {
    fn is_authenticated(&self) -> bool {
        true
    }

    fn allows(&self, privilege: &Privilege<'_>) -> bool {
        let resource = Resource::Collection {
            database: "test",
            collection: "c",
        };
        (privilege.action, privilege.resource) == (Action::Find, resource)
    }
}

#[test]
fn privileges_are_checked_before_a_command_runs() {
    let fixture = Fixture::new();
    let mut session = fixture.connect(5);
    let run = |session: &mut Session, database: &str, mut body: Document| {
        body.insert("$db", database);
        let bytes = message(MsgFlags::NONE, body);
        let answered = fixture.serve(session, &bytes, (None, fixture.clock.now(), 0));
        answered.reply
    };
    let insert = doc! { "insert": "c", "documents": [{ "_id": 1 }] };
    let cases = [
        ("test", doc! { "find": "c" }, 0),
        ("test", doc! { "explain": { "find": "c" } }, 0),
        ("test", doc! { "find": "d" }, 13),
        ("other", doc! { "find": "c" }, 13),
        ("test", insert.clone(), 13),
        (
            "test",
            doc! { "aggregate": "c", "pipeline": [], "cursor": {} },
            13,
        ),
        ("admin", doc! { "serverStatus": 1 }, 13),
        ("admin", doc! { "shutdown": 1 }, 13),
        ("admin", doc! { "hello": 1 }, 0),
        ("admin", doc! { "startSession": 1 }, 0),
    ];
    session.set_principal(Principal::with_grants(Arc::new(Finder)));
    for (database, body, expected) in cases {
        let text = format!("{database}: {body}");
        let reply = run(&mut session, database, body);
        assert_eq!(code(&reply), expected, "{text}: {reply}");
    }
    let reply = run(&mut session, "test", insert.clone());
    let message = "not authorized on test to execute command insert";
    assert_eq!(reply.get_str("errmsg").ok(), Some(message));
    session.set_principal(Principal::EVERYBODY);
    assert_eq!(
        code(&run(&mut session, "test", insert)),
        0,
        "nothing was inserted before"
    );
}

#[test]
fn facts_of_a_command_decide_about_generic_arguments() {
    let fixture = Fixture::new();
    let commands = &fixture.dispatcher.state.commands;
    let mut refused = 0;
    for entry in commands.commands() {
        let body = doc! { entry.name: 1, "writeConcern": { "w": 1 } };
        let reply = fixture.run("admin", body);
        let expected = entry.spec.write_concern == WriteConcernSupport::Refused;
        let message = "Command does not support writeConcern";
        let is_refused = reply.get_str("errmsg").ok() == Some(message);
        assert_eq!(is_refused, expected, "{}: {reply}", entry.name);
        assert!(!is_refused || code(&reply) == 72, "{reply}");
        refused += u32::from(is_refused);
    }
    assert_eq!(refused, 13);
    for entry in commands.commands() {
        for name in entry.spec.spellings() {
            let body = doc! { name: 1, "apiVersion": "1", "apiStrict": true };
            let reply = fixture.run("admin", body);
            let expected = entry.spec.stable_api == StableApi::Outside;
            assert_eq!(code(&reply) == 323, expected, "{name}: {reply}");
        }
    }
    for entry in commands.commands() {
        let reply = fixture.run("test", doc! { entry.name: 1 });
        let message = format!("{} may only be run against the admin database.", entry.name);
        let is_refused = reply.get_str("errmsg").ok() == Some(message.as_str());
        assert_eq!(is_refused, entry.spec.admin_only, "{}: {reply}", entry.name);
        assert!(!is_refused || code(&reply) == 13, "{reply}");
    }
    let reply = fixture.run("test", doc! { "frobnicate": 1 });
    assert_eq!(code(&reply), 59);
    let message = "no such command: 'frobnicate'";
    assert_eq!(reply.get_str("errmsg").ok(), Some(message));
    assert_eq!(fixture.dispatcher.state.metrics.unknown_commands(), 1);
}

#[test]
fn commands_are_listed_as_mongodb_lists_them() {
    let fixture = Fixture::new();
    let reply = fixture.ok("admin", doc! { "listCommands": 1 });
    let commands = reply.get_document("commands").expect("a document");
    assert!(commands.keys().is_sorted() && !commands.contains_key("ismaster"));
    let keys: Vec<_> = commands.keys().map(String::as_str).collect();
    let registered = fixture.dispatcher.state.commands.commands();
    assert_eq!(keys, registered.map(|entry| entry.name).collect::<Vec<_>>());
    let find = doc! {
        "help": "finds documents", "requiresAuth": true, "secondaryOk": false, "adminOnly": false,
        "secondaryOverrideOk": true, "apiVersions": ["1"], "deprecatedApiVersions": [],
    };
    assert_eq!(commands.get_document("find").ok(), Some(&find));
    let ping = doc! {
        "help": "nothing: the server is there", "requiresAuth": false, "secondaryOk": true,
        "adminOnly": false, "apiVersions": ["1"], "deprecatedApiVersions": [],
    };
    assert_eq!(commands.get_document("ping").ok(), Some(&ping));
    let shutdown = commands.get_document("shutdown").expect("it exists");
    assert_eq!(shutdown.get_bool("adminOnly").ok(), Some(true));
}

#[test]
fn spellings_share_their_counters() {
    let fixture = Fixture::new();
    for name in ["isMaster", "ismaster", "ismaster"] {
        fixture.ok("admin", doc! { name: 1 });
    }
    let reply = fixture.ok("admin", doc! { "serverStatus": 1 });
    let commands = reply
        .get_document("metrics")
        .and_then(|metrics| metrics.get_document("commands"))
        .expect("counters by command");
    let is_master = commands.get_document("isMaster").expect("it exists");
    assert_eq!(is_master.get_i64("total").ok(), Some(3));
    assert!(!commands.contains_key("ismaster"));
}

#[test]
fn fail_points_decide_about_time_limits() {
    let fixture = Fixture::new();
    let configure = |name: &str, mode: &str| {
        let command = doc! { "configureFailPoint": name, "mode": mode };
        fixture
            .ok("admin", command)
            .get_i64("count")
            .expect("a number")
    };
    let limited = |ms: i32| {
        let reply = fixture.run("test", doc! { "find": "c", "maxTimeMS": ms });
        code(&reply)
    };
    fixture.ok("test", doc! { "insert": "c", "documents": [{}] });
    configure("maxTimeAlwaysTimeOut", "alwaysOn");
    assert_eq!(limited(3_600_000), 50);
    assert_eq!(limited(0), 0, "no limit");
    fixture.ok("test", doc! { "find": "c" });
    let ping = doc! { "ping": 1, "maxTimeMS": 3_600_000 };
    assert_eq!(code(&fixture.run("admin", ping)), 50);
    assert_eq!(configure("maxTimeAlwaysTimeOut", "off"), 2);
    assert_eq!(limited(3_600_000), 0);

    // A limit that was over before the request is served.
    let body = doc! { "find": "c", "maxTimeMS": 1, "$db": "test" };
    let bytes = message(MsgFlags::NONE, body);
    let mut session = fixture.connect(5);
    let began = fixture.clock.now();
    fixture.clock.advance_to(began + Duration::from_millis(1));
    let mut late = || code(&fixture.serve(&mut session, &bytes, (None, began, 0)).reply);
    configure("maxTimeNeverTimeOut", "alwaysOn");
    assert_eq!(late(), 0);
    assert_eq!(configure("maxTimeNeverTimeOut", "off"), 1);
    assert_eq!(late(), 50);

    let unknown = doc! { "configureFailPoint": "maxTime", "mode": "off" };
    let reply = fixture.run("admin", unknown);
    assert_eq!(code(&reply), 266);
    assert_eq!(reply.get_str("errmsg").ok(), Some("maxTime not found"));
}
