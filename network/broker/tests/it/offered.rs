//! Forwarders that another process offers to the broker: here another thread that has the socket alone.

use std::os::fd::OwnedFd;
use std::thread::JoinHandle;
use std::time::Instant;

use crate::fixture::{Running, connect, listen, listener, local, user};
use millrace_broker::client::{Client, Connected, ConnectionFds, accept};
use millrace_broker::forwarder::{Command, ForwarderPool, ForwarderSettings, serve};
use millrace_broker::registry::{DataPath, Limits, Settings};
use millrace_stream::control::{Message, Mode};
use millrace_stream::{Geometry, ReceiveCursor, RingPair, SendCursor, Side};
use millrace_window::Window;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{SendFlags, send};

/// Forwarders that run until the socket is shut down.
struct Offered {
    socket: OwnedFd,
    threads: Vec<JoinHandle<()>>,
}

impl Offered {
    fn new(running: &Running) -> Self {
        let client = Client::connect(&running.path()).expect("it listens");
        let socket = client
            .offer_forwarders(2)
            .expect("there are no forwarders yet");
        let (pool, forwarders) =
            ForwarderPool::new(2, ForwarderSettings::default()).expect("its descriptors");
        let mut threads = Vec::new();
        for mut forwarder in forwarders {
            threads.push(std::thread::spawn(move || {
                let start = Instant::now();
                let clock = || u64::try_from(start.elapsed().as_nanos()).expect("centuries");
                forwarder.run(clock).expect("the forwarder works");
            }));
        }
        let orders = socket.try_clone().expect("a descriptor");
        threads.push(std::thread::spawn(move || {
            serve(&orders, &pool).expect("it waits");
            for forwarder in pool.forwarders() {
                forwarder.send(Command::Stop);
            }
        }));
        Self { socket, threads }
    }

    /// Ends as if the process were killed.
    fn kill(self) {
        let both = rustix::net::Shutdown::Both;
        rustix::net::shutdown(&self.socket, both).expect("it is connected");
        for thread in self.threads {
            thread.join().expect("it does not panic");
        }
    }
}

fn forwarded() -> Running {
    Running::new(Settings {
        data_path: DataPath::Forwarded,
        ..Settings::default()
    })
}

fn rings(ends: &ConnectionFds, side: Side) -> RingPair {
    let window = Window::attach(&ends.memory).expect("sealed memory");
    let geometry = Geometry {
        ring_lines: ends.link.ring_lines,
    };
    RingPair::new(&window, geometry, side).expect("its size fits")
}

fn wait(ends: &ConnectionFds) -> PollFlags {
    let mut watched = [PollFd::new(&ends.wakeup, PollFlags::IN)];
    poll(&mut watched, None).expect("it waits");
    watched[0].revents()
}

#[test]
fn a_connection_is_carried_and_then_lost_with_the_forwarders() {
    let running = forwarded();
    let offered = Offered::new(&running);
    let tcp = listener("127.0.0.1:0");
    let mut server = running.process();
    let channel = listen(&mut server, &tcp, 16);
    let mut program = running.process();
    let ours = user(connect(&mut program, local(&tcp)));
    let theirs = accept(&channel).expect("one").fds;
    assert_eq!(
        (ours.link.mode, theirs.link.mode),
        (Mode::Forwarded, Mode::Forwarded)
    );

    let mut sender = rings(&ours, Side::Connecting);
    let mut receiver = rings(&theirs, Side::Accepting);
    let mut sent = SendCursor::default();
    let count = sender.sender.send(&sender.peer_state, &mut sent, b"bytes");
    assert_eq!(count.expect("the forwarder keeps to the protocol"), 5);
    if sender.sender.wake(&sender.peer_state, &mut sent) {
        send(&ours.wakeup, &[], SendFlags::empty()).expect("the forwarder is there");
    }
    let mut received = ReceiveCursor::default();
    let mut bytes = [0; 64];
    let mut got = 0;
    while got == 0 {
        let taken = receiver
            .receiver
            .receive(&receiver.peer_state, &mut received, &mut bytes);
        got = taken.expect("the forwarder keeps to the protocol").bytes;
        std::thread::yield_now();
    }
    assert_eq!(&bytes[..got], b"bytes");

    offered.kill();
    while !wait(&ours).contains(PollFlags::HUP) {}
    while !wait(&theirs).contains(PollFlags::HUP) {}
}

#[test]
fn a_user_has_so_many_connections_carried_and_the_kernel_serves_the_rest() {
    let running = Running::new(Settings {
        data_path: DataPath::Forwarded,
        limits: Limits {
            forwarded_per_user_max: 2,
            ..Limits::DEFAULT
        },
        ..Settings::default()
    });
    let offered = Offered::new(&running);
    let tcp = listener("127.0.0.1:0");
    let mut server = running.process();
    let channel = listen(&mut server, &tcp, 16);
    let mut program = running.process();
    let mut open = || connect(&mut program, local(&tcp));
    let first = user(open());
    let _second = user(open());
    assert!(matches!(open(), Connected::Kernel));
    let status = server.report(Message::Status).expect("an answer");
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    assert_eq!(status["forwarders"]["users"][0]["connections"], 2);
    assert_eq!(status["forwarders"]["turned_away"], 1);
    drop(accept(&channel).expect("one"));
    drop(first);
    // The forwarders see it by the socket's hang-up.
    while matches!(open(), Connected::Kernel) {}
    drop(channel);
    offered.kill();
}

#[test]
fn without_forwarders_the_kernel_serves_and_others_may_take_over() {
    let running = forwarded();
    let tcp = listener("127.0.0.1:0");
    let mut server = running.process();
    let _channel = listen(&mut server, &tcp, 16);
    let mut program = running.process();
    let mut open = || connect(&mut program, local(&tcp));
    assert!(matches!(open(), Connected::Kernel));
    for _ in 0..3 {
        let offered = Offered::new(&running);
        assert!(matches!(open(), Connected::User(_)));
        let another = Client::connect(&running.path()).expect("it listens");
        assert!(
            another.offer_forwarders(1).is_err(),
            "there are forwarders already"
        );
        offered.kill();
        // The broker sees it by the socket, and until then makes connections that end at once.
        while !matches!(open(), Connected::Kernel) {}
    }
}
