//! Processes that make their connections themselves, under a lease.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};

use crate::fixture::{Running, address, any, connect, listen, listener, local, slab, user};
use millrace_broker::client::{Client, Connected, accept};
use millrace_broker::registry::Settings;
use millrace_stream::control::{Lease, Link, Message, Mode, Packet};
use millrace_stream::sockets::packets::send;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, sockopt};

const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// A listening socket with SO_REUSEPORT.
fn sharing(at: SocketAddr) -> TcpListener {
    let socket =
        rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    sockopt::set_socket_reuseport(&socket, true).expect("an option");
    rustix::net::bind(&socket, &at).expect("the port is shared");
    rustix::net::listen(&socket, 8).expect("it is bound");
    socket.into()
}

/// Waits for the hang-up of a descriptor.
fn wait_for_end(channel: impl AsFd) {
    let mut polled = [PollFd::new(&channel, PollFlags::empty())];
    poll(&mut polled, None).expect("a poll");
    assert!(polled[0].revents().contains(PollFlags::HUP));
}

fn borrow(program: &mut Client, tcp: &TcpListener) -> (Lease, OwnedFd) {
    match program.lease(any(), local(tcp)).expect("an answer") {
        Connected::Lease(lease, channel) => (lease, channel),
        other => panic!("no lease: {other:?}"),
    }
}

#[test]
fn a_lease_holder_sends_its_connections_into_the_channel() {
    let running = Running::new(Settings::default());
    let tcp = listener("127.0.0.1:0");
    let mut server = running.process();
    let channel = listen(&mut server, &tcp, 2);
    let mut program = running.process();
    let (lease, lent) = borrow(&mut program, &tcp);
    assert_eq!(lease.peer, local(&tcp));
    assert_eq!(lease.local.ip().to_string(), "127.0.0.1");
    assert!(lease.ports > 1 && lease.lasts_us > 0 && !lease.mapped);
    let (next, _) = borrow(&mut program, &tcp);
    let first = lease.local.port();
    let own = first..=first + (lease.ports - 1);
    assert!(!own.contains(&next.local.port()), "ports are lent once");

    let message = Message::Incoming {
        link: Link {
            mode: Mode::Direct,
            ring_lines: lease.ring_lines,
            local: lease.peer,
            peer: lease.local,
        },
        user: 0,
        process: 0,
    };
    let packet = Packet { serial: 0, message };
    let file = slab();
    let put = || send(&lent, &packet, &[lent.as_fd(), file.as_fd()]);
    put().expect("there is room");
    let incoming = accept(&channel).expect("it is there");
    assert_eq!(incoming.fds.link.peer, lease.local);
    // The backlog and one more, including the broker's.
    put().expect("there is room");
    for _ in 0..2 {
        user(connect(&mut program, local(&tcp)));
    }
    let mut polled = [PollFd::new(&lent, PollFlags::OUT)];
    poll(&mut polled, Some(&NOW)).expect("a poll");
    assert!(!polled[0].revents().contains(PollFlags::OUT));
    assert!(matches!(
        program.open(any(), local(&tcp), true).expect("an answer"),
        Connected::Refused(Errno::AGAIN)
    ));
}

#[test]
fn a_waiting_request_is_served_although_leases_filled_the_channel() {
    let running = Running::new(Settings::default());
    let tcp = listener("127.0.0.1:0");
    let mut server = running.process();
    let channel = listen(&mut server, &tcp, 2);
    let mut program = running.process();
    let (lease, lent) = borrow(&mut program, &tcp);
    let message = Message::Incoming {
        link: Link {
            mode: Mode::Direct,
            ring_lines: lease.ring_lines,
            local: lease.peer,
            peer: lease.local,
        },
        user: 0,
        process: 0,
    };
    let packet = Packet { serial: 0, message };
    let file = slab();
    for _ in 0..3 {
        send(&lent, &packet, &[lent.as_fd(), file.as_fd()]).expect("there is room");
    }
    // A request that does not wait shows it to the broker.
    let answer = program.open(any(), local(&tcp), true).expect("an answer");
    assert!(matches!(answer, Connected::Refused(Errno::AGAIN)));
    let wanted = program
        .request(any(), local(&tcp), false)
        .expect("it is sent");
    for _ in 0..3 {
        accept(&channel).expect("it is there");
    }
    let (serial, connected) = program.answer().expect("an answer");
    assert_eq!(serial, wanted);
    assert_eq!(
        accept(&channel).expect("it is there").fds.link.peer,
        user(connected).link.local
    );
}

#[test]
fn a_lease_ends_with_the_listener_and_the_channel_with_the_broker() {
    let running = Running::new(Settings::default());
    let mut server = running.process();
    let mut program = running.process();
    let tcp = listener("127.0.0.1:0");
    let channel = listen(&mut server, &tcp, 8);
    let (_, lent) = borrow(&mut program, &tcp);
    drop(channel);
    wait_for_end(&lent);

    let tcp = listener("127.0.0.1:0");
    let channel = listen(&mut server, &tcp, 8);
    let (_, lent) = borrow(&mut program, &tcp);
    drop(running);
    // The end comes although the channel is lent.
    wait_for_end(&channel);
    assert!(
        send(
            &lent,
            &Packet {
                serial: 0,
                message: Message::Kernel
            },
            &[]
        )
        .is_err()
    );
}

#[test]
fn nothing_is_lent_of_what_takes_turns_or_has_a_name() {
    let running = Running::new(Settings::default());
    let mut server = running.process();
    let mut program = running.process();
    let tcp = sharing(SocketAddr::from(([127, 0, 0, 1], 0)));
    let _first = server.listen(&tcp, 8).expect("served");
    borrow(&mut program, &tcp);
    let named = address("127.0.0.1:45678");
    user(program.lease(named, local(&tcp)).expect("an answer"));
    let other = sharing(tcp.local_addr().expect("it has one"));
    let _second = server.listen(&other, 8).expect("served");
    user(program.lease(any(), local(&tcp)).expect("an answer"));
}
