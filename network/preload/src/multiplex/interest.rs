//! The interest of one set in one descriptor.

use std::os::fd::RawFd;

use crate::readiness::STATE;

use crate::readiness::{ALWAYS, EDGE, EXCLUSIVE, NEWS, ONCE, ROOM, Ready};

/// Result of polling a source. The progress was read before the bits, so that an event between the two is reported
/// again, and none is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) progress: (u64, u64),
    pub(crate) ready: Ready,
}

/// An interest and the state of its edge.
///
/// An edge is: a bit that was clear at the last look or not reported since, or progress since the last report in a
/// ready direction of interest. As in the kernel, a report then has all ready bits of interest.
#[derive(Debug, Clone)]
pub(crate) struct Interest {
    pub(crate) fd: RawFd,
    pub(crate) data: u64,
    /// As the program gave them, with the bits that are always reported.
    asked: u32,
    /// False after a report of a one-shot interest: no event is reported, not even an error.
    enabled: bool,
    reported: Ready,
    seen: (u64, u64),
}

impl Interest {
    pub(crate) fn new(fd: RawFd, events: u32, data: u64) -> Self {
        Self {
            fd,
            data,
            asked: events | ALWAYS,
            enabled: true,
            reported: 0,
            seen: (0, 0),
        }
    }

    /// Replaces events and data: ready bits are reported again.
    pub(crate) fn modify(&mut self, events: u32, data: u64) {
        *self = Self::new(self.fd, events, data);
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled
    }

    pub(crate) fn is_edge(&self) -> bool {
        self.asked & EDGE != 0
    }

    pub(crate) fn is_exclusive(&self) -> bool {
        self.asked & EXCLUSIVE != 0
    }

    pub(crate) fn is_once(&self) -> bool {
        self.asked & ONCE != 0
    }

    /// Events that the program asked for, with those that are always reported.
    pub(crate) fn asked(&self) -> u32 {
        self.asked
    }

    /// Bits to be reported, or 0; the interest keeps its state.
    pub(crate) fn offer(&mut self, look: Look) -> Ready {
        if !self.enabled {
            return 0;
        }
        let ready = look.ready & self.asked;
        if !self.is_edge() {
            return ready;
        }
        self.reported &= ready;
        // As in the kernel: an arrival is an edge for an interest in it, even if the bytes were read since.
        let arrived = self.asked & NEWS != 0 && look.progress.0 != self.seen.0;
        let freed = ready & ROOM != 0 && look.progress.1 != self.seen.1;
        // The kernel wakes all waiters at the end of a direction, whatever they wait for.
        let has_changed = look.progress.1 >> STATE != self.seen.1 >> STATE;
        let is_news = ready & !self.reported != 0 || arrived || freed || has_changed;
        if is_news { ready } else { 0 }
    }

    /// Notes that `ready`, which came of `look`, is reported.
    pub(crate) fn take(&mut self, look: Look, ready: Ready) {
        self.reported = ready;
        self.seen = look.progress;
        if self.is_once() {
            self.enabled = false;
        }
    }

    /// Events for which the peer is to notify. An edge-triggered interest does not wait for room that is there: its
    /// next edge begins with a send that finds too little, which [`Sets::broadcast`](super::sets::Sets::broadcast)
    /// announces.
    pub(crate) fn awaits(&self, ready: Ready) -> u32 {
        if !self.enabled {
            0
        } else if self.is_edge() && ready & ROOM != 0 {
            self.asked & !ROOM
        } else {
            self.asked
        }
    }
}
