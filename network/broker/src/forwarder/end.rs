//! A forwarder's side of an application's connection.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use millrace_stream::{
    Closing, End as Ending, Geometry, ReceiveCursor, RingPair, SendCursor, Service, Side,
};
use millrace_window::Window;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::{Error, ErrorKind, Result};

/// A forwarder's side of the connection with one application: the peer of the descriptors that the broker gives to the
/// application.
#[derive(Debug)]
pub struct Endpoint {
    /// The forwarder's end of the wake-up socket pair.
    pub wakeup: OwnedFd,
    /// The memory file that both sides map.
    pub memory: OwnedFd,
    /// The size of the rings in that memory.
    pub geometry: Geometry,
    /// The side of the *application*, not of the forwarder.
    pub application: Side,
}

/// The result of a receive call, without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// `count` bytes, at least one. If `is_urgent`, the first is urgent.
    Bytes { count: usize, is_urgent: bool },
    /// No bytes are available now.
    Nothing,
    /// The stream has ended: the application has finished, or has exited.
    Finished,
    /// The application reset the connection, or broke the protocol.
    Reset(u16),
}

/// The forwarder's ring pair of a connection, with its wake-up socket.
#[derive(Debug)]
pub(super) struct End {
    rings: RingPair,
    sent: SendCursor,
    received: ReceiveCursor,
    wakeup: OwnedFd,
    /// The service that the application requested last.
    service: Service,
    /// Bytes sent since the last notification.
    unnotified: usize,
    /// Whether the other end of the wake-up socket is closed.
    is_gone: bool,
    /// Whether the application broke the protocol in the rings or on the wake-up socket.
    is_broken: bool,
    is_reset: bool,
}

/// ECONNRESET, for an application that lost its peer.
pub(super) const CONNECTION_RESET: u16 = 104;
/// EPIPE, for an application that has received its peer's end.
pub(super) const BROKEN_PIPE: u16 = 32;
/// Wake-ups that are drained at once.
const WAKEUPS_MAX: usize = 64;

impl End {
    pub(super) fn new(endpoint: Endpoint) -> Result<Self> {
        let refused = |error: Box<dyn std::error::Error + Send + Sync>| {
            Error::new(
                ErrorKind::Refused,
                "the memory is not a connection's: wrong size, seals or geometry",
            )
            .caused_by(error)
        };
        let window = Window::attach(&endpoint.memory).map_err(|error| refused(error.into()))?;
        let side = endpoint.application.peer();
        let rings = RingPair::new(&window, endpoint.geometry, side);
        // Urgent bytes are forwarded in line.
        let mut received = ReceiveCursor::default();
        received.set_urgent_inline(true);
        Ok(Self {
            rings: rings.map_err(|error| refused(error.into()))?,
            sent: SendCursor::default(),
            received,
            wakeup: endpoint.wakeup,
            service: Service::default(),
            unnotified: 0,
            is_gone: false,
            is_broken: false,
            is_reset: false,
        })
    }

    /// Receives bytes of the application, and notifies it if it waits for room.
    pub(super) fn receive(&mut self, into: &mut [u8]) -> Taken {
        // The state is read before the ring: bytes published before the exit are found.
        let was_gone = self.is_gone;
        if self.is_broken {
            return Taken::Reset(CONNECTION_RESET);
        }
        let rings = &mut self.rings;
        let before = self.received;
        let taken = rings
            .receiver
            .receive(&rings.peer_state, &mut self.received, into);
        if rings.receiver.wake(&rings.peer_state, &mut self.received) {
            self.notify();
        }
        match taken {
            Ok(taken) => match taken.end {
                // The urgent mark was set before its byte was published, and a receive ends before the mark. So the
                // mark is at the first byte or at none.
                _ if taken.bytes > 0 => Taken::Bytes {
                    count: taken.bytes,
                    is_urgent: self.rings.peer_state.is_at_mark(&before),
                },
                Some(Ending::Finished) => Taken::Finished,
                Some(Ending::Reset(errno)) => Taken::Reset(errno),
                None if was_gone => Taken::Finished,
                None => Taken::Nothing,
            },
            Err(_) => {
                self.is_broken = true;
                Taken::Reset(CONNECTION_RESET)
            }
        }
    }

    /// Whether bytes, an end or an error can be received.
    pub(super) fn is_readable(&self) -> bool {
        self.is_gone || self.is_broken || self.rings.peer_state.is_readable(self.received.position)
    }

    /// Whether bytes or their end can be received without a protocol violation.
    pub(super) fn has_bytes(&self) -> bool {
        !self.is_broken && self.rings.peer_state.is_readable(self.received.position)
    }

    /// Whether a holder of the application's end has closed it; `poll` then decides whether it was the last.
    pub(super) fn is_closing(&self) -> bool {
        self.rings.peer_state.closing() != Closing::Open
    }

    /// Sends as many bytes to the application as there is room for. If `is_urgent`, the first is urgent.
    /// [`End::notify_pending`] is due afterwards.
    pub(super) fn send(&mut self, bytes: &[u8], is_urgent: bool) -> usize {
        if self.is_broken {
            return 0;
        }
        let before = self.sent.total;
        let rings = &mut self.rings;
        let sent = match bytes {
            [] => return 0,
            [first, rest @ ..] if is_urgent => {
                match rings
                    .sender
                    .send_urgent(&rings.peer_state, &mut self.sent, *first)
                {
                    Ok(true) => rings.sender.send(&rings.peer_state, &mut self.sent, rest),
                    other => other.map(usize::from),
                }
            }
            bytes => rings.sender.send(&rings.peer_state, &mut self.sent, bytes),
        };
        self.is_broken |= sent.is_err();
        let count = usize::try_from(self.sent.total - before).expect("no more than was given");
        self.unnotified += count;
        count
    }

    /// Bytes sent since the last notification.
    pub(super) const fn unnotified(&self) -> usize {
        self.unnotified
    }

    /// Notifies the application of sent bytes, if it sleeps.
    pub(super) fn notify_pending(&mut self) {
        if self.unnotified > 0 {
            self.wake();
        }
    }

    /// Sends the end to the application. False if there is no room for it yet.
    pub(super) fn finish(&mut self) -> bool {
        let rings = &mut self.rings;
        let is_done = rings.sender.finish(&rings.peer_state, &mut self.sent);
        self.wake();
        is_done.unwrap_or_else(|_| {
            self.is_broken = true;
            true
        })
    }

    /// Resets the application's connection.
    pub(super) fn reset(&mut self, errno: u16) {
        if !self.is_reset {
            self.is_reset = true;
            self.rings.sender.reset(errno.clamp(1, 4095));
            self.notify();
        }
    }

    /// Requests a notification for data or room. True if it is there already.
    pub(super) fn arm(&mut self, for_data: bool, for_room: bool) -> bool {
        let rings = &mut self.rings;
        let is_data = for_data && rings.receiver.arm(&rings.peer_state, &mut self.received);
        let is_room = for_room && rings.sender.arm(&rings.peer_state, &mut self.sent);
        is_data || is_room
    }

    /// The service that the application requests, if it has changed. After its exit no rate limit applies to the rest
    /// of its bytes.
    pub(super) fn changed_service(&mut self) -> Option<Service> {
        let mut service = self.rings.peer_state.service();
        if self.is_gone() {
            service.bytes_per_second = None;
        }
        let is_new = service != self.service;
        self.service = service;
        is_new.then_some(service)
    }

    /// Drains the wake-up socket, and records a hang-up.
    pub(super) fn drain_wakeups(&mut self, is_hung_up: bool) {
        self.is_gone |= is_hung_up;
        for _ in 0..WAKEUPS_MAX {
            match recv(&self.wakeup, &mut [0_u8; 1], RecvFlags::DONTWAIT) {
                Ok((0, _)) if self.is_gone => return,
                Ok((0, _)) | Err(Errno::INTR) => {}
                // A wake-up is an empty packet; a byte here breaks the protocol.
                Ok(_) => self.is_broken = true,
                Err(_) => return,
            }
        }
    }

    /// Polls the wake-up socket for a hang-up.
    pub(super) fn poll_hangup(&mut self) -> bool {
        let mut watched = [PollFd::new(&self.wakeup, PollFlags::empty())];
        let zero = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        if poll(&mut watched, Some(&zero)).is_ok() {
            self.is_gone |= watched[0].revents().contains(PollFlags::HUP);
        }
        self.is_gone
    }

    /// Whether sent bytes can no longer be received: the application has exited or broken the protocol.
    pub(super) const fn is_gone(&self) -> bool {
        self.is_gone || self.is_broken
    }

    /// Bytes received from the application, and bytes sent to it.
    pub(super) const fn totals(&self) -> (u64, u64) {
        (self.received.total, self.sent.total)
    }

    fn wake(&mut self) {
        self.unnotified = 0;
        let rings = &mut self.rings;
        if rings.sender.wake(&rings.peer_state, &mut self.sent) {
            self.notify();
        }
    }

    fn notify(&self) {
        // EAGAIN: wake-ups are pending. EPIPE: `poll` will report it.
        let _ = send(&self.wakeup, &[], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

impl AsFd for End {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wakeup.as_fd()
    }
}
