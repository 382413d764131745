//! The state that the peer publishes in its area.

use millrace_window::{Incoming, IncomingSlot, Mapped, Medium};

use crate::layout::{CLOSING, RETURNED, SERVICE, URGENT, WAITS_FOR_DATA, WAITS_FOR_ROOM};
use crate::ring::{Head, Ring};
use crate::slot::Kind;
use crate::{Error, ErrorKind, ReceiveCursor, Result, SendCursor, Service};

/// The peer's area, read-only: for any thread at any time. All values are untrusted.
#[derive(Debug)]
pub struct PeerState<M: Medium = Mapped> {
    incoming: Incoming<M>,
    ring: Ring<Kind>,
}

/// Free lines that suffice for a slot and the line behind it.
const LINES_LEAST: u64 = 3;

/// The peer's announcement about its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// The peer has announced neither a close nor a reset.
    Open,
    /// A process has closed its descriptor of the end; `poll` shows whether it was the last.
    Closed,
    /// The connection was reset with this errno, 1 to 4095.
    Reset(u16),
}

impl<M: Medium> PeerState<M> {
    pub(crate) const fn new(incoming: Incoming<M>, ring: Ring<Kind>) -> Self {
        Self { incoming, ring }
    }

    /// Whether bytes or the end can be received at a receiver's position.
    #[must_use]
    #[inline]
    pub fn is_readable(&self, position: u64) -> bool {
        self.ring.holds(&self.incoming, position) || self.word(CLOSING) > 1
    }

    /// Whether this side's ring has room for a slot of common size.
    #[must_use]
    #[inline]
    pub fn has_room(&self, cursor: &SendCursor) -> bool {
        let returned = self.word(RETURNED);
        let (lines, inflight_max) = (self.ring.lines(), self.ring.inflight_max());
        let out = cursor.position.wrapping_sub(returned);
        let slots = out.saturating_sub(self.ring.padded(cursor.pad, returned));
        // Behind a pad that the reader has not passed there may be no room, whatever the slots take.
        out.saturating_add(LINES_LEAST) <= lines && slots <= inflight_max - inflight_max / 4
    }

    /// The position behind the last published slot from `position` on, at most one ring further, and whether that slot
    /// is the end of the stream. The position moves with each arrival.
    #[must_use]
    #[inline]
    pub fn arrived(&self, position: u64) -> (u64, bool) {
        let mut next = position;
        // A pad alone is no arrival.
        while next.wrapping_sub(position) < self.ring.lines()
            && self.ring.holds(&self.incoming, next)
        {
            let Ok(Some((head, _))) = self.ring.look(&self.incoming, next) else {
                break;
            };
            next = next.wrapping_add(head.lines);
            if head.kind == Kind::Finish {
                return (next, true);
            }
        }
        (next, false)
    }

    /// The peer's announcement about its end.
    #[must_use]
    #[inline]
    pub fn closing(&self) -> Closing {
        match self.word(CLOSING) {
            0 => Closing::Open,
            1 => Closing::Closed,
            word => {
                let errno = u16::try_from(word >> 8).unwrap_or(u16::MAX);
                Closing::Reset(errno.clamp(1, 4095))
            }
        }
    }

    /// The service that the peer requests for its bytes.
    #[must_use]
    pub fn service(&self) -> Service {
        Service::from_word(self.word(SERVICE))
    }

    /// Whether an announced urgent byte was neither passed nor taken by the receiver.
    #[must_use]
    #[inline]
    pub fn has_urgent(&self, cursor: &ReceiveCursor) -> bool {
        let place = self.urgent();
        place > cursor.total && place != cursor.urgent_taken()
    }

    /// Whether the next byte of the stream is the urgent one: `sockatmark(3)`.
    #[must_use]
    pub fn is_at_mark(&self, cursor: &ReceiveCursor) -> bool {
        self.urgent() == cursor.total + 1
    }

    /// The place of the last urgent byte, counted from 1; 0 is none.
    #[inline]
    pub(crate) fn urgent(&self) -> u64 {
        self.word(URGENT)
    }

    /// The returned lines of this side's ring, for a sender that knows of `known` and is at `position`.
    ///
    /// # Errors
    /// [`ErrorKind::Protocol`] if the value is outside of that range.
    #[inline]
    pub(crate) fn returned(&self, known: u64, position: u64) -> Result<u64> {
        let returned = self.word(RETURNED);
        if (known..=position).contains(&returned) {
            return Ok(returned);
        }
        Err(Error::new(
            ErrorKind::Protocol,
            "protocol error: the peer returned lines that were not in flight",
        ))
    }

    /// Whether a slot is published at this position.
    #[inline]
    pub(crate) fn is_there(&self, position: u64) -> bool {
        self.ring.is_set(&self.incoming, position)
    }

    #[inline]
    pub(crate) fn waits_for_data(&self) -> u64 {
        self.word(WAITS_FOR_DATA)
    }

    #[inline]
    pub(crate) fn waits_for_room(&self) -> u64 {
        self.word(WAITS_FOR_ROOM)
    }

    #[inline]
    pub(crate) fn look(&self, position: u64) -> Result<Option<(Head<Kind>, IncomingSlot<'_, M>)>> {
        self.ring.look(&self.incoming, position)
    }

    pub(crate) const fn incoming(&self) -> &Incoming<M> {
        &self.incoming
    }

    #[inline]
    fn word(&self, offset: usize) -> u64 {
        self.incoming
            .poll(offset)
            .expect("the area was checked when the ring pair was made")
            .word()
    }
}
