//! A connection as a pollable source.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use millrace_stream::{Closing, End, PeerState};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use crate::entry::Entry;
use crate::errno::Outcome;
use crate::lock::Guard;
use crate::notify::notify_peer;
use crate::private_fds;
use crate::readiness::{ERR, HUP, IN, OUT, PRI, RDHUP, RDNORM, Ready, STATE, Source, WRNORM};
use crate::slab::{Direction, Record, flag};
use crate::stream_end::{CONNRESET, finish, reset};

/// Number of wake-ups that are read at once. Further ones of a peer are read next time.
const WAKEUPS_MAX: u32 = 64;
/// Contents of one packet of a wake-up fd.
enum Taken {
    /// A wake-up, or the end of the socket.
    Wakeup,
    /// Bytes, or an interruption by a signal.
    Other,
    Nothing,
    Error,
}

/// Whether a sender has room, within the limit that `SO_SNDBUF` sets.
pub(crate) fn has_room(record: &Record, peer_state: &PeerState) -> bool {
    let mut cursor = record.send.send_cursor();
    cursor.position = cursor.position.wrapping_add(record.options.slack());
    peer_state.has_room(&cursor)
}

impl Source for Entry {
    fn ready(&self) -> Ready {
        let (Some(record), Some(peer_state)) = (self.record(), self.peer_state()) else {
            return 0;
        };
        if peer_state.closing() != Closing::Open && !record.has(flag::HUNG_UP) {
            self.check_peer();
        }
        let flags = record.flags.load(Ordering::Relaxed);
        let is_gone = flags & (flag::HUNG_UP | flag::RESET) != 0
            || matches!(peer_state.closing(), Closing::Reset(_));
        let mut ready = 0;
        if record.receive.has_urgent(peer_state) {
            ready |= PRI;
        }
        if flags & (flag::END_SEEN | flag::RECEIVE_SHUT) != 0 || is_gone {
            ready |= IN | RDNORM | RDHUP;
        } else if peer_state.is_readable(record.receive.position()) {
            self.scan_arrivals(record, peer_state);
            let low_water = record.options.low_water.load(Ordering::Relaxed);
            if self.connection.is_finished.load(Ordering::Relaxed) {
                ready |= IN | RDNORM | RDHUP;
            } else if low_water <= 1 || self.reaches(record, peer_state, low_water) {
                ready |= IN | RDNORM;
            }
        }
        if flags & flag::SEND_SHUT != 0 || is_gone || has_room(record, peer_state) {
            ready |= OUT | WRNORM;
        }
        let is_broken =
            flags & flag::RESET != 0 || matches!(peer_state.closing(), Closing::Reset(_));
        if is_broken || flags & flag::SEND_SHUT != 0 && ready & RDHUP != 0 {
            ready |= HUP;
        }
        if record.error.load(Ordering::Relaxed) != 0 || is_broken && flags & flag::RESET == 0 {
            ready |= ERR;
        }
        ready
    }

    fn arm(&self, events: u32) -> Ready {
        if let (Some(record), Some(peer_state)) = (self.record(), self.peer_state()) {
            if record.has(flag::FINISH_WAITS) {
                // It fails only in a signal handler above a send: then the next waiter does it.
                let _unsaid = finish(self, record);
            }
            // A process that sent its end is notified of the peer's, whatever it waits for.
            if events & (IN | RDNORM | RDHUP) != 0 || record.has(flag::SEND_SHUT) {
                self.arm_receiver(record);
            }
            if events & (OUT | WRNORM) != 0 {
                self.arm_sender(record, peer_state);
            }
        }
        self.ready()
    }

    fn wakeup_fd(&self) -> RawFd {
        Self::wakeup_fd(self)
    }

    fn drain(&self) -> bool {
        let wakeup_fd = Self::wakeup_fd(self);
        if wakeup_fd < 0 {
            return true;
        }
        for taken in 0..WAKEUPS_MAX {
            match self.take_packet(wakeup_fd) {
                // A wake-up and the end look alike; no peer has many wake-ups in flight.
                Taken::Wakeup if taken > 0 && self.check_peer() => return true,
                Taken::Wakeup | Taken::Other => {}
                Taken::Nothing => break,
                Taken::Error => return self.check_peer(),
            }
        }
        self.record()
            .is_some_and(|record| record.has(flag::HUNG_UP))
    }

    fn progress(&self) -> (u64, u64) {
        let stalls = self.connection.stalls.load(Ordering::Relaxed);
        let (Some(record), Some(peer_state)) = (self.record(), self.peer_state()) else {
            return (0, stalls);
        };
        let arrived = self.scan_arrivals(record, peer_state);
        let is_over = record.has(flag::HUNG_UP | flag::RESET);
        let has_ended = is_over || self.connection.is_finished.load(Ordering::Relaxed);
        let shut = record.flags.load(Ordering::Relaxed) & (flag::SEND_SHUT | flag::RECEIVE_SHUT);
        let shutdowns = self.connection.shutdowns.load(Ordering::Relaxed);
        let state = u64::from(shut) | u64::from(has_ended) << 2 | u64::from(shutdowns & 0x1f) << 3;
        (
            arrived.wrapping_add(u64::from(is_over)),
            stalls & ((1 << STATE) - 1) | state << STATE,
        )
    }
}

impl Entry {
    /// Whether the connection was reset, or both sides have sent their ends: then it has no peer any more.
    pub(crate) fn is_closed(&self) -> bool {
        let ready = self.ready();
        let (Some(record), Some(peer_state)) = (self.record(), self.peer_state()) else {
            return true;
        };
        self.scan_arrivals(record, peer_state);
        let has_finished = record.has(flag::HUNG_UP | flag::END_SEEN)
            || self.connection.is_finished.load(Ordering::Relaxed);
        let is_broken =
            record.has(flag::RESET) || matches!(peer_state.closing(), Closing::Reset(_));
        ready & HUP != 0 && (is_broken || has_finished)
    }

    /// Reads one wake-up, after the kernel reported the wake-up fd readable; further ones make the next sleep short.
    /// Edge-triggered waiters must read all.
    pub(crate) fn take_wakeup(&self) {
        let wakeup_fd = Self::wakeup_fd(self);
        if wakeup_fd >= 0 {
            let _taken = self.take_packet(wakeup_fd);
        }
    }

    fn take_packet(&self, wakeup_fd: RawFd) -> Taken {
        let mut byte = [0];
        match rustix::net::recv(
            private_fds::borrow(wakeup_fd),
            &mut byte,
            RecvFlags::DONTWAIT,
        ) {
            Ok((_, 0)) => {
                self.connection.wakeups.fetch_add(1, Ordering::Relaxed);
                Taken::Wakeup
            }
            Ok(_) => {
                self.abort();
                Taken::Other
            }
            Err(Errno::AGAIN) => Taken::Nothing,
            Err(Errno::INTR) => Taken::Other,
            Err(_) => Taken::Error,
        }
    }

    /// Whether there are as many bytes as `SO_RCVLOWAT` asks for.
    #[cold]
    fn reaches(&self, record: &Record, peer_state: &PeerState, low_water: u32) -> bool {
        let Ok(_guard) = record.receive.take() else {
            return true;
        };
        // SAFETY: the lock is held, and the caller has pinned the entry.
        unsafe { self.receiver() }.is_none_or(|receiver| {
            receiver.pending(peer_state, &record.receive.receive_cursor()) >= low_water as usize
        })
    }

    /// Up to where there are arrivals, and notes whether they end there.
    fn scan_arrivals(&self, record: &Record, peer_state: &PeerState) -> u64 {
        // Earlier lines were scanned, or read since.
        let known = self.connection.arrived.load(Ordering::Relaxed);
        if self.connection.is_finished.load(Ordering::Relaxed) {
            return known;
        }
        let (arrived, is_finished) = peer_state.arrived(known.max(record.receive.position()));
        self.connection
            .arrived
            .fetch_max(arrived, Ordering::Relaxed);
        if is_finished {
            self.connection.is_finished.store(true, Ordering::Relaxed);
        }
        arrived
    }

    /// Asks the kernel whether any process still has the peer's end, and records a hang-up.
    #[cold]
    pub(crate) fn check_peer(&self) -> bool {
        let Some(record) = self.record() else {
            return true;
        };
        if record.has(flag::HUNG_UP) {
            return true;
        }
        let wakeup_fd = Self::wakeup_fd(self);
        if wakeup_fd < 0 {
            return true;
        }
        let wakeup_fd = private_fds::borrow(wakeup_fd);
        let mut fds = [PollFd::new(&wakeup_fd, PollFlags::IN | PollFlags::RDHUP)];
        let asked = rustix::event::poll(&mut fds, Some(&rustix::event::Timespec::default()));
        // A wake-up fd that was shut down is of no use any more.
        let gone = PollFlags::HUP | PollFlags::RDHUP;
        let is_gone = asked.is_ok() && fds[0].revents().intersects(gone);
        if is_gone {
            // A packet with bytes lies behind wake-ups, which look like the end from here on.
            if rustix::io::ioctl_fionread(wakeup_fd).is_ok_and(|bytes| bytes > 0) {
                self.mark_corrupt();
            }
            record.set(flag::HUNG_UP);
        }
        is_gone
    }

    /// Aborts the connection, for both sides.
    #[cold]
    fn abort(&self) {
        self.mark_corrupt();
        if let Some(record) = self.record() {
            reset(self, record, CONNRESET);
            notify_peer(self);
        }
    }

    /// Marks a connection as corrupt, after a process without this library wrote to the wake-up fd: the bytes are lost,
    /// and so is the connection.
    #[cold]
    pub(crate) fn mark_corrupt(&self) {
        if let Some(record) = self.record() {
            record
                .error
                .store(libc::ECONNRESET.unsigned_abs(), Ordering::Relaxed);
            record.set(flag::RESET | flag::END_SEEN);
        }
    }

    /// Takes the lock of a direction of a connection that may be closed meanwhile. A poisoned direction aborts the
    /// connection.
    ///
    /// # Errors
    /// `EAGAIN` in a signal handler above the lock's owner; `ECONNRESET` if the direction is poisoned.
    #[inline]
    pub(crate) fn take_direction<'r>(
        &'static self,
        fd: RawFd,
        direction: &'r Direction,
    ) -> Outcome<Guard<'r>> {
        let taken = direction.take();
        if taken.is_err() {
            self.held(fd, || {
                if let Some(record) = self.record() {
                    self.abort_if_poisoned(record);
                }
                Ok(())
            })?;
        }
        taken
    }

    /// Aborts the connection if one of its directions is poisoned. The entry is pinned.
    #[cold]
    fn abort_if_poisoned(&self, record: &Record) {
        let is_poisoned = record.send.is_poisoned() || record.receive.is_poisoned();
        if is_poisoned && !record.has(flag::RESET) {
            self.abort();
        }
    }

    fn arm_sender(&self, record: &Record, peer_state: &PeerState) {
        let Ok(_guard) = record.send.take() else {
            return self.abort_if_poisoned(record);
        };
        // SAFETY: the lock is held, and the caller has pinned the entry.
        if let Some(sender) = unsafe { self.sender() } {
            let mut cursor = record.send.send_cursor();
            let _has_room = sender.arm(peer_state, &mut cursor);
            record.send.set_send_cursor(&cursor);
        }
    }

    fn arm_receiver(&self, record: &Record) {
        let Ok(_guard) = record.receive.take() else {
            return self.abort_if_poisoned(record);
        };
        let Some(peer_state) = self.peer_state() else {
            return;
        };
        // SAFETY: the lock is held, and the caller has pinned the entry.
        let Some(receiver) = (unsafe { self.receiver() }) else {
            return;
        };
        let mut cursor = record.receive.receive_cursor();
        if receiver.arm(peer_state, &mut cursor) {
            let next = receiver.peek(peer_state, &cursor, &mut [0]);
            if next.is_ok_and(|next| next.end == Some(End::Finished)) {
                record.set(flag::END_SEEN);
            }
        }
        record.receive.set_receive_cursor(&cursor);
    }
}
