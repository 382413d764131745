//! What a side may look at.

use millrace_window::{Incoming, IncomingSlot, Mapped, Medium};

use crate::lane::{CLOSING, RETURNED, SERVICE, URGENT, WAITS_FOR_DATA, WAITS_FOR_ROOM};
use crate::ring::{Head, Ring};
use crate::slot::Kind;
use crate::{Error, ErrorKind, ReceiveCursor, Result, SendCursor, Service};

/// The peer's area, by loads alone: for any thread at any time. All of it is the peer's to choose.
#[derive(Debug)]
pub struct Sight<M: Medium = Mapped> {
    incoming: Incoming<M>,
    ring: Ring<Kind>,
}

/// With so many lines free there is one for a slot, and the one behind it.
const LINES_LEAST: u64 = 3;

/// What the peer says of its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// Nothing.
    Open,
    /// A holder of it has let go; whether it was the last, the kernel knows.
    Closed,
    /// The connection is broken off, for this reason: an errno, 1 to 4095.
    Reset(u16),
}

impl<M: Medium> Sight<M> {
    pub(crate) const fn new(incoming: Incoming<M>, ring: Ring<Kind>) -> Self {
        Self { incoming, ring }
    }

    /// Whether there is something to receive at a receiver's position: bytes or the end.
    #[must_use]
    #[inline]
    pub fn is_readable(&self, position: u64) -> bool {
        self.ring.holds(&self.incoming, position) || self.word(CLOSING) > 1
    }

    /// Whether there is room for a slot of common size in the own ring.
    #[must_use]
    #[inline]
    pub fn has_room(&self, cursor: &SendCursor) -> bool {
        let returned = self.word(RETURNED);
        let (lines, reach) = (self.ring.lines(), self.ring.reach());
        let out = cursor.position.wrapping_sub(returned);
        let slots = out.saturating_sub(self.ring.padded(cursor.pad, returned));
        // Behind a pad that the reader has not passed there may be none, whatever slots may take up.
        out.saturating_add(LINES_LEAST) <= lines && slots <= reach - reach / 4
    }

    /// The position behind the last slot that is there, of those from `position` on, which a receiver has not taken,
    /// at most a ring further; and whether that one says that the peer sends no more. The position moves with each
    /// arrival.
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

    /// What the peer says of its end.
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

    /// How the peer wants its bytes to be carried.
    #[must_use]
    pub fn service(&self) -> Service {
        Service::from_word(self.word(SERVICE))
    }

    /// Whether an urgent byte was announced that a receiver has neither passed nor taken.
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

    /// How many lines of the own ring were given back, for a sender that knew of `known` and is at `position`.
    ///
    /// # Errors
    /// [`ErrorKind::Protocol`] if that cannot be.
    #[inline]
    pub(crate) fn returned(&self, known: u64, position: u64) -> Result<u64> {
        let returned = self.word(RETURNED);
        if (known..=position).contains(&returned) {
            return Ok(returned);
        }
        Err(Error::new(
            ErrorKind::Protocol,
            "lines were given back that were not out",
        ))
    }

    /// Whether there is a slot at this position.
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
            .expect("the area was checked when the lane was made")
            .word()
    }
}
