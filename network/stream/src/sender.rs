//! The sending half of a ring pair.

use millrace_window::{LINE, Mapped, Medium, Outgoing, WORD};

use crate::layout::{CLOSING, SERVICE, URGENT, WAITS_FOR_ROOM};
use crate::ring::{Ring, lines_of};
use crate::slot::{Kind, SLOT_BYTES_MAX};
use crate::{Error, ErrorKind, PeerState, Result, SendCursor, Service};

/// The sending half of a ring pair. One thread at a time may use it.
#[derive(Debug)]
pub struct Sender<M: Medium = Mapped> {
    pub(crate) outgoing: Outgoing<M>,
    pub(crate) ring: Ring<Kind>,
}

/// The parts of the ring: if the reader keeps up, the sender rewinds to the ring's start after one part, so that few
/// pages and cache lines are used. Until the reader has followed, no more than one part is free.
const STRIDES: u64 = 16;
/// The reader keeps up if it is behind by at most this part of a stride.
const NEAR: u64 = 16;

impl<M: Medium> Sender<M> {
    pub(crate) const fn new(outgoing: Outgoing<M>, ring: Ring<Kind>) -> Self {
        Self { outgoing, ring }
    }

    /// Sends as many of the bytes as there is room for, and returns their count. Each slot is visible to the peer at
    /// once. [`Sender::wake`] is due afterwards.
    ///
    /// # Errors
    /// [`ErrorKind::Protocol`] if the peer broke the protocol; [`ErrorKind::Ended`] after [`Sender::finish`].
    #[inline]
    pub fn send(
        &mut self,
        peer_state: &PeerState<M>,
        cursor: &mut SendCursor,
        bytes: &[u8],
    ) -> Result<usize> {
        self.begin(peer_state, cursor)?;
        let mut rest = bytes;
        while !rest.is_empty() {
            let wanted = rest.len().min(SLOT_BYTES_MAX);
            let lines = self.room(peer_state, cursor, lines_of(wanted))?;
            if lines == 0 {
                break;
            }
            let room = usize::try_from(lines).expect("a slot is small") * LINE - WORD;
            let (slice, tail) = rest.split_at(wanted.min(room));
            cursor.position =
                self.ring
                    .put(&mut self.outgoing, cursor.position, Kind::Data, slice)?;
            rest = tail;
        }
        let sent = bytes.len() - rest.len();
        cursor.total += sent as u64;
        Ok(sent)
    }

    /// Sends an urgent byte: it is announced to the peer ahead of earlier bytes. False if there is no room yet.
    /// [`Sender::wake`] is due afterwards.
    ///
    /// # Errors
    /// As [`Sender::send`].
    pub fn send_urgent(
        &mut self,
        peer_state: &PeerState<M>,
        cursor: &mut SendCursor,
        byte: u8,
    ) -> Result<bool> {
        if cursor.ended != 0 {
            return Err(Error::new(
                ErrorKind::Ended,
                "bytes were sent after the end",
            ));
        }
        if self.room(peer_state, cursor, 1)? == 0 {
            return Ok(false);
        }
        // Stored before the slot: the receiver of the slot finds the mark.
        self.store_word(URGENT, cursor.total + 1);
        cursor.position =
            self.ring
                .put(&mut self.outgoing, cursor.position, Kind::Urgent, &[byte])?;
        cursor.total += 1;
        Ok(true)
    }

    /// Sends the end behind all bytes. False if there is no room yet.
    ///
    /// # Errors
    /// As [`Sender::send`].
    pub fn finish(&mut self, peer_state: &PeerState<M>, cursor: &mut SendCursor) -> Result<bool> {
        if cursor.ended != 0 {
            return Ok(true);
        }
        if self.room(peer_state, cursor, 1)? == 0 {
            return Ok(false);
        }
        let total = cursor.total.to_le_bytes();
        cursor.position =
            self.ring
                .put(&mut self.outgoing, cursor.position, Kind::Finish, &total)?;
        cursor.ended = 1;
        Ok(true)
    }

    /// Whether the peer must be woken: it sleeps for data that was sent since the last call. True once for each sleep.
    #[must_use]
    #[inline]
    pub fn wake(&mut self, peer_state: &PeerState<M>, cursor: &mut SendCursor) -> bool {
        self.outgoing.settle();
        let waits = peer_state.waits_for_data();
        let is_new = waits != cursor.notified;
        cursor.notified = waits;
        is_new
    }

    /// Announces a sleep for room. True if room is there already and this side must not sleep.
    #[must_use]
    pub fn arm(&mut self, peer_state: &PeerState<M>, cursor: &mut SendCursor) -> bool {
        cursor.armed = cursor.armed.wrapping_add(1);
        self.store_word(WAITS_FOR_ROOM, cursor.armed);
        self.outgoing.settle();
        peer_state.has_room(cursor)
    }

    /// Announces that a process has closed its descriptor of this side.
    pub fn close(&mut self) {
        self.store_word(CLOSING, 1);
    }

    /// Resets the connection: the peer gets this errno, 1 to 4095, behind all sent bytes.
    pub fn reset(&mut self, errno: u16) {
        self.store_word(CLOSING, 2 | u64::from(errno) << 8);
    }

    /// Requests a service of the forwarder, which reads the request when it is notified.
    pub fn serve(&mut self, service: Service) {
        self.store_word(SERVICE, service.word());
    }

    fn store_word(&mut self, offset: usize, word: u64) {
        self.outgoing
            .slot(offset - WAITS_FOR_ROOM, LINE)
            .expect("the area was checked when the ring pair was made")
            .publish(word);
    }

    /// Prepares a send: rejects it after the end, and rewinds if due.
    #[inline]
    pub(crate) fn begin(
        &mut self,
        peer_state: &PeerState<M>,
        cursor: &mut SendCursor,
    ) -> Result<()> {
        if cursor.ended != 0 {
            return Err(Error::new(
                ErrorKind::Ended,
                "bytes were sent after the end",
            ));
        }
        if cursor.position / self.stride() != cursor.stride {
            self.rewind(peer_state, cursor)?;
        }
        Ok(())
    }

    /// Lines for a slot that wants `wanted` lines: 0 if there is no room.
    #[inline]
    fn room(&self, peer_state: &PeerState<M>, cursor: &mut SendCursor, wanted: u64) -> Result<u64> {
        let free = self.free(peer_state, cursor, wanted)?;
        Ok(free.min(self.ring.left(cursor.position)).min(wanted))
    }

    /// Free lines for slots of `wanted` lines; exact only below that.
    #[inline]
    pub(crate) fn free(
        &self,
        peer_state: &PeerState<M>,
        cursor: &mut SendCursor,
        wanted: u64,
    ) -> Result<u64> {
        let position = cursor.position;
        // The line behind the slot must be free, too.
        let (ring, pad) = (self.ring, cursor.pad);
        let free = |returned| {
            let out = position - returned;
            let here = (ring.lines() - 1).saturating_sub(out);
            if wanted == 1 {
                return here;
            }
            let slots = out - ring.padded(pad, returned);
            here.min((ring.inflight_max() - 1).saturating_sub(slots))
        };
        if free(cursor.returned) < wanted {
            let returned = peer_state.returned(cursor.returned, position)?;
            cursor.returned = returned;
        }
        Ok(free(cursor.returned))
    }

    /// Lines between two rewind checks.
    #[inline]
    const fn stride(&self) -> u64 {
        self.ring.lines() / STRIDES
    }

    /// Rewinds to the ring's start if the reader keeps up.
    #[cold]
    fn rewind(&mut self, peer_state: &PeerState<M>, cursor: &mut SendCursor) -> Result<()> {
        let stride = self.stride();
        if self.ring.index(cursor.position) >= stride {
            cursor.returned = peer_state.returned(cursor.returned, cursor.position)?;
            if cursor.position - cursor.returned <= stride / NEAR {
                self.pad(cursor)?;
            }
        }
        cursor.stride = cursor.position / stride;
        Ok(())
    }

    /// Publishes a pad: the rest of the ring and its first line are free.
    pub(crate) fn pad(&mut self, cursor: &mut SendCursor) -> Result<()> {
        cursor.pad = cursor.position;
        cursor.position = self
            .ring
            .put(&mut self.outgoing, cursor.position, Kind::Pad, &[])?;
        Ok(())
    }
}
