//! Streams: their ends, their sleep, and peers that break the protocol.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};

use millrace_random::Random;
use millrace_window::Window;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, SocketType, recv, send, shutdown};

use super::super::stream::{Interest, Stream};
use super::{SMALL, connection, half, link, memory, pair, pair_of};
use crate::control::Mode;
use crate::{Geometry, Side};

const DATA: Interest = Interest {
    readable: true,
    writable: false,
};
const ROOM: Interest = Interest {
    readable: false,
    writable: true,
};

/// A timeout in seconds, longer than any wait here.
const PATIENCE: i64 = 60;

/// Arms and polls, as a program does before it sleeps.
fn wait(stream: &mut Stream, interest: Interest, what: &str) {
    if stream.arm(interest) {
        return;
    }
    let patience = Timespec {
        tv_sec: PATIENCE,
        tv_nsec: 0,
    };
    let mut watched = [PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN)];
    let ready = poll(&mut watched, Some(&patience)).expect("the wakeup is ours");
    assert_eq!(ready, 1, "no notification: {what}");
    stream.drain_wakeups();
}

fn receive(stream: &mut Stream) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 10_000];
    let count = stream.receive(&mut bytes)?;
    bytes.truncate(count);
    Ok(bytes)
}

fn kind<T: std::fmt::Debug>(result: io::Result<T>) -> ErrorKind {
    result.expect_err("it cannot go well").kind()
}

/// Receives until there is a result: the hang-up is not polled every time.
fn receive_at_last(stream: &mut Stream) -> io::Result<Vec<u8>> {
    for _ in 0..1000 {
        match receive(stream) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            other => return other,
        }
    }
    panic!("neither bytes nor an end");
}

#[test]
fn bytes_come_before_the_end() {
    let (mut ours, mut theirs) = connection(Mode::Direct);
    assert_eq!(kind(receive(&mut ours)), ErrorKind::WouldBlock);
    theirs.send(b"some").expect("there is room");
    assert!(!ours.is_at_end());
    assert!(theirs.finish());
    assert!(theirs.finish(), "once is enough");
    assert_eq!(ours.pending(), 4);
    assert_eq!(receive(&mut ours).expect("bytes"), b"some");
    assert!(ours.is_at_end() && ours.is_ready(DATA));
    assert_eq!(receive(&mut ours).expect("the end"), b"");
    assert_eq!(receive(&mut ours).expect("it stays"), b"");
    // The other direction is open.
    ours.send(b"more").expect("there is room");
    assert_eq!(receive(&mut theirs).expect("bytes"), b"more");
    assert_eq!((ours.total_sent(), ours.total_received()), (4, 4));
}

#[test]
fn a_dropped_stream_is_at_its_end_when_its_bytes_were_received() {
    let (mut ours, mut theirs) = connection(Mode::Direct);
    theirs.send(b"last words").expect("there is room");
    drop(theirs);
    assert_eq!(receive(&mut ours).expect("bytes"), b"last words");
    assert_eq!(receive(&mut ours).expect("the end"), b"");
    assert_eq!(kind(ours.send(b"anybody?")), ErrorKind::BrokenPipe);
    assert!(ours.is_ready(ROOM) && ours.arm(DATA));
}

#[test]
fn a_forwarded_stream_without_an_end_is_reset() {
    let (mut ours, mut theirs) = connection(Mode::Forwarded);
    theirs.send(b"half a").expect("there is room");
    drop(theirs);
    assert_eq!(receive(&mut ours).expect("bytes"), b"half a");
    assert_eq!(kind(receive(&mut ours)), ErrorKind::ConnectionReset);
}

#[test]
fn unreceived_bytes_reset_the_connection() {
    let (mut ours, mut theirs) = connection(Mode::Direct);
    theirs.send(b"answer").expect("there is room");
    ours.send(b"in_flight").expect("there is room");
    drop(theirs);
    assert_eq!(kind(ours.send(b"more")), ErrorKind::ConnectionReset);
    assert!(ours.is_ready(ROOM));
    // Bytes sent before the reset are available.
    assert_eq!(receive(&mut ours).expect("bytes"), b"answer");
    for _ in 0..3 {
        assert_eq!(kind(receive(&mut ours)), ErrorKind::ConnectionReset);
    }
}

#[test]
fn a_peer_that_is_killed_leaves_an_end() {
    let (mut ours, wakeup, memory) = half(Mode::Direct);
    drop((wakeup, memory));
    assert_eq!(receive_at_last(&mut ours).expect("the end"), b"");
    assert_eq!(kind(ours.send(b"x")), ErrorKind::BrokenPipe);

    // A sleeper is woken by it, although unread wake-ups are left.
    let (mut ours, wakeup, _memory) = half(Mode::Direct);
    assert!(!ours.arm(DATA));
    send(ours.as_fd(), &[], SendFlags::NOSIGNAL).expect("there is room");
    drop(wakeup);
    wait(&mut ours, DATA, "killed");
    assert!(ours.is_gone());
    assert_eq!(receive(&mut ours).expect("the end"), b"");
}

#[test]
fn wakeups_are_drained_and_each_sleep_is_notified_once() {
    let (mut ours, mut theirs) = connection(Mode::Direct);
    theirs.send(b"1").expect("there is room");
    assert_eq!(theirs.total_notifications(), 0, "nobody sleeps");
    assert!(ours.arm(DATA), "it is there already");
    receive(&mut ours).expect("bytes");
    assert!(!ours.arm(DATA));
    assert_eq!(ours.armed(), DATA);
    for _ in 0..10 {
        theirs.send(b"2").expect("there is room");
    }
    let count = theirs.total_notifications();
    assert!(
        (1..=2).contains(&count),
        "{count} notifications for two sleeps"
    );
    wait(&mut ours, DATA, "ten bytes");
    ours.drain_wakeups();
    assert_eq!(ours.armed(), Interest::default());
    assert_eq!(receive(&mut ours).expect("bytes").len(), 10);
}

#[test]
fn a_byte_on_the_wakeup_fd_resets_the_connection() {
    let (mut ours, wakeup, memory) = half(Mode::Direct);
    let side = Side::Accepting;
    let copy = wakeup.try_clone().expect("a descriptor");
    let mut theirs =
        Stream::new(link(Mode::Direct, SMALL), side, vec![copy, memory]).expect("sound");
    theirs.send(b"lost").expect("there is room");
    send(&wakeup, b"HTTP/1.1", SendFlags::NOSIGNAL).expect("there is room");
    wait(&mut ours, DATA, "written to");
    ours.drain_wakeups();
    assert!(ours.is_gone());
    assert_eq!(kind(receive(&mut ours)), ErrorKind::ConnectionReset);
    assert_eq!(kind(ours.send(b"x")), ErrorKind::ConnectionReset);
    assert_eq!(kind(receive(&mut theirs)), ErrorKind::ConnectionReset);
    // It stays a reset when this side closes.
    drop(ours);
    assert_eq!(kind(receive(&mut theirs)), ErrorKind::ConnectionReset);
}

#[test]
fn spurious_wakeups_are_harmless() {
    let (mut ours, wakeup, _memory) = half(Mode::Direct);
    let flood = || {
        let mut count = 0;
        while send(&wakeup, &[], SendFlags::DONTWAIT | SendFlags::NOSIGNAL).is_ok() {
            count += 1;
        }
        count
    };
    assert!(flood() > 64);
    for _ in 0..100 {
        ours.drain_wakeups();
        assert!(!ours.is_gone());
        assert_eq!(kind(receive(&mut ours)), ErrorKind::WouldBlock);
    }
    // A wake-up fd that is shut down would be readable for ever.
    shutdown(&wakeup, Shutdown::Write).expect("it is connected");
    wait(&mut ours, DATA, "shut down");
    ours.drain_wakeups();
    assert!(ours.is_gone());
}

/// Moves bytes in both directions; each byte is a function of its offset.
fn exchange(stream: &mut Stream, seed: u64, total: u64) {
    let mut random = Random::new(seed);
    let byte = |place: u64| u8::try_from(place % 251).expect("it is below 251");
    let mut buffer = vec![0; 5000];
    let mut is_ended = false;
    while !is_ended || stream.total_sent() < total {
        let mut interest = Interest {
            readable: !is_ended,
            writable: false,
        };
        if stream.total_sent() < total {
            let left = usize::try_from(total - stream.total_sent()).expect("it is short");
            let length = (1 + random.index(4000)).min(left);
            let bytes: Vec<_> = (stream.total_sent()..).map(byte).take(length).collect();
            match stream.send(&bytes) {
                Ok(_) if stream.total_sent() == total => {
                    while !stream.finish() {
                        wait(stream, ROOM, &format!("room for the end, seed {seed}"));
                    }
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => interest.writable = true,
                Err(error) => panic!("{error}, seed {seed}"),
            }
        }
        if !is_ended && random.chance(2, 3) {
            let place = stream.total_received();
            let length = 1 + random.index(buffer.len());
            match stream.receive(&mut buffer[..length]) {
                Ok(0) => is_ended = true,
                Ok(count) => {
                    for (place, found) in (place..).zip(&buffer[..count]) {
                        assert_eq!(*found, byte(place), "byte {place}, seed {seed}");
                    }
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => panic!("{error}, seed {seed}"),
            }
        }
        let must_wait = interest.writable || stream.total_sent() == total && !is_ended;
        if must_wait && random.chance(1, 2) {
            let what = format!("{interest:?}, seed {seed}");
            wait(stream, interest, &what);
        }
    }
    assert_eq!(stream.total_received(), total, "seed {seed}");
}

#[test]
fn a_sleeper_is_notified() {
    let total = 300_000;
    for seed in 0..20 {
        let (mut ours, mut theirs) = connection(Mode::Direct);
        std::thread::scope(|scope| {
            let other = scope.spawn(move || {
                exchange(&mut theirs, 2 * seed + 1, total);
                theirs
            });
            exchange(&mut ours, 2 * seed, total);
            // Both are dropped when both have all bytes.
            drop(other.join().expect("the other side"));
        });
    }
}

#[test]
fn garbage_in_the_memory_ends_the_connection_at_most() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let (mut ours, wakeup, memory) = half(Mode::Direct);
        let window = Window::attach(&memory).expect("it is sealed");
        let area = SMALL.size() / 2;
        let mut peers = window.outgoing(area..2 * area).expect("it is free");
        for _ in 0..50 {
            let words = [0, 128, 256, 384, 4096];
            let offset = match random.index(2) {
                0 => words[random.index(words.len())],
                _ => 64 * random.index(area / 64),
            };
            let word = match random.index(3) {
                0 => random.below(200),
                1 => random.number() & 0x0003_ffff_ffff_ffff,
                _ => random.number(),
            };
            peers.slot(offset, 64).expect("within").publish(word);
            // Any result is fine: the call returns.
            drop(receive(&mut ours));
            let _ = ours.send(&[7; 500]);
            let (_, _) = (ours.is_ready(DATA), ours.is_ready(ROOM));
            let (_, _) = (ours.is_at_end(), ours.pending());
            let (_, _) = (ours.arm(DATA), ours.arm(ROOM));
            while recv(&wakeup, &mut [0_u8; 1], RecvFlags::DONTWAIT).is_ok() {}
        }
        drop(ours);
        let end = recv(&wakeup, &mut [0_u8; 1], RecvFlags::DONTWAIT);
        assert!(
            end != Err(Errno::WOULDBLOCK),
            "seed {seed}: it is not let go of"
        );
    }
}

#[test]
fn wrong_descriptors_make_no_stream() {
    let refused = |geometry: Geometry, descriptors: Vec<OwnedFd>, what: &str| {
        let made = Stream::new(link(Mode::Direct, geometry), Side::Accepting, descriptors);
        assert!(made.is_err(), "{what}");
    };
    refused(SMALL, vec![], "none");
    refused(SMALL, vec![pair().0], "one");
    refused(SMALL, vec![memory(SMALL), pair().0], "the wrong way round");
    let bytes = pair_of(SocketType::STREAM).0;
    refused(SMALL, vec![bytes, memory(SMALL)], "a stream as the wakeup");
    let null = OwnedFd::from(std::fs::File::open("/dev/null").expect("it is there"));
    refused(SMALL, vec![null, memory(SMALL)], "a device as the wakeup");
    let file = std::fs::File::open("/proc/self/exe").expect("it is there");
    refused(SMALL, vec![pair().0, file.into()], "a file as the memory");
    let open = memfd_create("open", MemfdFlags::CLOEXEC).expect("memory");
    ftruncate(&open, SMALL.size() as u64).expect("it is ours");
    refused(SMALL, vec![pair().0, open], "memory that may shrink");
    for ring_lines in [0, 1, 63, 65, 128, 1 << 17, u32::MAX] {
        let geometry = Geometry { ring_lines };
        refused(geometry, vec![pair().0, memory(SMALL)], "other rings");
    }
}
