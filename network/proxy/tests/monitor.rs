//! Processes that listen, connect and accept through a monitor that runs.

mod bed;

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};

use bed::{Running, address, any, local, user};
use millrace_proxy::ErrorKind;
use millrace_proxy::client::{Client, Connected, Ends, accept};
use millrace_proxy::monitor::Monitor;
use millrace_proxy::registry::{Limits, Settings};
use millrace_proxy::rules::Rules;
use millrace_stream::control::{Message, Mode};
use millrace_stream::{Geometry, Lane, ReceiveCursor, SendCursor, Side};
use millrace_window::Window;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, sockopt};

/// A user without any rights.
const NOBODY: u32 = 65_534;

fn listener(at: &str) -> TcpListener {
    TcpListener::bind(at).expect("a port of this host")
}

/// A listening socket that shares its port.
fn sharing(at: SocketAddr) -> TcpListener {
    let socket =
        rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    sockopt::set_socket_reuseport(&socket, true).expect("an option");
    rustix::net::bind(&socket, &at).expect("the port is shared");
    rustix::net::listen(&socket, 8).expect("it is bound");
    socket.into()
}

/// Waits until nobody has the other end.
fn wait_for_end(bell: impl AsFd) {
    let mut polled = [PollFd::new(&bell, PollFlags::empty())];
    poll(&mut polled, None).expect("a poll");
    assert!(polled[0].revents().contains(PollFlags::HUP));
}

fn lane(ends: &Ends, side: Side) -> Lane {
    let window = Window::attach(&ends.memory).expect("it is sealed");
    let geometry = Geometry {
        ring_lines: ends.link.ring_lines,
    };
    assert_eq!(window.size(), geometry.size());
    Lane::new(&window, geometry, side).expect("the window has its size")
}

#[test]
fn a_byte_goes_from_one_process_to_the_other() {
    let running = Running::new(Settings::default());
    let tcp = listener("127.0.0.1:0");
    let mut server = running.process();
    let channel = server
        .listen(&tcp, 8)
        .expect("served")
        .expect("at user level");
    let mut program = running.process();
    let ours = user(program.open(any(), local(&tcp), false).expect("an answer"));
    let incoming = accept(&channel).expect("it is there");
    let theirs = incoming.ends;

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

    let mut connecting = lane(&ours, Side::Connecting);
    let mut accepting = lane(&theirs, Side::Accepting);
    let (mut sent, mut received) = (SendCursor::default(), ReceiveCursor::default());
    let taken = connecting.sender.send(&connecting.sight, &mut sent, b"x");
    assert_eq!(taken.expect("it has room"), 1);
    let mut byte = [0];
    let got = accepting
        .receiver
        .receive(&accepting.sight, &mut received, &mut byte)
        .expect("the peer keeps the protocol");
    assert_eq!((got.bytes, byte), (1, *b"x"));
}

#[test]
fn each_side_learns_that_the_other_has_died() {
    let running = Running::new(Settings::default());
    let tcp = listener("127.0.0.1:0");
    let mut server = running.process();
    let channel = server
        .listen(&tcp, 8)
        .expect("served")
        .expect("at user level");
    let mut program = running.process();
    let mut open = || user(program.open(any(), local(&tcp), false).expect("an answer"));

    let (ours, theirs) = (open(), accept(&channel).expect("it is there"));
    drop(theirs);
    wait_for_end(&ours.bell);
    let (ours, theirs) = (open(), accept(&channel).expect("it is there"));
    drop(ours);
    wait_for_end(&theirs.ends.bell);
    // One that nobody has accepted yet.
    let waiting = open();
    drop(channel);
    wait_for_end(&waiting.bell);
}

#[test]
fn a_listener_ends_with_the_last_holder_of_its_channel() {
    let running = Running::new(Settings::default());
    let tcp = listener("127.0.0.1:0");
    let mut server = running.process();
    let channel = server
        .listen(&tcp, 8)
        .expect("served")
        .expect("at user level");
    // Its process goes, but not a worker of it.
    drop(server);
    let mut program = running.process();
    user(program.open(any(), local(&tcp), false).expect("an answer"));
    drop(channel);
    let connected = program.open(any(), local(&tcp), false).expect("an answer");
    assert!(matches!(connected, Connected::Kernel), "{connected:?}");
    let status = program.report(Message::Status).expect("an answer");
    assert!(status.contains("\"listeners\":[]"), "{status}");
}

#[test]
fn whoever_finds_nobody_is_left_to_the_kernel() {
    let running = Running::new(Settings::default());
    let mut program = running.process();
    for peer in [
        "127.0.0.1:1",
        "192.0.2.1:80",
        "[2001:db8::1]:80",
        "224.0.0.1:80",
    ] {
        let connected = program
            .open(any(), address(peer), false)
            .expect("an answer");
        assert!(
            matches!(connected, Connected::Kernel),
            "{peer}: {connected:?}"
        );
    }
}

#[test]
fn wildcards_serve_both_families_as_the_kernel_does() {
    let running = Running::new(Settings::default());
    let tcp = listener("[::]:0");
    let port = local(&tcp).port();
    let mut server = running.process();
    let channel = server
        .listen(&tcp, 8)
        .expect("served")
        .expect("at user level");
    let mut program = running.process();
    let mut open = |peer: &str| {
        let peer = address(&format!("{peer}:{port}"));
        let ours = user(program.open(any(), peer, false).expect("an answer")).link;
        let theirs = accept(&channel).expect("it is there").ends.link;
        [ours.local, ours.peer, theirs.local, theirs.peer].map(|name| name.ip().to_string())
    };
    let mapped = "::ffff:127.0.0.1";
    assert_eq!(
        open("127.0.0.1"),
        ["127.0.0.1", "127.0.0.1", mapped, mapped]
    );
    assert_eq!(open("0.0.0.0"), ["127.0.0.1", "127.0.0.1", mapped, mapped]);
    assert_eq!(
        open("127.0.0.9"),
        ["127.0.0.1", "127.0.0.9", "::ffff:127.0.0.9", mapped]
    );
    assert_eq!(open("[::ffff:127.0.0.1]"), [mapped; 4]);
    assert_eq!(open("[::1]"), ["::1"; 4]);
    assert_eq!(open("[::]"), ["::1"; 4]);
}

#[test]
fn those_who_share_a_port_take_turns() {
    let running = Running::new(Settings::default());
    let first = sharing(address("127.0.0.1:0").into());
    let second = sharing(local(&first).into());
    let mut server = running.process();
    let channels = [&first, &second].map(|tcp| {
        let channel = server.listen(tcp, 8).expect("served");
        channel.expect("at user level")
    });
    let mut program = running.process();
    for round in 0..6 {
        let ours = user(
            program
                .open(any(), local(&first), false)
                .expect("an answer"),
        );
        let theirs = accept(&channels[round % 2]).expect("it is its turn");
        assert_eq!(theirs.ends.link.peer, ours.link.local);
    }
}

#[test]
fn a_port_belongs_to_whoever_the_kernel_gave_it_to_last() {
    let running = Running::new(Settings::default());
    let tcp = listener("127.0.0.1:0");
    let name = local(&tcp);
    let mut server = running.process();
    let _stale = server
        .listen(&tcp, 8)
        .expect("served")
        .expect("at user level");
    drop(tcp);
    let tcp = sharing(name.into());
    let channel = server
        .listen(&tcp, 8)
        .expect("served")
        .expect("at user level");
    let mut program = running.process();
    for _ in 0..2 {
        user(program.open(any(), name, false).expect("an answer"));
        accept(&channel).expect("it has the port");
    }
}

#[test]
fn whoever_closes_the_socket_loses_the_port_though_the_channel_is_kept() {
    let running = Running::new(Settings::default());
    let mut thief = running.process();
    let mut server = running.process();
    let mut program = running.process();
    for wildcard in ["0.0.0.0", "[::]"] {
        let tcp = listener("127.0.0.1:0");
        let name = local(&tcp);
        let stale = thief.listen(&tcp, 8).expect("served");
        drop(tcp);
        // Nobody has it: the kernel refuses.
        let connected = program.open(any(), name, false).expect("an answer");
        assert!(matches!(connected, Connected::Kernel), "{connected:?}");
        let _stale = stale;

        let tcp = listener("127.0.0.1:0");
        let name = local(&tcp);
        let _stale = thief.listen(&tcp, 8).expect("served");
        drop(tcp);
        let tcp = listener(&format!("{wildcard}:{}", name.port()));
        let channel = server.listen(&tcp, 8).expect("served");
        let channel = channel.expect("at user level");
        user(program.open(any(), name, false).expect("an answer"));
        accept(&channel).expect("it has the port");
    }
}

#[test]
fn those_who_share_a_port_lose_it_one_by_one() {
    let running = Running::new(Settings::default());
    let first = sharing(address("127.0.0.1:0").into());
    let second = sharing(local(&first).into());
    let mut server = running.process();
    let [_stale, channel] = [&first, &second].map(|tcp| {
        let channel = server.listen(tcp, 8).expect("served");
        channel.expect("at user level")
    });
    drop(first);
    let mut program = running.process();
    for _ in 0..4 {
        let name = local(&second);
        user(program.open(any(), name, false).expect("an answer"));
        accept(&channel).expect("it alone has the port");
    }
}

#[test]
fn sockets_that_do_not_listen_prove_nothing() {
    let running = Running::new(Settings::default());
    let tcp = listener("127.0.0.1:0");
    let stream =
        std::net::TcpStream::connect(tcp.local_addr().expect("a name")).expect("it listens");
    let mut server = running.process();
    let error = server.listen(&stream, 8).expect_err("it does not listen");
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(server.listen(&tcp, 8).expect("served").is_some());
}

/// Connects without waiting until there is no room.
fn fill(program: &mut Client, tcp: &TcpListener) -> usize {
    let mut made = 0;
    loop {
        match program.open(any(), local(tcp), true).expect("an answer") {
            Connected::User(_) => made += 1,
            Connected::Kernel => return made,
            Connected::Refused(errno) => panic!("{errno}"),
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
        let channel = server
            .listen(&tcp, backlog)
            .expect("served")
            .expect("at user level");
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
fn whoever_waits_for_a_backlog_is_served_once_there_is_room() {
    let running = Running::new(Settings::default());
    let tcp = listener("127.0.0.1:0");
    let mut server = running.process();
    let channel = server
        .listen(&tcp, 4)
        .expect("served")
        .expect("at user level");
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
    let free_channel = server
        .listen(&free, 4)
        .expect("served")
        .expect("at user level");
    let passed = other
        .request(any(), local(&free), false)
        .expect("it is sent");
    let (serial, connected) = other.answer().expect("an answer");
    assert_eq!(serial, passed);
    let theirs = accept(&free_channel).expect("it is there").ends.link;
    assert_eq!(user(connected).link.local, theirs.peer);

    for _ in 0..made {
        accept(&channel).expect("it is there");
    }
    for serial in wanted {
        let (answered, connected) = other.answer().expect("an answer");
        assert_eq!(answered, serial);
        let ours = user(connected).link;
        assert_eq!(
            accept(&channel).expect("it is there").ends.link.peer,
            ours.local
        );
    }
}

#[test]
fn whoever_waits_for_a_listener_that_dies_is_left_to_the_kernel() {
    let running = Running::new(Settings::default());
    let tcp = listener("127.0.0.1:0");
    let mut server = running.process();
    let channel = server
        .listen(&tcp, 1)
        .expect("served")
        .expect("at user level");
    let mut program = running.process();
    fill(&mut program, &tcp);
    let wanted = program
        .request(any(), local(&tcp), false)
        .expect("it is sent");
    // It has been seen once what was asked afterwards is answered.
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
fn rules_refuse_or_leave_to_the_kernel() {
    let text = "[[rule]]\naction = \"deny\"\ndirection = \"connect\"\nports = 1\n\
                [[rule]]\naction = \"kernel\"\naddress = \"127.0.0.2\"\n\
                [[rule]]\naction = \"deny\"\ndirection = \"listen\"\naddress = \"127.0.0.3\"\n";
    let rules = Rules::parse(text, &|_| None).expect("they make sense");
    let running = Running::new(Settings {
        rules,
        ..Settings::default()
    });
    let mut program = running.process();
    let connected = program
        .open(any(), address("127.0.0.1:1"), false)
        .expect("an answer");
    assert!(
        matches!(connected, Connected::Refused(Errno::ACCESS)),
        "{connected:?}"
    );
    let tcp = listener("127.0.0.2:0");
    assert!(program.listen(&tcp, 8).expect("an answer").is_none());
    let connected = program.open(any(), local(&tcp), false).expect("an answer");
    assert!(matches!(connected, Connected::Kernel), "{connected:?}");
    let error = program
        .listen(listener("127.0.0.3:0"), 8)
        .expect_err("it is denied");
    assert_eq!(error.kind(), ErrorKind::Refused);
}

/// Runs something as a process that said HELLO as root, and has become another user since. Nothing without root.
fn as_worker(running: &Running, run: impl FnOnce(&mut Client) + Send) {
    if !rustix::process::geteuid().is_root() {
        eprintln!("left out: only root can become another user");
        return;
    }
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let mut worker = running.process();
            let nobody = rustix::process::Uid::from_raw(NOBODY);
            // This thread alone.
            rustix::thread::set_thread_uid(nobody).expect("root may");
            run(&mut worker);
        });
        worker.join().expect("it does not panic");
    });
}

#[test]
fn a_worker_that_gave_up_its_rights_has_them_no_more() {
    let text = format!(
        "[[rule]]\naction = \"deny\"\ndirection = \"connect\"\nports = 1\nuser = {NOBODY}\n"
    );
    let rules = Rules::parse(&text, &|_| None).expect("they make sense");
    let running = Running::new(Settings {
        rules,
        ..Settings::default()
    });
    let tcp = listener("127.0.0.1:0");
    let mut server = running.process();
    let _channel = server.listen(&tcp, 8).expect("served");
    let denied = address("127.0.0.1:1");
    as_worker(&running, |worker| {
        // No memory is shared with root's server.
        let connected = worker.open(any(), local(&tcp), false).expect("an answer");
        assert!(matches!(connected, Connected::Kernel), "{connected:?}");
        let connected = worker.open(any(), denied, false).expect("an answer");
        assert!(
            matches!(connected, Connected::Refused(Errno::ACCESS)),
            "{connected:?}"
        );
        let status = worker.report(Message::Status).expect("an answer");
        assert!(status.contains("\"listeners\":[]"), "{status}");

        let own = listener("127.0.0.1:0");
        let channel = worker.listen(&own, 8).expect("served");
        let channel = channel.expect("at user level");
        let low = address("127.0.0.1:80");
        let ours = user(worker.open(low, local(&own), false).expect("an answer"));
        assert_ne!(ours.link.local.port(), 80);
        assert_eq!(accept(&channel).expect("it is there").user, NOBODY);
    });
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
    let channel: OwnedFd = server
        .listen(&tcp, 1)
        .expect("served")
        .expect("at user level");
    let error = server
        .listen(listener("127.0.0.1:0"), 1)
        .expect_err("one is the limit");
    assert_eq!(error.kind(), ErrorKind::Refused);

    let mut program = running.process();
    let mut third = Client::connect(&running.path()).expect("it listens");
    assert!(third.hello(bed::slab()).is_err());

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

#[test]
fn the_backlogs_of_a_user_are_bounded() {
    let running = Running::new(Settings {
        limits: Limits {
            backlogs_per_user_max: 20,
            ..Limits::DEFAULT
        },
        ..Settings::default()
    });
    let mut server = running.process();
    let mut listen = |backlog| {
        let tcp = listener("127.0.0.1:0");
        let channel = server.listen(&tcp, backlog).expect("served");
        (tcp, channel)
    };
    let mut program = running.process();
    let mut told = |asked: &[u32]| {
        let opened: Vec<_> = asked.iter().map(|backlog| listen(*backlog)).collect();
        let status = program.report(Message::Status).expect("an answer");
        let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
        let listeners = status["listeners"].as_array().cloned().expect("a list");
        let mut told: Vec<_> = listeners.iter().map(|it| it["backlog"].as_u64()).collect();
        told.truncate(opened.len());
        told
    };
    let asked = [16, 100, 100, 1];
    assert_eq!(told(&asked), [16, 4, 4, 1].map(Some));
}

/// A socket of TCP whose last close waits for an hour: it has bytes that nobody reads.
fn lingering(tcp: &TcpListener) -> std::net::TcpStream {
    use std::io::Write;
    let name = tcp.local_addr().expect("a name");
    let mut stream = std::net::TcpStream::connect(name).expect("it listens");
    stream.set_nonblocking(true).expect("an option");
    while stream.write(&[0; 65_536]).is_ok() {}
    let hour = Some(std::time::Duration::from_secs(3600));
    sockopt::set_socket_linger(&stream, hour).expect("an option");
    stream
}

#[test]
fn sockets_that_linger_keep_nobody_waiting() {
    use millrace_stream::control::Packet;
    use millrace_stream::sockets::packets;
    let running = Running::new(Settings::default());
    let tcp = listener("127.0.0.1:0");
    let mut program = running.process();
    let serial = 1;
    for message in [Message::Kernel, Message::Hello] {
        let stranger = Client::connect(&running.path()).expect("it listens");
        // The first one ends the stranger's connection; the others are not even looked at.
        for message in [message, Message::Hello, Message::Listen { backlog: 1 }] {
            let stream = lingering(&tcp);
            let packet = Packet { serial, message };
            let sent = packets::send(stranger.socket(), &packet, &[stream.as_fd()]);
            assert!(matches!(sent, Ok(()) | Err(Errno::PIPE | Errno::CONNRESET)));
            if sent.is_err() {
                // The last close is not this one's to wait for.
                sockopt::set_socket_linger(&stream, None).expect("an option");
            }
        }
        drop(stranger);
        program.report(Message::Status).expect("an answer");
    }
}

#[test]
fn one_monitor_listens_at_a_path_and_the_next_takes_it_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("sockets");
    let none = Client::connect(&path).expect_err("nobody listens");
    assert_eq!(none.kind(), ErrorKind::NotRunning);
    let first = Monitor::bind(&path, Settings::default()).expect("nobody listens");
    let second = Monitor::bind(&path, Settings::default()).expect_err("one does");
    assert_eq!(second.kind(), ErrorKind::InUse);
    drop(first);
    // As one that was killed leaves it.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("the name is free"));
    let _third = Monitor::bind(&path, Settings::default()).expect("nobody listens any more");
}
