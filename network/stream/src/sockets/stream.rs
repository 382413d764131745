//! A connection.

use std::io;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use millrace_window::Window;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, recv, send, sockopt};

use super::Reservation;
use crate::control::{Link, Mode};
use crate::{
    Closing, End, Geometry, Lane, Piece, ReceiveCursor, Received, SendCursor, Sender, Side,
};

/// A connection that nobody else has: it is not shared with other processes, and one thread at a time uses it.
#[derive(Debug)]
pub struct Stream {
    lane: Lane,
    sent: SendCursor,
    received: ReceiveCursor,
    bell: OwnedFd,
    link: Link,
    /// The peer's end has no holder any more, or the peer broke the protocol.
    is_gone: bool,
    is_broken: bool,
    is_armed: Wanted,
    /// Receives in a row that found nothing.
    idle: u32,
    rings: u64,
}

/// What is waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Bytes to receive, or the end.
    pub data: bool,
    /// Room to send.
    pub room: bool,
}

/// So many receives in a row find nothing before the kernel is asked whether the peer is there.
const IDLE_MAX: u32 = 64;

/// So many rings are answered at once.
const RINGS_MAX: usize = 64;

impl Stream {
    pub(super) fn new(link: Link, side: Side, descriptors: Vec<OwnedFd>) -> io::Result<Self> {
        let Ok([bell, memory]) = <[OwnedFd; 2]>::try_from(descriptors) else {
            return Err(broken("a connection without bell and memory"));
        };
        // Any other descriptor could be readable for ever, and nothing that is answered would change it.
        let is_bell = sockopt::socket_domain(&bell)? == AddressFamily::UNIX
            && sockopt::socket_type(&bell)? == SocketType::SEQPACKET;
        if !is_bell {
            return Err(broken("a bell that is none"));
        }
        let geometry = Geometry {
            ring_lines: link.ring_lines,
        };
        let window = Window::attach(&memory).map_err(io::Error::other)?;
        let lane = Lane::new(&window, geometry, side).map_err(io::Error::other)?;
        Ok(Self {
            lane,
            sent: SendCursor::default(),
            received: ReceiveCursor::default(),
            bell,
            link,
            is_gone: false,
            is_broken: false,
            is_armed: Wanted::default(),
            idle: 0,
            rings: 0,
        })
    }

    /// The other end's name.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.link.peer.into()
    }

    /// This end's name.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.link.local.into()
    }

    /// Bytes that were sent.
    #[must_use]
    pub const fn total_sent(&self) -> u64 {
        self.sent.total
    }

    /// Bytes that were received.
    #[must_use]
    pub const fn total_received(&self) -> u64 {
        self.received.total
    }

    /// How often the peer was rung for.
    #[must_use]
    pub const fn total_rings(&self) -> u64 {
        self.rings
    }

    /// How many bytes are there to be received.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.lane.receiver.pending(&self.lane.sight, &self.received)
    }

    /// Whether the peer is known to have let go of its end, or to have broken the protocol. What it sent before may
    /// still be there.
    #[must_use]
    pub const fn is_gone(&self) -> bool {
        self.is_gone || self.is_broken
    }

    /// Whether the next thing to be received is the end, or the peer is gone. An end behind bytes that were not
    /// received is not seen.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        let peeked = self
            .lane
            .receiver
            .peek(&self.lane.sight, &self.received, &mut [0]);
        self.is_gone() || peeked.map_or(true, |peeked| peeked.end.is_some())
    }

    /// Moves bytes to `into` and returns how many; 0 at the end of the stream, or if it is empty.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there are none now; [`io::ErrorKind::ConnectionReset`] if the stream was
    /// cut short.
    pub fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.receive_by(into.len(), |lane, cursor| {
            lane.receiver.receive(&lane.sight, cursor, into)
        })
    }

    fn receive_by(
        &mut self,
        size: usize,
        mut receive: impl FnMut(&mut Lane, &mut ReceiveCursor) -> crate::Result<Received>,
    ) -> io::Result<usize> {
        if size == 0 {
            return Ok(0);
        }
        // What was published before the peer's end was let go of is there.
        loop {
            let taken = receive(&mut self.lane, &mut self.received);
            let taken = match taken {
                Ok(taken) if !self.is_broken => taken,
                _ => return Err(self.break_off()),
            };
            if self
                .lane
                .receiver
                .wake(&self.lane.sight, &mut self.received)
            {
                self.ring();
            }
            match (taken.bytes, taken.end) {
                (0, Some(End::Finished)) => return Ok(0),
                (0, Some(End::Reset(errno))) => {
                    return Err(io::Error::from_raw_os_error(errno.into()));
                }
                (0, None) if self.is_gone => return self.end(),
                (0, None) if self.looks_gone() => {}
                (0, None) => return Err(io::ErrorKind::WouldBlock.into()),
                (count, _) => {
                    self.idle = 0;
                    return Ok(count);
                }
            }
        }
    }

    /// Sends a prefix of `bytes` and returns its length.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is no room now; [`io::ErrorKind::BrokenPipe`] if nobody will
    /// receive them; what the peer broke the connection off with.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        self.check_peer()?;
        let sent = self
            .lane
            .sender
            .send(&self.lane.sight, &mut self.sent, bytes);
        let Ok(count) = sent else {
            return Err(self.break_off());
        };
        if count == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.wake();
        Ok(count)
    }

    /// Room for up to `length` bytes in the memory that the peer reads, to be written to and committed.
    ///
    /// # Errors
    /// As [`Stream::send`].
    pub fn reserve(&mut self, length: usize) -> io::Result<Reservation<'_>> {
        self.check_peer()?;
        let (sight, sent) = (&self.lane.sight, &mut self.sent);
        let Ok(reserved) = self.lane.sender.reserve(sight, sent, length) else {
            return Err(self.break_off());
        };
        if reserved.length() == 0 && length > 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Reservation::new(self, reserved))
    }

    /// Shows up to `size` bytes where they lie, piece by piece, until `visit` breaks, and leaves them. Returns how many
    /// were shown; 0 at the end of the stream. They are given back by [`Stream::consume`].
    ///
    /// # Errors
    /// As [`Stream::receive`]; what `visit` says.
    pub fn borrow(
        &mut self,
        size: usize,
        mut visit: impl FnMut(Piece<'_>) -> crate::Result<ControlFlow<()>>,
    ) -> io::Result<usize> {
        self.receive_by(size, |lane, cursor| {
            lane.receiver.borrow(&lane.sight, cursor, size, &mut visit)
        })
    }

    /// Receives up to `size` bytes, as many as there are, without a copy.
    ///
    /// # Errors
    /// As [`Stream::receive`].
    pub fn consume(&mut self, size: usize) -> io::Result<usize> {
        self.receive_by(size, |lane, cursor| {
            lane.receiver.consume(&lane.sight, cursor, size)
        })
    }

    pub(super) const fn sending(&mut self) -> (&mut Sender, &mut SendCursor) {
        (&mut self.lane.sender, &mut self.sent)
    }

    /// Wakes the peer if it sleeps for what was sent.
    pub(super) fn wake(&mut self) {
        if self.lane.sender.wake(&self.lane.sight, &mut self.sent) {
            self.ring();
        }
    }

    /// Whether the peer will receive what is sent, as far as is known.
    pub(super) fn check_peer(&mut self) -> io::Result<()> {
        if self.is_broken {
            return Err(self.break_off());
        }
        match self.lane.sight.closing() {
            Closing::Reset(errno) => Err(io::Error::from_raw_os_error(errno.into())),
            Closing::Open if !self.is_gone => Ok(()),
            // Whoever let go may not have been the last holder.
            Closing::Closed if !self.is_gone && !self.asks_gone() => Ok(()),
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Whether a call of what is wanted would not say that it would block, as far as loads show it: that a peer is
    /// gone shows at the descriptor.
    #[must_use]
    pub fn is_ready(&self, wanted: Wanted) -> bool {
        let sight = &self.lane.sight;
        let is_reset = || matches!(sight.closing(), Closing::Reset(_));
        self.is_gone()
            || wanted.data && sight.is_readable(self.received.position)
            || wanted.room && (sight.has_room(&self.sent) || is_reset())
    }

    /// Says that this side goes to sleep until what is wanted is there: the descriptor will be readable then. True
    /// if it must not, as it is there.
    pub fn arm(&mut self, wanted: Wanted) -> bool {
        let sight = &self.lane.sight;
        let mut is_there = false;
        if wanted.data {
            is_there |= self.lane.receiver.arm(sight, &mut self.received);
        }
        if wanted.room {
            is_there |= self.lane.sender.arm(sight, &mut self.sent);
        }
        self.is_armed = wanted;
        is_there || self.is_ready(wanted)
    }

    /// What it has armed for and was not rung for since.
    #[must_use]
    pub const fn armed(&self) -> Wanted {
        self.is_armed
    }

    /// Takes the rings that came, and notes whether the peer is gone. To be called when the descriptor was
    /// readable.
    pub fn answer(&mut self) {
        self.is_armed = Wanted::default();
        for count in 0..RINGS_MAX {
            match recv(&self.bell, &mut [0_u8; 1], RecvFlags::DONTWAIT) {
                // The peer's end is gone, or it rang more often than it was asked to.
                Ok((0, _)) if count > 0 && self.asks_gone() => return,
                // It went without having taken the rings that were for it.
                Err(Errno::CONNRESET) if self.asks_gone() => return,
                Ok((0, _)) | Err(Errno::INTR | Errno::CONNRESET) => {}
                Err(Errno::WOULDBLOCK) => break,
                // A ring is empty: whoever writes here speaks past the protocol. And no other error goes away.
                Ok(_) | Err(_) => {
                    let _ = self.break_off();
                    return;
                }
            }
        }
    }

    /// Sends the end: the peer gets it behind all that was sent. False if there is no room for it yet.
    pub fn finish(&mut self) -> bool {
        let finished = self
            .lane
            .sender
            .finish(&self.lane.sight, &mut self.sent)
            .unwrap_or(true);
        self.wake();
        finished
    }

    /// The end of a stream whose peer has let go of it: as the kernel has it, unless what is between them died.
    fn end(&self) -> io::Result<usize> {
        match self.link.mode {
            Mode::Direct => Ok(0),
            Mode::Proxy => Err(io::ErrorKind::ConnectionReset.into()),
        }
    }

    /// Whether the peer has gone, asking the kernel now and then.
    fn looks_gone(&mut self) -> bool {
        self.idle += 1;
        let is_hinted = self.lane.sight.closing() != Closing::Open;
        if !is_hinted && self.idle < IDLE_MAX {
            return false;
        }
        self.idle = 0;
        self.asks_gone()
    }

    /// Asks the kernel whether the peer has gone. Who shuts the bell down has gone as well.
    fn asks_gone(&mut self) -> bool {
        let mut watched = [PollFd::new(&self.bell, PollFlags::RDHUP)];
        let zero = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let is_gone = poll(&mut watched, Some(&zero)).is_ok()
            && watched[0]
                .revents()
                .intersects(PollFlags::HUP | PollFlags::RDHUP);
        self.is_gone |= is_gone;
        is_gone
    }

    fn break_off(&mut self) -> io::Error {
        if !self.is_broken {
            self.is_broken = true;
            let reset = Errno::CONNRESET.raw_os_error();
            self.lane
                .sender
                .reset(u16::try_from(reset).expect("an errno is small"));
            self.ring();
        }
        io::ErrorKind::ConnectionReset.into()
    }

    fn ring(&mut self) {
        self.rings += 1;
        // Full: rings are pending already. Gone: that will be found.
        let _ = send(&self.bell, &[], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

impl AsFd for Stream {
    /// Readable when the peer has rung, hung up when it is gone.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.is_gone() && self.pending() > 0 {
            // As TCP does with bytes that nobody received.
            let _ = self.break_off();
        }
        // A reset must not be overwritten by a mere end.
        if !self.is_broken {
            self.lane.sender.close();
            self.ring();
        }
    }
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
