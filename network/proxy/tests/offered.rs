//! Planes that another process offers to the monitor: here another thread, which knows the socket alone.

mod bed;

use std::os::fd::OwnedFd;
use std::thread::JoinHandle;
use std::time::Instant;

use bed::{Running, connect, listen, listener, local, user};
use millrace_proxy::client::{Client, Connected, Ends, accept};
use millrace_proxy::plane::{Command, DataPlane, PlaneSettings, serve};
use millrace_proxy::registry::{Carriage, Limits, Settings};
use millrace_stream::control::{Message, Mode};
use millrace_stream::{Geometry, Lane, ReceiveCursor, SendCursor, Side};
use millrace_window::Window;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{SendFlags, send};

/// Planes that carry until the socket is shut down.
struct Offered {
    socket: OwnedFd,
    threads: Vec<JoinHandle<()>>,
}

impl Offered {
    fn new(running: &Running) -> Self {
        let client = Client::connect(&running.path()).expect("it listens");
        let socket = client.offer(2).expect("there are no planes yet");
        let (data_plane, planes) =
            DataPlane::new(2, PlaneSettings::default()).expect("its descriptors");
        let mut threads = Vec::new();
        for mut plane in planes {
            threads.push(std::thread::spawn(move || {
                let start = Instant::now();
                let clock = || u64::try_from(start.elapsed().as_nanos()).expect("centuries");
                plane.run(clock).expect("the plane works");
            }));
        }
        let orders = socket.try_clone().expect("a descriptor");
        threads.push(std::thread::spawn(move || {
            serve(&orders, &data_plane).expect("it waits");
            for plane in data_plane.planes() {
                plane.tell(Command::Stop);
            }
        }));
        Self { socket, threads }
    }

    /// Ends as if the process were killed.
    fn die(self) {
        let both = rustix::net::Shutdown::Both;
        rustix::net::shutdown(&self.socket, both).expect("it is connected");
        for thread in self.threads {
            thread.join().expect("it does not panic");
        }
    }
}

fn proxied() -> Running {
    Running::new(Settings {
        carriage: Carriage::Proxy,
        ..Settings::default()
    })
}

fn lane(ends: &Ends, side: Side) -> Lane {
    let window = Window::attach(&ends.memory).expect("sealed memory");
    let geometry = Geometry {
        ring_lines: ends.link.ring_lines,
    };
    Lane::new(&window, geometry, side).expect("its size fits")
}

fn wait(ends: &Ends) -> PollFlags {
    let mut watched = [PollFd::new(&ends.bell, PollFlags::IN)];
    poll(&mut watched, None).expect("it waits");
    watched[0].revents()
}

#[test]
fn a_connection_is_carried_and_then_lost_with_the_planes() {
    let running = proxied();
    let offered = Offered::new(&running);
    let tcp = listener("127.0.0.1:0");
    let mut server = running.process();
    let channel = listen(&mut server, &tcp, 16);
    let mut program = running.process();
    let ours = user(connect(&mut program, local(&tcp)));
    let theirs = accept(&channel).expect("one").ends;
    assert_eq!(
        (ours.link.mode, theirs.link.mode),
        (Mode::Proxy, Mode::Proxy)
    );

    let mut sender = lane(&ours, Side::Connecting);
    let mut receiver = lane(&theirs, Side::Accepting);
    let mut sent = SendCursor::default();
    let count = sender.sender.send(&sender.sight, &mut sent, b"bytes");
    assert_eq!(count.expect("the plane keeps to the protocol"), 5);
    if sender.sender.wake(&sender.sight, &mut sent) {
        send(&ours.bell, &[], SendFlags::empty()).expect("the plane is there");
    }
    let mut received = ReceiveCursor::default();
    let mut bytes = [0; 64];
    let mut got = 0;
    while got == 0 {
        let taken = receiver
            .receiver
            .receive(&receiver.sight, &mut received, &mut bytes);
        got = taken.expect("the plane keeps to the protocol").bytes;
        std::thread::yield_now();
    }
    assert_eq!(&bytes[..got], b"bytes");

    offered.die();
    while !wait(&ours).contains(PollFlags::HUP) {}
    while !wait(&theirs).contains(PollFlags::HUP) {}
}

#[test]
fn a_user_has_so_many_connections_carried_and_the_kernel_serves_the_rest() {
    let running = Running::new(Settings {
        carriage: Carriage::Proxy,
        limits: Limits {
            carried_per_user_max: 2,
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
    assert_eq!(status["planes"]["users"][0]["connections"], 2);
    assert_eq!(status["planes"]["turned_away"], 1);
    drop(accept(&channel).expect("one"));
    drop(first);
    // The planes hear of it by its bell.
    while matches!(open(), Connected::Kernel) {}
    drop(channel);
    offered.die();
}

#[test]
fn without_planes_the_kernel_serves_and_others_may_take_over() {
    let running = proxied();
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
        assert!(another.offer(1).is_err(), "there are planes already");
        offered.die();
        // The monitor hears of it by the socket, and meanwhile makes connections that end at once.
        while !matches!(open(), Connected::Kernel) {}
    }
}
