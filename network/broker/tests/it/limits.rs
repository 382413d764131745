//! Permissions and limits of processes.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use crate::fixture::{Running, address, connect, listen, listener, local, user};
use millrace_broker::ErrorKind;
use millrace_broker::client::{Client, Connected, accept};
use millrace_broker::registry::{Limits, Settings};
use millrace_broker::rules::Rules;
use millrace_stream::control::{Message, Packet};
use millrace_stream::sockets::packets;
use rustix::io::Errno;
use rustix::net::sockopt;

/// A user without any rights.
const NOBODY: u32 = 65_534;

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
    let connected = connect(&mut program, address("127.0.0.1:1"));
    assert!(
        matches!(connected, Connected::Refused(Errno::ACCESS)),
        "{connected:?}"
    );
    let tcp = listener("127.0.0.2:0");
    assert!(program.listen(&tcp, 8).expect("an answer").is_none());
    let connected = connect(&mut program, local(&tcp));
    assert!(matches!(connected, Connected::Kernel), "{connected:?}");
    let error = program
        .listen(listener("127.0.0.3:0"), 8)
        .expect_err("it is denied");
    assert_eq!(error.kind(), ErrorKind::Refused);
}

/// Runs a closure as a process that sent HELLO as root and has become another user since. Skipped without root.
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
        let connected = connect(worker, local(&tcp));
        assert!(matches!(connected, Connected::Kernel), "{connected:?}");
        let connected = connect(worker, denied);
        assert!(
            matches!(connected, Connected::Refused(Errno::ACCESS)),
            "{connected:?}"
        );
        let status = worker.report(Message::Status).expect("an answer");
        assert!(status.contains("\"listeners\":[]"), "{status}");

        let own = listener("127.0.0.1:0");
        let channel = listen(worker, &own, 8);
        let low = address("127.0.0.1:80");
        let ours = user(worker.open(low, local(&own), false).expect("an answer"));
        assert_ne!(ours.link.local.port(), 80);
        assert_eq!(accept(&channel).expect("it is there").user, NOBODY);
    });
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
    let mut granted = |asked: &[u32]| {
        let opened: Vec<_> = asked.iter().map(|backlog| listen(*backlog)).collect();
        let status = program.report(Message::Status).expect("an answer");
        let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
        let listeners = status["listeners"].as_array().cloned().expect("a list");
        let mut granted: Vec<_> = listeners.iter().map(|it| it["backlog"].as_u64()).collect();
        granted.truncate(opened.len());
        granted
    };
    let asked = [16, 100, 100, 1];
    assert_eq!(granted(&asked), [16, 4, 4, 1].map(Some));
}

/// A TCP socket whose last close blocks for an hour: it has unread bytes in its peer.
fn lingering(tcp: &TcpListener) -> TcpStream {
    let name = tcp.local_addr().expect("a name");
    let mut stream = TcpStream::connect(name).expect("it listens");
    stream.set_nonblocking(true).expect("an option");
    while stream.write(&[0; 65_536]).is_ok() {}
    let hour = Some(Duration::from_secs(3600));
    sockopt::set_socket_linger(&stream, hour).expect("an option");
    stream
}

#[test]
fn lingering_sockets_do_not_block_the_broker() {
    let running = Running::new(Settings::default());
    let tcp = listener("127.0.0.1:0");
    let mut program = running.process();
    let serial = 1;
    for message in [Message::Kernel, Message::Hello] {
        let unauthenticated = Client::connect(&running.path()).expect("it listens");
        // The first one disconnects the process; the others are not read.
        for message in [message, Message::Hello, Message::Listen { backlog: 1 }] {
            let stream = lingering(&tcp);
            let packet = Packet { serial, message };
            let sent = packets::send(unauthenticated.socket(), &packet, &[stream.as_fd()]);
            assert!(matches!(sent, Ok(()) | Err(Errno::PIPE | Errno::CONNRESET)));
            if sent.is_err() {
                // The last close must not block this thread.
                sockopt::set_socket_linger(&stream, None).expect("an option");
            }
        }
        drop(unauthenticated);
        program.report(Message::Status).expect("an answer");
    }
}
