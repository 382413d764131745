//! A program's end of a connection.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};

use millrace_broker::forwarder::Endpoint;
use millrace_memory::{Pages, RegionOptions};
use millrace_random::Random;
use millrace_stream::{Closing, End, Geometry, ReceiveCursor, RingPair, SendCursor, Service, Side};
use millrace_window::Window;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

const GEOMETRY: Geometry = Geometry { ring_lines: 256 };
/// The offset of an area's ring.
const RING: usize = 1024;

/// A program with all that it has sent and received.
pub(crate) struct Application {
    rings: RingPair,
    sent: SendCursor,
    received: ReceiveCursor,
    /// `None` after a kill.
    wakeup: Option<OwnedFd>,
    memory: OwnedFd,
    geometry: Geometry,
    side: Side,
    pub(crate) source: Vec<u8>,
    pub(crate) got: Vec<u8>,
    /// The indexes of urgent bytes: sent, and received.
    pub(crate) urgent: BTreeSet<usize>,
    pub(crate) urgent_got: BTreeSet<usize>,
    pub(crate) end: Option<Outcome>,
    /// Whether the end was sent.
    pub(crate) has_finished: bool,
    /// Whether a send was refused with EPIPE.
    is_refused: bool,
    scratch: Vec<u8>,
}

/// The end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Finished,
    Reset(u16),
    /// A hang-up without an end.
    HungUp,
}

/// A program's end, and the forwarder's end of the same connection.
pub(crate) fn pair(side: Side, source: Vec<u8>) -> (Application, Endpoint) {
    pair_of(GEOMETRY, side, source)
}

/// A pair with rings of another size.
pub(crate) fn pair_of(geometry: Geometry, side: Side, source: Vec<u8>) -> (Application, Endpoint) {
    let flags = SocketFlags::CLOEXEC;
    let wakeups = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let (wakeup, theirs) = wakeups.expect("a socket pair");
    let options = RegionOptions {
        pages: Pages::Base,
        node: None,
        locked: false,
    };
    let (window, memory) = Window::create(geometry.size(), &options).expect("memory");
    let mut received = ReceiveCursor::default();
    received.set_urgent_inline(true);
    let application = Application {
        rings: RingPair::new(&window, geometry, side).expect("a rings"),
        sent: SendCursor::default(),
        received,
        wakeup: Some(wakeup),
        memory: memory.try_clone().expect("a descriptor"),
        geometry,
        side,
        source,
        got: Vec::new(),
        urgent: BTreeSet::new(),
        urgent_got: BTreeSet::new(),
        end: None,
        has_finished: false,
        is_refused: false,
        scratch: vec![0; 3000],
    };
    let endpoint = Endpoint {
        wakeup: theirs,
        memory,
        geometry,
        application: side,
    };
    (application, endpoint)
}

impl Application {
    /// Sends and receives a part. True if anything moved.
    pub(crate) fn step(&mut self, random: &mut Random) -> bool {
        self.drain();
        let went = self.send(1 + random.index(3000));
        let came = self.receive();
        went || came
    }

    /// Marks a few of its bytes as urgent.
    pub(crate) fn mark(&mut self, random: &mut Random) {
        let length = self.source.len();
        let count = random.index(4).min(length);
        self.urgent = (0..count).map(|_| random.index(length)).collect();
    }

    /// Requests a service.
    pub(crate) fn serve(&mut self, service: Service) {
        self.rings.sender.serve(service);
        self.ring();
    }

    pub(crate) fn is_done(&self) -> bool {
        let is_cut = !matches!(self.end, None | Some(Outcome::Finished));
        is_cut || self.end.is_some() && (self.has_finished || self.is_refused)
    }

    /// Sends as much as there is room for, and the end behind the last byte.
    pub(crate) fn send_all(&mut self) {
        while self.send(usize::MAX / 2) {}
    }

    /// Sends up to `bytes_max` bytes.
    pub(crate) fn send_some(&mut self, bytes_max: usize) {
        self.send(bytes_max);
    }

    /// Receives all available bytes.
    pub(crate) fn receive_all(&mut self) {
        while self.receive() {}
    }

    pub(crate) fn has_seen_the_end(&self) -> bool {
        self.end == Some(Outcome::Finished)
    }

    /// The errno of a reset, whatever came before it.
    pub(crate) fn reset(&self) -> Option<u16> {
        match self.rings.peer_state.closing() {
            Closing::Reset(errno) => Some(errno),
            _ => None,
        }
    }

    /// The state, for the message of a timeout.
    pub(crate) fn state(&self) -> String {
        let (sent, got) = (self.total_sent(), self.got.len());
        let whole = self.source.len();
        format!("sent {sent} of {whole}, got {got}, {:?}", self.end)
    }

    pub(crate) fn total_sent(&self) -> usize {
        usize::try_from(self.sent.total).expect("small")
    }

    /// Announces a sleep. True if it must not sleep.
    pub(crate) fn arm(&mut self) -> bool {
        let rings = &mut self.rings;
        let is_data =
            self.end.is_none() && rings.receiver.arm(&rings.peer_state, &mut self.received);
        let is_room = !self.has_finished && rings.sender.arm(&rings.peer_state, &mut self.sent);
        is_data || is_room
    }

    /// Stores an invalid slot at the next position, and sends nothing more.
    pub(crate) fn smear(&mut self) {
        self.store(RING + self.line() * 64, 0xdead_beef);
        self.is_refused = true;
    }

    /// Returns lines that it was not sent.
    pub(crate) fn give_too_much(&mut self) {
        self.store(0, u64::MAX);
    }

    fn store(&mut self, place: usize, word: u64) {
        let area = self.geometry.size() / 2;
        let start = match self.side {
            Side::Connecting => 0,
            Side::Accepting => area,
        };
        let window = Window::attach(&self.memory).expect("its own memory");
        let mut outgoing = window.outgoing(start..start + area).expect("its own area");
        outgoing.slot(place, 64).expect("a line").publish(word);
        self.ring();
    }

    /// Writes a byte to its wake-up fd.
    pub(crate) fn write_garbage(&self) {
        rustix::net::send(self.wakeup(), b"bytes", SendFlags::NOSIGNAL).expect("room for it");
    }

    /// The line of its next slot.
    fn line(&self) -> usize {
        let lines = u64::from(self.geometry.ring_lines);
        usize::try_from(self.sent.position % lines).expect("small")
    }

    /// Kills the program: the kernel closes its descriptors. What it had sent stays known.
    pub(crate) fn into_killed(mut self) -> Self {
        self.kill();
        self
    }

    /// Kills the program in place.
    pub(crate) fn kill(&mut self) {
        self.wakeup = None;
    }

    fn wakeup(&self) -> &OwnedFd {
        self.wakeup.as_ref().expect("the dead do nothing")
    }

    fn send(&mut self, bytes_max: usize) -> bool {
        if self.has_finished || self.is_refused || self.is_cut() {
            return false;
        }
        if self.end.is_some() {
            let is_reset = matches!(self.rings.peer_state.closing(), Closing::Reset(_));
            self.is_refused = is_reset || self.is_hung_up();
        }
        let (start, rings) = (self.total_sent(), &mut self.rings);
        let mark = self.urgent.range(start + 1..).next();
        let last = *mark.unwrap_or(&self.source.len());
        let end = last.min(start + bytes_max);
        let moved = if start == self.source.len() {
            self.has_finished = rings
                .sender
                .finish(&rings.peer_state, &mut self.sent)
                .expect("sound");
            self.has_finished
        } else if self.urgent.contains(&start) {
            rings
                .sender
                .send_urgent(&rings.peer_state, &mut self.sent, self.source[start])
                .expect("sound")
        } else {
            let bytes = &self.source[start..end];
            rings
                .sender
                .send(&rings.peer_state, &mut self.sent, bytes)
                .expect("sound")
                > 0
        };
        if moved && rings.sender.wake(&rings.peer_state, &mut self.sent) {
            self.ring();
        }
        moved
    }

    fn receive(&mut self) -> bool {
        if self.end.is_some() {
            return false;
        }
        // The state is read before the ring: bytes sent before the hang-up are found.
        let is_hung_up = self.is_hung_up();
        let (rings, before) = (&mut self.rings, self.received);
        let taken =
            rings
                .receiver
                .receive(&rings.peer_state, &mut self.received, &mut self.scratch);
        let taken = taken.expect("the forwarder is sound");
        if taken.bytes > 0 && rings.peer_state.is_at_mark(&before) {
            self.urgent_got.insert(self.got.len());
        }
        self.got.extend_from_slice(&self.scratch[..taken.bytes]);
        if rings.receiver.wake(&rings.peer_state, &mut self.received) {
            self.ring();
        }
        self.end = match taken.end {
            Some(End::Finished) => Some(Outcome::Finished),
            Some(End::Reset(errno)) => Some(Outcome::Reset(errno)),
            None if taken.bytes == 0 && is_hung_up => Some(Outcome::HungUp),
            None => None,
        };
        taken.bytes > 0 || self.end.is_some()
    }

    fn is_cut(&self) -> bool {
        !matches!(self.end, None | Some(Outcome::Finished))
    }

    fn is_hung_up(&self) -> bool {
        let mut watched = [PollFd::new(self.wakeup(), PollFlags::empty())];
        let zero = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut watched, Some(&zero)).expect("a poll");
        watched[0].revents().contains(PollFlags::HUP)
    }

    /// Whether a notification was pending; it is drained.
    pub(crate) fn is_notified(&self) -> bool {
        rustix::net::recv(self.wakeup(), &mut [0_u8; 8], RecvFlags::DONTWAIT).is_ok()
    }

    fn drain(&self) {
        for _ in 0..64 {
            let taken = rustix::net::recv(self.wakeup(), &mut [0_u8; 8], RecvFlags::DONTWAIT);
            let Ok((bytes, _)) = taken else {
                return;
            };
            assert_eq!(bytes, 0, "a ring is empty");
        }
    }

    fn ring(&self) {
        let _ = rustix::net::send(
            self.wakeup(),
            &[],
            SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
        );
    }
}

impl AsFd for Application {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.wakeup().as_fd()
    }
}
