//! A program's end of a connection.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};

use millrace_memory::{Pages, RegionOptions};
use millrace_proxy::plane::Endpoint;
use millrace_random::Random;
use millrace_stream::{Closing, End, Geometry, Lane, ReceiveCursor, SendCursor, Service, Side};
use millrace_window::Window;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

const GEOMETRY: Geometry = Geometry { ring_lines: 256 };
/// Where an area has its ring.
const RING: usize = 1024;

/// What a program has sent and received.
pub(crate) struct Application {
    lane: Lane,
    sent: SendCursor,
    received: ReceiveCursor,
    /// None when it was killed.
    bell: Option<OwnedFd>,
    memory: OwnedFd,
    geometry: Geometry,
    side: Side,
    pub(crate) source: Vec<u8>,
    pub(crate) got: Vec<u8>,
    /// Which bytes are urgent of those that it sends, and of those that it got.
    pub(crate) urgent: BTreeSet<usize>,
    pub(crate) urgent_got: BTreeSet<usize>,
    pub(crate) end: Option<Outcome>,
    /// The end was sent.
    pub(crate) has_finished: bool,
    /// Nobody will receive what it has left to send: kernel TCP says EPIPE.
    is_refused: bool,
    scratch: Vec<u8>,
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Finished,
    Reset(u16),
    /// The bell hung up, and nothing was said.
    HungUp,
}

/// A program's end, and the plane's of the same.
pub(crate) fn pair(side: Side, source: Vec<u8>) -> (Application, Endpoint) {
    pair_of(GEOMETRY, side, source)
}

/// The same with rings of another size.
pub(crate) fn pair_of(geometry: Geometry, side: Side, source: Vec<u8>) -> (Application, Endpoint) {
    let flags = SocketFlags::CLOEXEC;
    let bells = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let (bell, theirs) = bells.expect("a socket pair");
    let options = RegionOptions {
        pages: Pages::Base,
        node: None,
        locked: false,
    };
    let (window, memory) = Window::create(geometry.size(), &options).expect("memory");
    let mut received = ReceiveCursor::default();
    received.set_urgent_inline(true);
    let application = Application {
        lane: Lane::new(&window, geometry, side).expect("a lane"),
        sent: SendCursor::default(),
        received,
        bell: Some(bell),
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
        bell: theirs,
        memory,
        geometry,
        application: side,
    };
    (application, endpoint)
}

impl Application {
    /// Sends and receives a part. Whether anything moved.
    pub(crate) fn step(&mut self, random: &mut Random) -> bool {
        self.drain();
        let went = self.send(1 + random.index(3000));
        let came = self.receive();
        went || came
    }

    /// Has a few of its bytes be urgent.
    pub(crate) fn mark(&mut self, random: &mut Random) {
        let length = self.source.len();
        let count = random.index(4).min(length);
        self.urgent = (0..count).map(|_| random.index(length)).collect();
    }

    /// Says how its bytes shall be carried.
    pub(crate) fn serve(&mut self, service: Service) {
        self.lane.sender.serve(service);
        self.ring();
    }

    pub(crate) fn is_done(&self) -> bool {
        let is_cut = !matches!(self.end, None | Some(Outcome::Finished));
        is_cut || self.end.is_some() && (self.has_finished || self.is_refused)
    }

    /// Sends all that there is room for, and the end if it comes so far.
    pub(crate) fn send_all(&mut self) {
        while self.send(usize::MAX / 2) {}
    }

    /// Sends so many bytes at most.
    pub(crate) fn send_some(&mut self, bytes_max: usize) {
        self.send(bytes_max);
    }

    /// Receives all that is there.
    pub(crate) fn receive_all(&mut self) {
        while self.receive() {}
    }

    pub(crate) fn has_seen_the_end(&self) -> bool {
        self.end == Some(Outcome::Finished)
    }

    /// Why it was broken off, if it was, whatever came before.
    pub(crate) fn reset(&self) -> Option<u16> {
        match self.lane.sight.closing() {
            Closing::Reset(errno) => Some(errno),
            _ => None,
        }
    }

    /// For who looks why it hangs.
    pub(crate) fn state(&self) -> String {
        let (sent, got) = (self.total_sent(), self.got.len());
        let whole = self.source.len();
        format!("sent {sent} of {whole}, got {got}, {:?}", self.end)
    }

    pub(crate) fn total_sent(&self) -> usize {
        usize::try_from(self.sent.total).expect("small")
    }

    /// Says that it goes to sleep. True if it must not.
    pub(crate) fn arm(&mut self) -> bool {
        let lane = &mut self.lane;
        let is_data = self.end.is_none() && lane.receiver.arm(&lane.sight, &mut self.received);
        let is_room = !self.has_finished && lane.sender.arm(&lane.sight, &mut self.sent);
        is_data || is_room
    }

    /// Stores what is no slot where the next one would be, and sends no more.
    pub(crate) fn smear(&mut self) {
        self.store(RING + self.line() * 64, 0xdead_beef);
        self.is_refused = true;
    }

    /// Gives lines back that it was not sent.
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

    /// Speaks over its bell.
    pub(crate) fn speak(&self) {
        rustix::net::send(self.bell(), b"bytes", SendFlags::NOSIGNAL).expect("room for it");
    }

    /// The line of its ring where the next slot would be.
    fn line(&self) -> usize {
        let lines = u64::from(self.geometry.ring_lines);
        usize::try_from(self.sent.position % lines).expect("small")
    }

    /// It is killed: the kernel closes what it had open, and no more. What it had sent is known yet.
    pub(crate) fn die(mut self) -> Self {
        self.kill();
        self
    }

    /// The same.
    pub(crate) fn kill(&mut self) {
        self.bell = None;
    }

    fn bell(&self) -> &OwnedFd {
        self.bell.as_ref().expect("the dead do nothing")
    }

    fn send(&mut self, bytes_max: usize) -> bool {
        if self.has_finished || self.is_refused || self.is_cut() {
            return false;
        }
        if self.end.is_some() {
            let is_reset = matches!(self.lane.sight.closing(), Closing::Reset(_));
            self.is_refused = is_reset || self.is_hung_up();
        }
        let (start, lane) = (self.total_sent(), &mut self.lane);
        let mark = self.urgent.range(start + 1..).next();
        let last = *mark.unwrap_or(&self.source.len());
        let end = last.min(start + bytes_max);
        let moved = if start == self.source.len() {
            self.has_finished = lane
                .sender
                .finish(&lane.sight, &mut self.sent)
                .expect("sound");
            self.has_finished
        } else if self.urgent.contains(&start) {
            lane.sender
                .send_urgent(&lane.sight, &mut self.sent, self.source[start])
                .expect("sound")
        } else {
            let bytes = &self.source[start..end];
            lane.sender
                .send(&lane.sight, &mut self.sent, bytes)
                .expect("sound")
                > 0
        };
        if moved && lane.sender.wake(&lane.sight, &mut self.sent) {
            self.ring();
        }
        moved
    }

    fn receive(&mut self) -> bool {
        if self.end.is_some() {
            return false;
        }
        // What was said before it hung up is there: the look comes after the news.
        let is_hung_up = self.is_hung_up();
        let (lane, before) = (&mut self.lane, self.received);
        let taken = lane
            .receiver
            .receive(&lane.sight, &mut self.received, &mut self.scratch);
        let taken = taken.expect("the plane is sound");
        if taken.bytes > 0 && lane.sight.is_at_mark(&before) {
            self.urgent_got.insert(self.got.len());
        }
        self.got.extend_from_slice(&self.scratch[..taken.bytes]);
        if lane.receiver.wake(&lane.sight, &mut self.received) {
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
        let mut watched = [PollFd::new(self.bell(), PollFlags::empty())];
        let zero = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut watched, Some(&zero)).expect("a poll");
        watched[0].revents().contains(PollFlags::HUP)
    }

    /// Whether it was rung for. Then it was woken, and has taken the ring.
    pub(crate) fn is_rung(&self) -> bool {
        rustix::net::recv(self.bell(), &mut [0_u8; 8], RecvFlags::DONTWAIT).is_ok()
    }

    fn drain(&self) {
        for _ in 0..64 {
            let taken = rustix::net::recv(self.bell(), &mut [0_u8; 8], RecvFlags::DONTWAIT);
            let Ok((bytes, _)) = taken else {
                return;
            };
            assert_eq!(bytes, 0, "a ring is empty");
        }
    }

    fn ring(&self) {
        let _ = rustix::net::send(self.bell(), &[], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

impl AsFd for Application {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.bell().as_fd()
    }
}
