//! A stream: one side of a connection with its wake-up fd.

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
    Closing, End, Geometry, Piece, ReceiveCursor, Received, RingPair, SendCursor, Sender, Side,
};

/// A stream of one process; one thread at a time may use it.
#[derive(Debug)]
pub struct Stream {
    rings: RingPair,
    sent: SendCursor,
    received: ReceiveCursor,
    wakeup: OwnedFd,
    link: Link,
    /// Whether the peer has closed its end.
    is_gone: bool,
    is_broken: bool,
    armed: Interest,
    /// Receives in a row that found nothing.
    idle: u32,
    notifications: u64,
}

/// The events that a caller waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// Whether to wait for bytes or the end.
    pub readable: bool,
    /// Whether to wait for room to send.
    pub writable: bool,
}

/// Empty receives in a row after which the kernel is asked for a hang-up.
const IDLE_MAX: u32 = 64;

/// Wake-ups that are drained at once.
const WAKEUPS_MAX: usize = 64;

impl Stream {
    pub(super) fn new(link: Link, side: Side, descriptors: Vec<OwnedFd>) -> io::Result<Self> {
        let Ok([wakeup, memory]) = <[OwnedFd; 2]>::try_from(descriptors) else {
            return Err(broken(
                "protocol error: a connection needs two descriptors, a wake-up fd and a memory file",
            ));
        };
        // Any other descriptor could stay readable for ever.
        let is_wakeup_fd = sockopt::socket_domain(&wakeup)? == AddressFamily::UNIX
            && sockopt::socket_type(&wakeup)? == SocketType::SEQPACKET;
        if !is_wakeup_fd {
            return Err(broken("the wake-up fd is not an AF_UNIX SEQPACKET socket"));
        }
        let geometry = Geometry {
            ring_lines: link.ring_lines,
        };
        let window = Window::attach(&memory).map_err(io::Error::other)?;
        let rings = RingPair::new(&window, geometry, side).map_err(io::Error::other)?;
        Ok(Self {
            rings,
            sent: SendCursor::default(),
            received: ReceiveCursor::default(),
            wakeup,
            link,
            is_gone: false,
            is_broken: false,
            armed: Interest::default(),
            idle: 0,
            notifications: 0,
        })
    }

    /// The IP address and port of the other end.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.link.peer.into()
    }

    /// The IP address and port of this end.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.link.local.into()
    }

    /// The count of bytes sent since the start.
    #[must_use]
    pub const fn total_sent(&self) -> u64 {
        self.sent.total
    }

    /// The count of bytes received since the start.
    #[must_use]
    pub const fn total_received(&self) -> u64 {
        self.received.total
    }

    /// The count of notifications sent to the peer.
    #[must_use]
    pub const fn total_notifications(&self) -> u64 {
        self.notifications
    }

    /// The count of bytes that can be received.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.rings
            .receiver
            .pending(&self.rings.peer_state, &self.received)
    }

    /// Whether the peer is known to have closed its end or broken the protocol. Its earlier bytes may still be
    /// available.
    #[must_use]
    pub const fn is_gone(&self) -> bool {
        self.is_gone || self.is_broken
    }

    /// Whether the end is next, or the peer is gone. An end behind unreceived bytes does not count.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        let peeked = self
            .rings
            .receiver
            .peek(&self.rings.peer_state, &self.received, &mut [0]);
        self.is_gone() || peeked.map_or(true, |peeked| peeked.end.is_some())
    }

    /// Receives bytes into `into`, and returns their count; 0 at the end of the stream, or if `into` is empty.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if no bytes are available; [`io::ErrorKind::ConnectionReset`] if the stream was
    /// cut short.
    pub fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.receive_by(into.len(), |rings, cursor| {
            rings.receiver.receive(&rings.peer_state, cursor, into)
        })
    }

    fn receive_by(
        &mut self,
        size: usize,
        mut receive: impl FnMut(&mut RingPair, &mut ReceiveCursor) -> crate::Result<Received>,
    ) -> io::Result<usize> {
        if size == 0 {
            return Ok(0);
        }
        // Bytes published before the peer closed its end are available.
        loop {
            let taken = receive(&mut self.rings, &mut self.received);
            let taken = match taken {
                Ok(taken) if !self.is_broken => taken,
                _ => return Err(self.break_off()),
            };
            if self
                .rings
                .receiver
                .wake(&self.rings.peer_state, &mut self.received)
            {
                self.notify();
            }
            match (taken.bytes, taken.end) {
                (0, Some(End::Finished)) => return Ok(0),
                (0, Some(End::Reset(errno))) => {
                    return Err(io::Error::from_raw_os_error(errno.into()));
                }
                (0, None) if self.is_gone => return self.end(),
                (0, None) if self.seems_gone() => {}
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
    /// [`io::ErrorKind::WouldBlock`] if there is no room; [`io::ErrorKind::BrokenPipe`] if the peer can no longer
    /// receive; the peer's errno after a reset.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        self.check_peer()?;
        let sent = self
            .rings
            .sender
            .send(&self.rings.peer_state, &mut self.sent, bytes);
        let Ok(count) = sent else {
            return Err(self.break_off());
        };
        if count == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.wake();
        Ok(count)
    }

    /// Reserves room for up to `length` bytes in the memory that the peer reads.
    ///
    /// # Errors
    /// As [`Stream::send`].
    pub fn reserve(&mut self, length: usize) -> io::Result<Reservation<'_>> {
        self.check_peer()?;
        let (peer_state, sent) = (&self.rings.peer_state, &mut self.sent);
        let Ok(reserved) = self.rings.sender.reserve(peer_state, sent, length) else {
            return Err(self.break_off());
        };
        if reserved.length() == 0 && length > 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Reservation::new(self, reserved))
    }

    /// Visits up to `size` received bytes in place, until `visit` breaks. The bytes stay in the ring until
    /// [`Stream::consume`]. Returns the count of visited bytes; 0 at the end of the stream.
    ///
    /// # Errors
    /// As [`Stream::receive`], and the errors of `visit`.
    pub fn borrow(
        &mut self,
        size: usize,
        mut visit: impl FnMut(Piece<'_>) -> crate::Result<ControlFlow<()>>,
    ) -> io::Result<usize> {
        self.receive_by(size, |rings, cursor| {
            rings
                .receiver
                .borrow(&rings.peer_state, cursor, size, &mut visit)
        })
    }

    /// Receives up to `size` bytes without a copy, and returns their count.
    ///
    /// # Errors
    /// As [`Stream::receive`].
    pub fn consume(&mut self, size: usize) -> io::Result<usize> {
        self.receive_by(size, |rings, cursor| {
            rings.receiver.consume(&rings.peer_state, cursor, size)
        })
    }

    pub(super) const fn sending(&mut self) -> (&mut Sender, &mut SendCursor) {
        (&mut self.rings.sender, &mut self.sent)
    }

    /// Notifies the peer if it sleeps for sent bytes.
    pub(super) fn wake(&mut self) {
        if self
            .rings
            .sender
            .wake(&self.rings.peer_state, &mut self.sent)
        {
            self.notify();
        }
    }

    /// Checks that the peer can still receive, as far as is known.
    pub(super) fn check_peer(&mut self) -> io::Result<()> {
        if self.is_broken {
            return Err(self.break_off());
        }
        match self.rings.peer_state.closing() {
            Closing::Reset(errno) => Err(io::Error::from_raw_os_error(errno.into())),
            Closing::Open if !self.is_gone => Ok(()),
            // Another process may still hold the peer's end.
            Closing::Closed if !self.is_gone && !self.poll_hangup() => Ok(()),
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Whether a call for this interest would not block, as far as memory shows; a disconnected peer shows at the
    /// descriptor.
    #[must_use]
    pub fn is_ready(&self, interest: Interest) -> bool {
        let peer_state = &self.rings.peer_state;
        let is_reset = || matches!(peer_state.closing(), Closing::Reset(_));
        self.is_gone()
            || interest.readable && peer_state.is_readable(self.received.position)
            || interest.writable && (peer_state.has_room(&self.sent) || is_reset())
    }

    /// Announces a sleep until `interest` is met: the descriptor becomes readable then. True if it is met already and
    /// the caller must not sleep.
    pub fn arm(&mut self, interest: Interest) -> bool {
        let peer_state = &self.rings.peer_state;
        let mut is_there = false;
        if interest.readable {
            is_there |= self.rings.receiver.arm(peer_state, &mut self.received);
        }
        if interest.writable {
            is_there |= self.rings.sender.arm(peer_state, &mut self.sent);
        }
        self.armed = interest;
        is_there || self.is_ready(interest)
    }

    /// The armed interest, unless a wake-up has been drained since.
    #[must_use]
    pub const fn armed(&self) -> Interest {
        self.armed
    }

    /// Drains the wake-up fd, and records whether the peer is gone. To be called when the descriptor is readable.
    pub fn drain_wakeups(&mut self) {
        self.armed = Interest::default();
        for count in 0..WAKEUPS_MAX {
            match recv(&self.wakeup, &mut [0_u8; 1], RecvFlags::DONTWAIT) {
                // The peer's end is closed, or it sent more notifications than requested.
                Ok((0, _)) if count > 0 && self.poll_hangup() => return,
                // It closed with notifications unread.
                Err(Errno::CONNRESET) if self.poll_hangup() => return,
                Ok((0, _)) | Err(Errno::INTR | Errno::CONNRESET) => {}
                Err(Errno::WOULDBLOCK) => break,
                // A wake-up is an empty packet; a byte breaks the protocol, and any other error is permanent.
                Ok(_) | Err(_) => {
                    let _ = self.break_off();
                    return;
                }
            }
        }
    }

    /// Sends the end behind all bytes. False if there is no room for it yet.
    pub fn finish(&mut self) -> bool {
        let finished = self
            .rings
            .sender
            .finish(&self.rings.peer_state, &mut self.sent)
            .unwrap_or(true);
        self.wake();
        finished
    }

    /// The end of a stream whose peer has closed: as in the kernel, unless the forwarder between them exited.
    fn end(&self) -> io::Result<usize> {
        match self.link.mode {
            Mode::Direct => Ok(0),
            Mode::Forwarded => Err(io::ErrorKind::ConnectionReset.into()),
        }
    }

    /// Whether the peer has closed; the kernel is asked now and then.
    fn seems_gone(&mut self) -> bool {
        self.idle += 1;
        let is_hinted = self.rings.peer_state.closing() != Closing::Open;
        if !is_hinted && self.idle < IDLE_MAX {
            return false;
        }
        self.idle = 0;
        self.poll_hangup()
    }

    /// Polls the wake-up fd for a hang-up. A shutdown of its socket counts as one.
    fn poll_hangup(&mut self) -> bool {
        let mut watched = [PollFd::new(&self.wakeup, PollFlags::RDHUP)];
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
            self.rings
                .sender
                .reset(u16::try_from(reset).expect("an errno is small"));
            self.notify();
        }
        io::ErrorKind::ConnectionReset.into()
    }

    fn notify(&mut self) {
        self.notifications += 1;
        // EAGAIN: wake-ups are pending. EPIPE: `poll` will report it.
        let _ = send(&self.wakeup, &[], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

impl AsFd for Stream {
    /// Readable after a notification; hung up when the peer has closed.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wakeup.as_fd()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.is_gone() && self.pending() > 0 {
            // As TCP does with unreceived bytes.
            let _ = self.break_off();
        }
        // A reset must not be overwritten by a close.
        if !self.is_broken {
            self.rings.sender.close();
            self.notify();
        }
    }
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
