//! Commands through the dispatcher, without a network: the test says when a request is served again.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bson::{Bson, Document, RawDocumentBuf, doc};
use clap::Parser;
use millrace_engine::MemoryEngine;
use millrace_wire::{Message, MsgFlags, OpCode, OpMsg, encode_msg};

use super::Dispatcher;
use crate::clock::Clock;
use crate::commands::generic::GenericArguments;
use crate::commands::parameters::Parameters;
use crate::documents::{Awaited, DocumentEffects};
use crate::environment::SystemEntropy;
use crate::log::RecentLines;
use crate::network::{
    ConnectionId, ConnectionInfo, Outcome, ReplyBuffer, Request, Resumed, Service,
};
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
        let effects = DocumentEffects {
            wait: Some(Box::new(Nothing)),
            ..DocumentEffects::default()
        };
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

/// A collection into which nothing is inserted.
#[derive(Debug)]
struct Nothing;

impl Awaited for Nothing {
    fn is_over(&self) -> bool {
        false
    }

    fn namespace(&self) -> &str {
        "test.log"
    }
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
