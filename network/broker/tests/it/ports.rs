//! The owner of a port: the socket to which the kernel gave it.

use std::net::{SocketAddr, TcpListener};

use crate::fixture::{Running, address, connect, listen, listener, local, user};
use millrace_broker::ErrorKind;
use millrace_broker::client::{Connected, accept};
use millrace_broker::registry::Settings;
use rustix::net::{AddressFamily, SocketType, sockopt};

/// A listening socket with SO_REUSEPORT.
fn sharing(at: SocketAddr) -> TcpListener {
    let socket =
        rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    sockopt::set_socket_reuseport(&socket, true).expect("an option");
    rustix::net::bind(&socket, &at).expect("the port is shared");
    rustix::net::listen(&socket, 8).expect("it is bound");
    socket.into()
}

#[test]
fn wildcards_serve_both_families_as_the_kernel_does() {
    let running = Running::new(Settings::default());
    let tcp = listener("[::]:0");
    let port = local(&tcp).port();
    let mut server = running.process();
    let channel = listen(&mut server, &tcp, 8);
    let mut program = running.process();
    let mut open = |peer: &str| {
        let peer = address(&format!("{peer}:{port}"));
        let ours = user(connect(&mut program, peer)).link;
        let theirs = accept(&channel).expect("it is there").fds.link;
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
fn sockets_that_share_a_port_take_turns() {
    let running = Running::new(Settings::default());
    let first = sharing(address("127.0.0.1:0").into());
    let second = sharing(local(&first).into());
    let mut server = running.process();
    let channels = [&first, &second].map(|tcp| listen(&mut server, tcp, 8));
    let mut program = running.process();
    for round in 0..6 {
        let ours = user(connect(&mut program, local(&first)));
        let theirs = accept(&channels[round % 2]).expect("it is its turn");
        assert_eq!(theirs.fds.link.peer, ours.link.local);
    }
}

#[test]
fn a_port_belongs_to_the_kernels_latest_owner() {
    let running = Running::new(Settings::default());
    let tcp = listener("127.0.0.1:0");
    let name = local(&tcp);
    let mut server = running.process();
    let _stale = listen(&mut server, &tcp, 8);
    drop(tcp);
    let tcp = sharing(name.into());
    let channel = listen(&mut server, &tcp, 8);
    let mut program = running.process();
    for _ in 0..2 {
        user(connect(&mut program, name));
        accept(&channel).expect("it has the port");
    }
}

#[test]
fn closing_the_socket_frees_the_port_although_the_channel_is_kept() {
    let running = Running::new(Settings::default());
    let mut thief = running.process();
    let mut server = running.process();
    let mut program = running.process();
    for wildcard in ["0.0.0.0", "[::]"] {
        let tcp = listener("127.0.0.1:0");
        let name = local(&tcp);
        let stale = thief.listen(&tcp, 8).expect("served");
        drop(tcp);
        // No socket listens: the kernel refuses.
        let connected = connect(&mut program, name);
        assert!(matches!(connected, Connected::Kernel), "{connected:?}");
        let _stale = stale;

        let tcp = listener("127.0.0.1:0");
        let name = local(&tcp);
        let _stale = thief.listen(&tcp, 8).expect("served");
        drop(tcp);
        let tcp = listener(&format!("{wildcard}:{}", name.port()));
        let channel = listen(&mut server, &tcp, 8);
        user(connect(&mut program, name));
        accept(&channel).expect("it has the port");
    }
}

#[test]
fn sockets_that_share_a_port_lose_it_one_by_one() {
    let running = Running::new(Settings::default());
    let first = sharing(address("127.0.0.1:0").into());
    let second = sharing(local(&first).into());
    let mut server = running.process();
    let [_stale, channel] = [&first, &second].map(|tcp| listen(&mut server, tcp, 8));
    drop(first);
    let mut program = running.process();
    for _ in 0..4 {
        let name = local(&second);
        user(connect(&mut program, name));
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
