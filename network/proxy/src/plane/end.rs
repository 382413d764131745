//! An application's end of a connection, as the plane has it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use millrace_stream::{
    Closing, End as Ending, Geometry, Lane, ReceiveCursor, SendCursor, Service, Side,
};
use millrace_window::Window;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::{Error, ErrorKind, Result};

/// What an application and the plane share: what the monitor gives to the application as bell and memory, of which
/// this is the other end.
#[derive(Debug)]
pub struct Endpoint {
    /// The plane's end of the bell.
    pub bell: OwnedFd,
    /// The memory of both.
    pub memory: OwnedFd,
    /// How large its rings are.
    pub geometry: Geometry,
    /// Which side the *application* has.
    pub application: Side,
}

/// What there is to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// So many bytes, at least one, of which the first may be urgent.
    Bytes { count: usize, is_urgent: bool },
    /// Nothing now.
    Nothing,
    /// Nothing any more: the application has finished, or is gone.
    Finished,
    /// The application has broken off, or broken the protocol.
    Reset(u16),
}

/// The plane's side of a lane, and its bell.
#[derive(Debug)]
pub(super) struct End {
    lane: Lane,
    sent: SendCursor,
    received: ReceiveCursor,
    bell: OwnedFd,
    /// How the application wants its bytes to be carried, as was told last.
    service: Service,
    /// Bytes that the application was given and not rung for, if it sleeps.
    untold: usize,
    /// Nobody holds the other end of the bell.
    is_gone: bool,
    /// What came over the lane or the bell is not the protocol.
    is_broken: bool,
    is_reset: bool,
}

/// What an application is told that lost its peer.
pub(super) const CONNECTION_RESET: u16 = 104;
/// The same, if it knows that the peer has finished.
pub(super) const BROKEN_PIPE: u16 = 32;
/// So many rings are answered at once.
const RINGS_MAX: usize = 64;

impl End {
    pub(super) fn new(endpoint: Endpoint) -> Result<Self> {
        let refused = |error: Box<dyn std::error::Error + Send + Sync>| {
            Error::new(ErrorKind::Refused, "memory that is no connection's").caused_by(error)
        };
        let window = Window::attach(&endpoint.memory).map_err(|error| refused(error.into()))?;
        let side = endpoint.application.peer();
        let lane = Lane::new(&window, endpoint.geometry, side);
        // Urgent bytes are carried in their place.
        let mut received = ReceiveCursor::default();
        received.set_urgent_inline(true);
        Ok(Self {
            lane: lane.map_err(|error| refused(error.into()))?,
            sent: SendCursor::default(),
            received,
            bell: endpoint.bell,
            service: Service::default(),
            untold: 0,
            is_gone: false,
            is_broken: false,
            is_reset: false,
        })
    }

    /// Takes what the application has sent. It is rung for if it waits for room.
    pub(super) fn receive(&mut self, into: &mut [u8]) -> Taken {
        // What was published before the application was gone is there: the look comes after the news.
        let was_gone = self.is_gone;
        if self.is_broken {
            return Taken::Reset(CONNECTION_RESET);
        }
        let lane = &mut self.lane;
        let before = self.received;
        let taken = lane.receiver.receive(&lane.sight, &mut self.received, into);
        if lane.receiver.wake(&lane.sight, &mut self.received) {
            self.ring();
        }
        match taken {
            Ok(taken) => match taken.end {
                // The mark is looked for behind the bytes: it was set before they were published. A receive ends
                // before it, so it is at the first byte or at none.
                _ if taken.bytes > 0 => Taken::Bytes {
                    count: taken.bytes,
                    is_urgent: self.lane.sight.is_at_mark(&before),
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

    /// Whether there is something to receive: bytes or an end.
    pub(super) fn is_readable(&self) -> bool {
        self.is_gone || self.is_broken || self.lane.sight.is_readable(self.received.position)
    }

    /// Whether there are bytes to receive, or the end of them, of one that keeps the protocol.
    pub(super) fn has_bytes(&self) -> bool {
        !self.is_broken && self.lane.sight.is_readable(self.received.position)
    }

    /// Whether an application that closes has said so: then it is looked at whether it is gone.
    pub(super) fn is_closing(&self) -> bool {
        self.lane.sight.closing() != Closing::Open
    }

    /// Gives bytes to the application, of which the first may be urgent, as many as there is room for. It is to be
    /// told of them.
    pub(super) fn send(&mut self, bytes: &[u8], is_urgent: bool) -> usize {
        if self.is_broken {
            return 0;
        }
        let before = self.sent.total;
        let lane = &mut self.lane;
        let sent = match bytes {
            [] => return 0,
            [first, rest @ ..] if is_urgent => {
                match lane.sender.send_urgent(&lane.sight, &mut self.sent, *first) {
                    Ok(true) => lane.sender.send(&lane.sight, &mut self.sent, rest),
                    other => other.map(usize::from),
                }
            }
            bytes => lane.sender.send(&lane.sight, &mut self.sent, bytes),
        };
        self.is_broken |= sent.is_err();
        let count = usize::try_from(self.sent.total - before).expect("no more than was given");
        self.untold += count;
        count
    }

    /// Bytes that the application was given since it was told of any.
    pub(super) const fn untold(&self) -> usize {
        self.untold
    }

    /// Has an application that sleeps find what it was given.
    pub(super) fn tell(&mut self) {
        if self.untold > 0 {
            self.wake();
        }
    }

    /// Tells the application that there will be no more. False if there is no room for that yet.
    pub(super) fn finish(&mut self) -> bool {
        let lane = &mut self.lane;
        let is_done = lane.sender.finish(&lane.sight, &mut self.sent);
        self.wake();
        is_done.unwrap_or_else(|_| {
            self.is_broken = true;
            true
        })
    }

    /// Tells the application that the connection is broken off.
    pub(super) fn reset(&mut self, errno: u16) {
        if !self.is_reset {
            self.is_reset = true;
            self.lane.sender.reset(errno.clamp(1, 4095));
            self.ring();
        }
    }

    /// Has the application ring when there is something to receive, or room. True if there is already.
    pub(super) fn arm(&mut self, for_data: bool, for_room: bool) -> bool {
        let lane = &mut self.lane;
        let is_data = for_data && lane.receiver.arm(&lane.sight, &mut self.received);
        let is_room = for_room && lane.sender.arm(&lane.sight, &mut self.sent);
        is_data || is_room
    }

    /// How the application wants its bytes to be carried, if that is news. What the dead leave is not held up.
    pub(super) fn new_service(&mut self) -> Option<Service> {
        let mut service = self.lane.sight.service();
        if self.is_gone() {
            service.bytes_per_second = None;
        }
        let is_new = service != self.service;
        self.service = service;
        is_new.then_some(service)
    }

    /// Takes the rings that came, and notes whether the application is gone.
    pub(super) fn answer(&mut self, is_hung_up: bool) {
        self.is_gone |= is_hung_up;
        for _ in 0..RINGS_MAX {
            match recv(&self.bell, &mut [0_u8; 1], RecvFlags::DONTWAIT) {
                Ok((0, _)) if self.is_gone => return,
                Ok((0, _)) | Err(Errno::INTR) => {}
                // A ring is empty: whoever writes here speaks past the protocol.
                Ok(_) => self.is_broken = true,
                Err(_) => return,
            }
        }
    }

    /// Asks the kernel whether the application is gone.
    pub(super) fn look_gone(&mut self) -> bool {
        let mut watched = [PollFd::new(&self.bell, PollFlags::empty())];
        let zero = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        if poll(&mut watched, Some(&zero)).is_ok() {
            self.is_gone |= watched[0].revents().contains(PollFlags::HUP);
        }
        self.is_gone
    }

    /// Whether nobody takes what is sent any more: the application is gone, or breaks the protocol.
    pub(super) const fn is_gone(&self) -> bool {
        self.is_gone || self.is_broken
    }

    /// Bytes that came from the application, and went to it.
    pub(super) const fn totals(&self) -> (u64, u64) {
        (self.received.total, self.sent.total)
    }

    fn wake(&mut self) {
        self.untold = 0;
        let lane = &mut self.lane;
        if lane.sender.wake(&lane.sight, &mut self.sent) {
            self.ring();
        }
    }

    fn ring(&self) {
        // Full: rings are pending already. Gone: that will be found.
        let _ = send(&self.bell, &[], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

impl AsFd for End {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
