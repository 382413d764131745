//! Brokers that misbehave, and the program's errors.

use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use millrace_random::Random;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept, bind,
    listen, send, socket_with,
};

use super::super::packets::{self, ControlPacket};
use super::super::{Announced, Announcement, Channel, Listener, SharedCounters};
use super::{SMALL, connection, link, memory, pair};
use crate::Geometry;
use crate::control::{Message, Mode, PACKET, Packet};
use crate::slab::Totals;

const WELCOME: Message = Message::Welcome {
    ring_lines: 64,
    spin_us_max: 0,
};

/// A scripted broker's reaction to a request.
enum Answer {
    Say(Message, Vec<OwnedFd>),
    /// An answer with a wrong serial number.
    Misnumber(Message),
    Bytes(Vec<u8>),
    /// Closes the connection.
    Leave,
}

/// A broker that serves one program and gives these answers, one per request.
struct Script {
    path: PathBuf,
    thread: Option<JoinHandle<()>>,
}

impl Script {
    fn new(name: &str, answers: Vec<Answer>) -> Self {
        let path = std::env::temp_dir().join(format!("millrace-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).expect("a socket");
        bind(&socket, &SocketAddrUnix::new(&path).expect("a path")).expect("the path is ours");
        listen(&socket, 1).expect("it is bound");
        let thread = std::thread::spawn(move || {
            let program = accept(&socket).expect("somebody comes");
            for answer in answers {
                serve(program.as_fd(), answer);
            }
        });
        Self {
            path,
            thread: Some(thread),
        }
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let ended = self.thread.take().map(JoinHandle::join);
        let _ = std::fs::remove_file(&self.path);
        if !std::thread::panicking() {
            assert!(matches!(ended, Some(Ok(()))), "the broker's thread");
        }
    }
}

fn serve(program: BorrowedFd<'_>, answer: Answer) {
    let Ok(ControlPacket {
        packet: request, ..
    }) = packets::receive_valid(program, RecvFlags::empty())
    else {
        return; // the program has had enough
    };
    // The program may have disconnected.
    let _ = match answer {
        Answer::Say(message, along) => {
            let along: Vec<_> = along.iter().map(AsFd::as_fd).collect();
            packets::send(program, &Packet { message, ..request }, &along)
        }
        Answer::Misnumber(message) => {
            let serial = request.serial.wrapping_add(7);
            packets::send(program, &Packet { serial, message }, &[])
        }
        Answer::Bytes(bytes) => send(program, &bytes, SendFlags::NOSIGNAL).map(drop),
        Answer::Leave => Ok(()),
    };
}

fn reply(message: Message) -> Answer {
    Answer::Say(message, Vec::new())
}

fn tcp() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").expect("a port is free")
}

/// Waits for the next answer.
fn next(announcement: &mut Announcement) -> io::Result<Announced> {
    loop {
        match announcement.next_answer() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                poll(&mut [PollFd::new(&*announcement, PollFlags::IN)], None)?;
            }
            other => return other,
        }
    }
}

#[test]
fn a_channel_takes_what_the_broker_says() {
    let socket = tcp();
    let peer = socket.local_addr().expect("it listens");
    let refused = Message::Refused {
        errno: 13, // EACCES
    };
    let (ours, _theirs) = pair();
    let (wakeup, _other) = pair();
    let connected = Message::Connected(link(Mode::Direct, SMALL));
    let script = Script::new(
        "takes",
        vec![
            reply(WELCOME),
            reply(Message::Kernel),
            reply(refused),
            Answer::Say(Message::Listening, vec![ours]),
            reply(Message::Kernel),
            reply(refused),
            Answer::Say(connected, vec![wakeup, memory(SMALL)]),
        ],
    );
    let mut channel = Channel::open(&script.path).expect("it is welcome");
    assert!(channel.listen(&socket, 1).expect("an answer").is_none());
    let error = channel.listen(&socket, 1).expect_err("it is refused");
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert!(channel.listen(&socket, 1).expect("an answer").is_some());
    assert!(channel.connect(peer).expect("an answer").is_none());
    let error = channel.connect(peer).expect_err("it is refused");
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    let stream = channel.connect(peer).expect("an answer").expect("a stream");
    assert_eq!((stream.local().port(), stream.peer().port()), (1, 2));
    assert!(channel.connect(peer).is_err(), "the broker left");
}

#[test]
fn brokers_that_speak_garbage_are_none() {
    let incoming = Message::Incoming {
        link: link(Mode::Direct, SMALL),
        user: 0,
        process: 0,
    };
    let short = vec![1; PACKET - 1];
    let long = vec![1; PACKET + 1];
    let answers: Vec<(&str, Answer)> = vec![
        ("leaves", Answer::Leave),
        ("short", Answer::Bytes(short)),
        ("long", Answer::Bytes(long)),
        ("zeros", Answer::Bytes(vec![0; PACKET])),
        ("kernel", reply(Message::Kernel)),
        ("bare", reply(Message::Listening)),
        ("incoming", reply(incoming)),
        ("along", Answer::Say(WELCOME, vec![pair().0])),
        (
            "many",
            Answer::Say(Message::Listening, vec![pair().0, pair().1]),
        ),
        ("number", Answer::Misnumber(WELCOME)),
    ];
    for (name, answer) in answers {
        let script = Script::new(name, vec![answer]);
        assert!(Channel::open(&script.path).is_err(), "{name}");
    }
    // Random bytes of the right length.
    for seed in 0..30 {
        let mut random = Random::new(seed);
        let mut bytes = vec![0; PACKET];
        random.fill(&mut bytes);
        bytes[2..4].copy_from_slice(&[1, 0]);
        bytes[0..2].copy_from_slice(&[u8::try_from(random.below(13)).expect("small"), 0]);
        let script = Script::new("any", vec![Answer::Bytes(bytes)]);
        assert!(Channel::open(&script.path).is_err(), "seed {seed}");
    }
    assert!(Channel::open(Path::new("/nonexistent/sockets")).is_err());
}

#[test]
fn announcements_are_answered_one_by_one() {
    let sockets = [tcp(), tcp(), tcp()];
    let refused = Message::Refused { errno: 13 };
    let script = Script::new(
        "announced",
        vec![
            reply(WELCOME),
            Answer::Say(Message::Listening, vec![pair().0]),
            reply(refused),
            reply(Message::Kernel),
        ],
    );
    let counters = SharedCounters::new().expect("memory");
    let borrowed = sockets.iter().map(AsFd::as_fd);
    let mut announcement =
        Announcement::begin(&script.path, &counters, 8, borrowed).expect("there is room");
    let answer = next(&mut announcement).expect("the first");
    assert!(answer.index == 0 && matches!(answer.outcome, Ok(Some(_))));
    let answer = next(&mut announcement).expect("the second");
    assert!(answer.index == 1 && answer.outcome.is_err());
    assert!(!announcement.is_complete());
    let answer = next(&mut announcement).expect("the third");
    assert!(answer.index == 2 && matches!(answer.outcome, Ok(None)));
    assert!(announcement.is_complete());
    let error = next(&mut announcement).expect_err("the broker left");
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn announcements_to_brokers_that_speak_garbage_are_void() {
    let socket = tcp();
    let counters = SharedCounters::new().expect("memory");
    let second = || Answer::Say(Message::Listening, vec![pair().0]);
    let answers: Vec<(&str, Vec<Answer>)> = vec![
        ("void-leaves", vec![Answer::Leave]),
        ("void-refuses", vec![reply(Message::Refused { errno: 1 })]),
        ("void-order", vec![reply(Message::Kernel), second()]),
        ("void-bytes", vec![Answer::Bytes(vec![3; 10])]),
        ("void-number", vec![Answer::Misnumber(WELCOME), second()]),
        ("void-welcome", vec![reply(WELCOME), reply(WELCOME)]),
        ("void-bare", vec![reply(WELCOME), reply(Message::Listening)]),
    ];
    for (name, answers) in answers {
        let script = Script::new(name, answers);
        let sockets = [socket.as_fd()];
        let announced = Announcement::begin(&script.path, &counters, 8, sockets);
        let answer = announced.and_then(|mut announcement| next(&mut announcement));
        assert!(answer.is_err(), "{name}");
    }
}

#[test]
fn what_arrives_at_a_listener_is_checked() {
    let (broker, channel) = pair();
    let listener = Listener { channel };
    let kind = || listener.accept().map(drop).map_err(|error| error.kind());
    assert_eq!(kind(), Err(ErrorKind::WouldBlock));
    let incoming = |geometry| Packet {
        serial: 0,
        message: Message::Incoming {
            link: link(Mode::Direct, geometry),
            user: 0,
            process: 0,
        },
    };
    let send_connection = |geometry, along: &[OwnedFd]| {
        let along: Vec<_> = along.iter().map(AsFd::as_fd).collect();
        packets::send(broker.as_fd(), &incoming(geometry), &along).expect("there is room");
    };
    send_connection(SMALL, &[pair().0, memory(SMALL)]);
    assert_eq!(kind(), Ok(()));
    send_connection(SMALL, &[]);
    assert_eq!(kind(), Err(ErrorKind::InvalidData));
    send_connection(SMALL, &[memory(SMALL), pair().0]);
    assert!(listener.accept().is_err(), "no wakeup");
    send_connection(Geometry::DEFAULT, &[pair().0, memory(SMALL)]);
    assert!(listener.accept().is_err(), "rings larger than the memory");
    send(&broker, b"accept this", SendFlags::NOSIGNAL).expect("there is room");
    assert_eq!(kind(), Err(ErrorKind::InvalidData));
    drop(broker);
    assert_eq!(kind(), Err(ErrorKind::UnexpectedEof));
}

#[test]
fn what_was_counted_is_read_by_the_broker() {
    let counters = SharedCounters::new().expect("memory");
    let totals = Totals {
        sent: 5,
        accepts: 3,
        ..Totals::default()
    };
    counters.report(&totals).expect("it is ours");
    let mut header = vec![0; crate::slab::HEADER_SIZE];
    rustix::io::pread(counters.as_fd(), &mut header, 0).expect("a file");
    assert_eq!(Totals::read(&header), Some(totals));
    // Streams of one process need no broker.
    drop(connection(Mode::Direct));
}
