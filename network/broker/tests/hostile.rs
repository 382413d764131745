//! Processes that break the protocol lose their own connection, and nothing else. A program of its own, since it counts the
//! descriptors of the process.

#[path = "it/fixture.rs"]
mod fixture;

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use fixture::{Running, any, connect, listen, listener, local, user};
use millrace_broker::client::{Client, accept};
use millrace_broker::registry::Settings;
use millrace_random::Random;
use millrace_stream::control::{Message, PACKET, Packet};
use millrace_stream::sockets::packets;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, sendmsg, socket_with,
};

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd")
        .expect("it is there")
        .count()
}

fn hostile_process(path: &Path) -> OwnedFd {
    let kind = SocketType::SEQPACKET;
    let socket =
        socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).expect("a socket");
    rustix::net::connect(&socket, &SocketAddrUnix::new(path).expect("a short path"))
        .expect("it listens");
    socket
}

/// Sends any bytes with any descriptors; a disconnect is ignored.
fn throw(socket: &OwnedFd, bytes: &[u8], along: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(along.is_empty() || control.push(SendAncillaryMessage::ScmRights(along)));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    match sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags) {
        Ok(_) | Err(Errno::AGAIN | Errno::PIPE | Errno::CONNRESET | Errno::TOOMANYREFS) => {}
        Err(errno) => panic!("{errno}"),
    }
}

fn any_message(random: &mut Random, tcp: &TcpListener) -> Message {
    let number = u32::try_from(random.below(1 << 32)).expect("32 bits");
    match random.below(8) {
        0 => Message::Hello,
        1 => Message::Listen { backlog: number },
        2 | 3 => Message::Connect {
            no_wait: random.chance(1, 2),
            wants_lease: random.chance(1, 2),
            local: any(),
            peer: local(tcp),
        },
        4 => Message::Status,
        5 => Message::Top,
        6 => Message::Kernel,
        _ => Message::Report {
            length: number.into(),
        },
    }
}

/// One packet of a hostile process: any bytes, a message with some of them changed, or a valid message in or out of
/// order; with its descriptors, or with others.
fn any_packet(random: &mut Random, socket: &OwnedFd, tcp: &TcpListener, files: &[OwnedFd]) {
    let mut bytes = [0; PACKET + 8];
    let mut length = PACKET;
    let message = any_message(random, tcp);
    let mut along = message.descriptors();
    match random.below(4) {
        0 => {
            random.fill(&mut bytes);
            length = 1 + random.index(PACKET + 7);
        }
        kind => {
            let packet = Packet { serial: 7, message };
            bytes[..PACKET].copy_from_slice(&packet.encode());
            if kind == 1 {
                let at = random.index(PACKET);
                bytes[at] ^= 1 << random.below(8);
            }
        }
    }
    if random.chance(1, 4) {
        along = random.index(7);
    }
    let files: Vec<BorrowedFd<'_>> = (0..along)
        .map(|_| match random.index(files.len() + 1) {
            0 => tcp.as_fd(),
            index => files[index - 1].as_fd(),
        })
        .collect();
    throw(socket, &bytes[..length], &files);
}

/// Sends requests and never reads a reply, until the broker disconnects it.
fn never_reads(path: &Path) {
    let socket = hostile_process(path);
    let (serial, message) = (1, Message::Status);
    loop {
        match packets::send(&socket, &Packet { serial, message }, &[]) {
            Ok(()) => {}
            Err(Errno::AGAIN) => {
                let mut polled = [PollFd::new(&socket, PollFlags::OUT)];
                poll(&mut polled, None).expect("a poll");
            }
            Err(Errno::PIPE | Errno::CONNRESET) => return,
            Err(errno) => panic!("{errno}"),
        }
    }
}

/// A program and a server are served as if they were alone.
fn serve(program: &mut Client, channel: &OwnedFd, tcp: &TcpListener) {
    let connected = connect(program, local(tcp));
    let ours = user(connected).link.local;
    // Hostile processes of the same user may have connected, too.
    while accept(channel).expect("it is there").fds.link.peer != ours {}
}

fn run(seed: u64) {
    let running = Running::new(Settings::default());
    let path = running.path();
    let mut random = Random::new(seed);
    let tcp = listener("127.0.0.1:0");
    let mut server = running.process();
    let channel = listen(&mut server, &tcp, 128);
    let mut program = running.process();
    // The target of hostile processes: their connections fill its own backlog.
    let target = listener("127.0.0.1:0");
    let _full = listen(&mut server, &target, 2);
    let (pipe, _other) = rustix::pipe::pipe().expect("a pipe");
    let stream =
        std::net::TcpStream::connect(tcp.local_addr().expect("a name")).expect("it listens");
    let files = [fixture::slab(), pipe, OwnedFd::from(stream)];
    let mut processes: Vec<OwnedFd> = Vec::new();
    for step in 0..3000 {
        if processes.is_empty() || random.chance(1, 8) {
            processes.push(hostile_process(&path));
        }
        let index = random.index(processes.len());
        match random.below(16) {
            0 => drop(processes.swap_remove(index)),
            1 => {
                let slab = files[0].as_fd();
                let (serial, message) = (1, Message::Hello);
                throw(
                    &processes[index],
                    &Packet { serial, message }.encode(),
                    &[slab],
                );
            }
            _ => any_packet(&mut random, &processes[index], &target, &files),
        }
        if step % 100 == 0 {
            serve(&mut program, &channel, &tcp);
        }
    }
    never_reads(&path);
    serve(&mut program, &channel, &tcp);
}

#[test]
fn hostile_processes_lose_their_own_connection_and_leave_nothing_behind() {
    // Descriptors that the process opens once.
    run(0);
    let before = descriptors();
    for seed in 1..8 {
        eprintln!("seed {seed}");
        run(seed);
        assert_eq!(descriptors(), before, "seed {seed}");
    }
}
