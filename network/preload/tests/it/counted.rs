//! Differences from the kernel's TCP, and the way calls wait: sleeps and wake-ups are counted, times are not.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use millrace_broker::broker::Broker;
use millrace_broker::registry::Settings;
use millrace_stream::control::Message;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept, bind, listen, socket_with,
};
use serde_json::Value;

use crate::fixture::{Fixture, library, run};

/// A thread that yields to a computing one gets the processor back at the end of that one's time slice; a sleeping
/// thread gets it when its peer notifies.
#[test]
fn no_thread_yields_to_one_that_computes() {
    let fixture = Fixture::new();
    let run = fixture.run(&fixture.compile("hogged"), true);
    assert_eq!(run.text, "trips: 300\nexit status: 0");
    let totals = run.totals;
    let [sleeps, wakeups] = ["sleeps", "notifications"].map(|name| totals.counter(name));
    // Each round trip waits twice. Some of the waits probe.
    assert!(sleeps >= 300, "{totals:?}");
    assert!(wakeups <= sleeps + 8, "{totals:?}");
}

/// A write past the library resets the connection, even after the writer has exited.
#[test]
fn foreign_bytes_reset() {
    let fixture = Fixture::new();
    let run = fixture.run(&fixture.compile("foreign"), true);
    let expected = "child: 0\nrecv: 4\nrecv: ECONNRESET\n\
        child: 0\nrecv, not waiting: 4\nrecv, not waiting: ECONNRESET\nexit status: 0";
    assert_eq!(run.text, expected);
}

/// A process that holds a connection and is killed, or does not claim it, does not shorten the sleeps of others.
#[test]
fn records_of_killed_processes_are_released() {
    let fixture = Fixture::new();
    let run = fixture.run(&fixture.compile("killed"), true);
    let sleeps = run.totals.counter("sleeps");
    // Three waits without a result; slices would make thirty sleeps of each.
    assert!(sleeps < 16, "{:?}", run.totals);
}

/// A change that a killed process left half done resets the connection, for its own side and for the peer.
#[test]
fn a_torn_connection_is_reset() {
    let fixture = Fixture::new();
    let run = fixture.run(&fixture.compile("poisoned"), true);
    let expected = "killed by SIGBUS: 1\nsend beside it: ECONNRESET\nrecv beside it: ECONNRESET\n\
        peer: ECONNRESET\nexit status: 0";
    assert_eq!(run.text, expected);
}

/// A child introduces itself to the broker at its first connection, or before it drops privileges.
#[test]
fn children_introduce_themselves_when_they_must() {
    let fixture = Fixture::new();
    let run = fixture.run(&fixture.compile("forks"), true);
    // The parent, two children that serve, and the client of the broker.
    assert_eq!(run.totals.requests("processes"), 4, "{:?}", run.totals);
    assert_eq!(run.totals.counter("accepts"), 2, "{:?}", run.totals);
}

/// A connection that both sides of a fork have closed ends, though a set had it, and though both processes run on. The
/// kernel refuses clients then.
#[test]
fn what_both_sides_of_a_fork_closed_is_gone() {
    let fixture = Fixture::new();
    let program = fixture.compile("wait_lets_go");
    let [by_kernel, by_user] =
        [false, true].map(|at_user_level| fixture.run(&program, at_user_level));
    assert_eq!(by_user.text, by_kernel.text);
    assert_eq!(by_user.totals.counter("connects"), 1);
}

/// Servers whose workers only accept register with the next broker, in every kind of wait.
#[test]
fn listeners_register_with_the_next_broker() {
    let mut fixture = Fixture::new();
    let mut servers = fixture.start(&fixture.compile("servers"), Stdio::inherit());
    until(|| fixture.listeners() == 3);
    fixture.restart();
    until(|| fixture.listeners() == 3);
    drop(servers.stdin.take());
    let ended = servers.wait().expect("it was started");
    assert!(ended.success(), "{ended}");
}

/// Threads that wait for one listener register it with the next broker once, and all accept its connections.
#[test]
fn threads_announce_their_listener_once() {
    let mut fixture = Fixture::new();
    let mut crowd = Crowd::start(&fixture);
    until(|| fixture.listeners() == 1);
    fixture.restart();
    until(|| fixture.listeners() == 1);
    crowd.order(ALL);
    assert_eq!(fixture.requests("listeners"), 1);
    crowd.end();
}

/// A broker exited while a lease keeps its channel to a listener open: threads that sleep for that channel get the next
/// one, though another thread has found the exit.
#[test]
fn sleepers_get_the_next_channel_after_a_broker_exits() {
    let mut fixture = Fixture::new();
    let mut crowd = Crowd::start(&fixture);
    until(|| {
        crowd.order(LEND);
        fixture.requests("leases") > 0
    });
    fixture.restart();
    until(|| {
        crowd.order(ONE);
        fixture.listeners() == 1
    });
    crowd.order(ALL);
    assert_eq!(fixture.requests("listeners"), 1);
    crowd.end();
}

/// A waiter that leaves accepting to another process gets one hang-up after the broker's exit, as for a connection that
/// the other process has taken.
#[test]
fn a_broker_exit_is_reported_once() {
    let mut fixture = Fixture::new();
    let mut watch = fixture.start(&fixture.compile("watch"), Stdio::piped());
    until(|| fixture.listeners() == 1);
    fixture.restart();
    until(|| fixture.listeners() == 1);
    let mut counts = [0; 12];
    let (orders, answers) = (&mut watch.stdin, &mut watch.stdout);
    let orders = orders.as_mut().expect("it is a pipe");
    orders.write_all(b"?").expect("it reads");
    let answers = answers.as_mut().expect("it is a pipe");
    answers.read_exact(&mut counts).expect("it lives");
    // Four threads by poll, four with sets of their own, and one set of four.
    for (count, most) in counts.chunks(4).zip([4, 4, 1]) {
        let count = i32::from_ne_bytes(count.try_into().expect("four bytes"));
        assert!(count <= most, "{counts:?}");
    }
    drop(watch.stdin.take());
    let ended = watch.wait().expect("it was started");
    assert!(ended.success(), "{ended}");
}

/// A stopped broker does not delay each connection of a program: one request times out, and the next follows after a
/// pause.
#[test]
fn a_stopped_broker_is_asked_once() {
    let fixture = Fixture::new();
    let path = fixture.folder.path().join("stopped");
    let flags = SocketFlags::NONBLOCK;
    let stopped = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let stopped = stopped.expect("a socket");
    bind(&stopped, &SocketAddrUnix::new(&path).expect("short")).expect("the folder is new");
    // The kernel accepts connections and buffers requests, and no reply comes.
    listen(&stopped, 64).expect("it is bound");
    let text = fixture.text_of(&fixture.compile("visits"), Some(path));
    assert_eq!(text, "visits: 20\nexit status: 0");
    let asked = std::iter::from_fn(|| accept(&stopped).ok()).count();
    assert_eq!(asked, 1);
}

/// Polls until the condition holds.
fn until(mut holds: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < limit, "it never comes");
        std::thread::yield_now();
    }
}

/// Commands of `crowd.c`.
const ONE: u8 = b'o';
const ALL: u8 = b'a';
const LEND: u8 = b'l';

/// A program whose threads accept, and connect on command.
struct Crowd {
    program: Child,
}

impl Crowd {
    fn start(fixture: &Fixture) -> Self {
        let program = fixture.start(&fixture.compile("crowd"), Stdio::piped());
        Self { program }
    }

    /// Sends a command, and returns after its reply.
    fn order(&mut self, order: u8) {
        let orders = self.program.stdin.as_mut().expect("it is a pipe");
        let answers = self.program.stdout.as_mut().expect("it is a pipe");
        orders.write_all(&[order]).expect("it reads");
        let mut answer = [0];
        answers.read_exact(&mut answer).expect("it lives");
        if answer[0] != order {
            let mut rest = String::new();
            answers.read_to_string(&mut rest).expect("text");
            panic!("{}{rest}", char::from(answer[0]));
        }
    }

    fn end(mut self) {
        drop(self.program.stdin.take());
        let ended = self.program.wait().expect("it was started");
        assert!(ended.success(), "{ended}");
    }
}

impl Fixture {
    /// Stops the broker and starts another one in its place.
    fn restart(&mut self) {
        drop(self.stop.take());
        let thread = self.thread.take().expect("it runs");
        thread.join().expect("the broker stops without an error");
        let broker = Broker::bind(&self.socket(), Settings::default())
            .expect("no other broker listens there");
        let (stop, thread) = run(broker);
        (self.stop, self.thread) = (Some(stop), Some(thread));
    }

    /// Starts a program at user level that exits at the end of its standard input.
    fn start(&self, program: &Path, output: Stdio) -> Child {
        Command::new(program)
            .current_dir(self.folder.path())
            .stdin(Stdio::piped())
            .stdout(output)
            .env("MILLRACE_SOCKETS", self.socket())
            .env("LD_PRELOAD", library())
            .spawn()
            .expect("it was compiled")
    }

    /// Number of listeners that the broker has registered.
    fn listeners(&self) -> usize {
        let listeners = &self.status()["listeners"];
        listeners.as_array().expect("a list").len()
    }

    /// Number of requests of this name that the broker has served.
    fn requests(&self, name: &str) -> u64 {
        let requests = &self.status()["requests"];
        requests[name].as_u64().expect("a counter")
    }

    fn status(&self) -> Value {
        let report = self.client().report(Message::Status).expect("an answer");
        serde_json::from_str(&report).expect("it is JSON")
    }
}
