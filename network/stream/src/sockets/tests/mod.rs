//! Sockets over real descriptor pairs and memory: both ends in one process, and brokers that misbehave.

mod brokers;
mod in_place;
mod streams;

use std::os::fd::OwnedFd;

use millrace_memory::{Pages, RegionOptions};
use millrace_window::Window;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::stream::Stream;
use crate::control::{Link, Mode};
use crate::{Address, Geometry, Side};

/// The smallest rings: they fill up at once.
const SMALL: Geometry = Geometry { ring_lines: 64 };

fn pair_of(kind: SocketType) -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).expect("a pair")
}

fn pair() -> (OwnedFd, OwnedFd) {
    pair_of(SocketType::SEQPACKET)
}

fn memory(geometry: Geometry) -> OwnedFd {
    let options = RegionOptions {
        pages: Pages::Base,
        node: None,
        locked: false,
    };
    let (_, file) = Window::create(geometry.size(), &options).expect("memory");
    file
}

fn link(mode: Mode, geometry: Geometry) -> Link {
    Link {
        mode,
        ring_lines: geometry.ring_lines,
        local: Address::new([127, 0, 0, 1].into(), 1),
        peer: Address::new([127, 0, 0, 1].into(), 2),
    }
}

/// One end as a stream, the other as raw descriptors.
fn half(mode: Mode) -> (Stream, OwnedFd, OwnedFd) {
    let (ours, theirs) = pair();
    let memory = memory(SMALL);
    let copy = memory.try_clone().expect("a descriptor");
    let stream = Stream::new(link(mode, SMALL), Side::Connecting, vec![ours, copy]);
    (stream.expect("sound descriptors"), theirs, memory)
}

/// Both ends of a connection.
fn connection(mode: Mode) -> (Stream, Stream) {
    let (ours, wakeup, memory) = half(mode);
    let theirs = Stream::new(link(mode, SMALL), Side::Accepting, vec![wakeup, memory]);
    (ours, theirs.expect("sound descriptors"))
}
