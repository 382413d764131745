//! Processes that listen, connect and accept through a running broker.

use std::net::TcpListener;
use std::os::fd::AsFd;

use crate::fixture::{Running, address, any, connect, listen, listener, local, slab, user};
use millrace_broker::ErrorKind;
use millrace_broker::broker::Broker;
use millrace_broker::client::{Client, Connected, ConnectionFds, accept};
use millrace_broker::registry::{Limits, Settings};
use millrace_stream::control::{Message, Mode};
use millrace_stream::{Geometry, ReceiveCursor, RingPair, SendCursor, Side};
use millrace_window::Window;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// Waits for the hang-up of a descriptor.
fn wait_for_end(wakeup: impl AsFd) {
    let mut polled = [PollFd::new(&wakeup, PollFlags::empty())];
    poll(&mut polled, None).expect("a poll");
    assert!(polled[0].revents().contains(PollFlags::HUP));
}

fn rings(ends: &ConnectionFds, side: Side) -> RingPair {
    let window = Window::attach(&ends.memory).expect("it is sealed");
    let geometry = Geometry {
        ring_lines: ends.link.ring_lines,
    };
    assert_eq!(window.size(), geometry.size());
    RingPair::new(&window, geometry, side).expect("the window has its size")
}

#[test]
fn a_byte_goes_from_one_process_to_the_other() {
    let running = Running::new(Settings::default());
    let tcp = listener("127.0.0.1:0");
    let mut server = running.process();
    let channel = listen(&mut server, &tcp, 8);
    let mut program = running.process();
    let ours = user(connect(&mut program, local(&tcp)));
    let incoming = accept(&channel).expect("it is there");
    let theirs = incoming.fds;

    assert_eq!(incoming.user, rustix::process::geteuid().as_raw());
    assert_eq!(incoming.process, std::process::id());
    assert_eq!(
        (ours.link.mode, theirs.link.mode),
        (Mode::Direct, Mode::Direct)
    );
    assert_eq!(
        (ours.link.peer, theirs.link.local),
        (local(&tcp), local(&tcp))
    );
    assert_eq!(ours.link.local, theirs.link.peer);
    assert_eq!(ours.link.local.ip().to_string(), "127.0.0.1");
    assert_ne!(ours.link.local.port(), 0);

    let mut connecting = rings(&ours, Side::Connecting);
    let mut accepting = rings(&theirs, Side::Accepting);
    let (mut sent, mut received) = (SendCursor::default(), ReceiveCursor::default());
    let taken = connecting
        .sender
        .send(&connecting.peer_state, &mut sent, b"x");
    assert_eq!(taken.expect("it has room"), 1);
    let mut byte = [0];
    let got = accepting
        .receiver
        .receive(&accepting.peer_state, &mut received, &mut byte)
        .expect("the peer keeps the protocol");
    assert_eq!((got.bytes, byte), (1, *b"x"));
}

#[test]
fn each_side_learns_that_the_other_has_died() {
    let running = Running::new(Settings::default());
    let tcp = listener("127.0.0.1:0");
    let mut server = running.process();
    let channel = listen(&mut server, &tcp, 8);
    let mut program = running.process();
    let mut open = || user(connect(&mut program, local(&tcp)));

    let (ours, theirs) = (open(), accept(&channel).expect("it is there"));
    drop(theirs);
    wait_for_end(&ours.wakeup);
    let (ours, theirs) = (open(), accept(&channel).expect("it is there"));
    drop(ours);
    wait_for_end(&theirs.fds.wakeup);
    // A connection that is not accepted yet.
    let waiting = open();
    drop(channel);
    wait_for_end(&waiting.wakeup);
}

#[test]
fn a_listener_ends_with_the_last_holder_of_its_channel() {
    let running = Running::new(Settings::default());
    let tcp = listener("127.0.0.1:0");
    let mut server = running.process();
    let channel = listen(&mut server, &tcp, 8);
    // The process exits, but a worker of it keeps the channel.
    drop(server);
    let mut program = running.process();
    user(connect(&mut program, local(&tcp)));
    drop(channel);
    let connected = connect(&mut program, local(&tcp));
    assert!(matches!(connected, Connected::Kernel), "{connected:?}");
    let status = program.report(Message::Status).expect("an answer");
    assert!(status.contains("\"listeners\":[]"), "{status}");
}

#[test]
fn a_connect_without_a_listener_is_left_to_the_kernel() {
    let running = Running::new(Settings::default());
    let mut program = running.process();
    for peer in [
        "127.0.0.1:1",
        "192.0.2.1:80",
        "[2001:db8::1]:80",
        "224.0.0.1:80",
    ] {
        let connected = connect(&mut program, address(peer));
        assert!(
            matches!(connected, Connected::Kernel),
            "{peer}: {connected:?}"
        );
    }
}

/// Connects without waiting until the backlog is full. Returns the count.
fn fill(program: &mut Client, tcp: &TcpListener) -> usize {
    let mut made = 0;
    loop {
        match program.open(any(), local(tcp), true).expect("an answer") {
            Connected::User(_) => made += 1,
            Connected::Refused(Errno::AGAIN) => return made,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn as_many_wait_to_be_accepted_as_the_backlog_says() {
    let running = Running::new(Settings::default());
    let mut server = running.process();
    let mut program = running.process();
    for backlog in [5, 16, 100] {
        let tcp = listener("127.0.0.1:0");
        let channel = listen(&mut server, &tcp, backlog);
        let made = fill(&mut program, &tcp);
        let expected = backlog as usize + 1;
        assert!(
            made.abs_diff(expected) <= 1 + expected / 50,
            "{made} of {expected}"
        );
        for _ in 0..made {
            accept(&channel).expect("it is there");
        }
        assert_eq!(fill(&mut program, &tcp), made);
    }
}

#[test]
fn a_waiting_request_is_served_when_there_is_room() {
    let running = Running::new(Settings::default());
    let tcp = listener("127.0.0.1:0");
    let mut server = running.process();
    let channel = listen(&mut server, &tcp, 4);
    let mut program = running.process();
    let made = fill(&mut program, &tcp);

    let mut other = running.process();
    let wanted: Vec<u32> = (0..10)
        .map(|_| {
            other
                .request(any(), local(&tcp), false)
                .expect("it is sent")
        })
        .collect();
    // Another listener is served in the meantime, on the same connection.
    let free = listener("127.0.0.1:0");
    let free_channel = listen(&mut server, &free, 4);
    let passed = other
        .request(any(), local(&free), false)
        .expect("it is sent");
    let (serial, connected) = other.answer().expect("an answer");
    assert_eq!(serial, passed);
    let theirs = accept(&free_channel).expect("it is there").fds.link;
    assert_eq!(user(connected).link.local, theirs.peer);

    for _ in 0..made {
        accept(&channel).expect("it is there");
    }
    for serial in wanted {
        let (answered, connected) = other.answer().expect("an answer");
        assert_eq!(answered, serial);
        let ours = user(connected).link;
        assert_eq!(
            accept(&channel).expect("it is there").fds.link.peer,
            ours.local
        );
    }
}

#[test]
fn a_request_to_an_exited_listener_is_left_to_the_kernel() {
    let running = Running::new(Settings::default());
    let tcp = listener("127.0.0.1:0");
    let mut server = running.process();
    let channel = listen(&mut server, &tcp, 1);
    let mut program = running.process();
    fill(&mut program, &tcp);
    let wanted = program
        .request(any(), local(&tcp), false)
        .expect("it is sent");
    // The reply to a later request shows that the broker has read the earlier one.
    let nobody = program
        .request(any(), address("127.0.0.1:1"), false)
        .expect("it is sent");
    assert_eq!(program.answer().expect("an answer").0, nobody);
    drop(channel);
    let (serial, connected) = program.answer().expect("an answer");
    assert_eq!(serial, wanted);
    assert!(matches!(connected, Connected::Kernel), "{connected:?}");
}

#[test]
fn one_broker_listens_at_a_path_and_the_next_takes_it_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("sockets");
    let none = Client::connect(&path).expect_err("nobody listens");
    assert_eq!(none.kind(), ErrorKind::NotRunning);
    let first = Broker::bind(&path, Settings::default()).expect("nobody listens");
    let second = Broker::bind(&path, Settings::default()).expect_err("one does");
    assert_eq!(second.kind(), ErrorKind::InUse);
    drop(first);
    // A killed broker leaves its socket.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("the name is free"));
    let _third = Broker::bind(&path, Settings::default()).expect("nobody listens any more");
}

#[test]
fn limits_refuse() {
    let limits = Limits {
        clients_per_user_max: 2,
        listeners_per_user_max: 1,
        waiting_per_client_max: 1,
        ..Limits::DEFAULT
    };
    let running = Running::new(Settings {
        limits,
        ..Settings::default()
    });
    let tcp = listener("127.0.0.1:0");
    let mut server = running.process();
    let channel = listen(&mut server, &tcp, 1);
    let error = server
        .listen(listener("127.0.0.1:0"), 1)
        .expect_err("one is the limit");
    assert_eq!(error.kind(), ErrorKind::Refused);

    let mut program = running.process();
    let mut third = Client::connect(&running.path()).expect("it listens");
    assert!(third.hello(slab()).is_err());

    fill(&mut program, &tcp);
    let first = program
        .request(any(), local(&tcp), false)
        .expect("it is sent");
    let second = program
        .request(any(), local(&tcp), false)
        .expect("it is sent");
    let (serial, connected) = program.answer().expect("an answer");
    assert_eq!(serial, second);
    assert!(
        matches!(connected, Connected::Refused(Errno::NOBUFS)),
        "{connected:?}"
    );
    accept(&channel).expect("it is there");
    accept(&channel).expect("it is there");
    let (serial, connected) = program.answer().expect("an answer");
    assert_eq!(serial, first);
    user(connected);
}
