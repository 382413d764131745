//! Receiving without a copy: bytes are read where the peer has stored them, then given back.

use std::ops::ControlFlow;

use millrace_window::{IncomingSlot, Mapped, Medium, WORD};

use crate::receiver::{Urgency, reset, taken_of};
use crate::ring;
use crate::slot::Kind;
use crate::{End, ReceiveCursor, Received, Receiver, Result, Sight};

/// Bytes of the stream that lie behind each other in the peer's ring.
///
/// The peer can change them at any time. There is no reference to them: what is looked at is a copy.
#[derive(Debug)]
pub struct Piece<'slot, M: Medium = Mapped> {
    slot: &'slot IncomingSlot<'slot, M>,
    /// Bytes of the slot before it.
    start: usize,
    length: usize,
}

impl<M: Medium> Piece<'_, M> {
    /// How many bytes there are: one at least.
    #[must_use]
    pub const fn length(&self) -> usize {
        self.length
    }

    /// Copies the bytes from `offset` on, as many as `into` has room for, which must not be more than there are.
    ///
    /// # Errors
    /// What the window says, if that lies outside of the ring.
    #[inline]
    pub fn copy(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        ring::copy(self.slot, self.start.saturating_add(offset), into)
    }
}

impl Piece<'_, Mapped> {
    /// Where the bytes are.
    ///
    /// Whoever loads from there does so while the lane exists; makes no reference to the bytes; and believes nothing
    /// that it did not copy first. Once they are received, by whatever call, they are others.
    ///
    /// # Errors
    /// What the window says, if that lies outside of the ring.
    pub fn address(&self) -> Result<*const u8> {
        let payload = self.slot.payload(WORD, self.start + self.length)?;
        Ok(payload.cast::<u8>().as_ptr().wrapping_add(self.start))
    }
}

impl<M: Medium> Receiver<M> {
    /// Shows up to `size` bytes where they lie, piece by piece, until there are no more or `visit` breaks, and leaves
    /// them. Returns how many were shown.
    ///
    /// # Errors
    /// As [`Receiver::receive`], and what `visit` says.
    pub fn borrow(
        &self,
        sight: &Sight<M>,
        cursor: &ReceiveCursor,
        size: usize,
        mut visit: impl FnMut(Piece<'_, M>) -> Result<ControlFlow<()>>,
    ) -> Result<Received> {
        let (mut bytes, mut end, mut place) = (0, None, *cursor);
        self.ring
            .walk(sight.incoming(), cursor.position, |head, slot| {
                if bytes == size {
                    return Ok(ControlFlow::Break(()));
                }
                if head.kind == Kind::Finish {
                    end = Some(End::Finished);
                    return Ok(ControlFlow::Break(()));
                }
                if head.kind == Kind::Urgent {
                    match self.urgency(sight, &place) {
                        Urgency::Skipped | Urgency::Marked if bytes > 0 => {
                            return Ok(ControlFlow::Break(()));
                        }
                        Urgency::Skipped => {
                            place.total += 1;
                            return Ok(ControlFlow::Continue(()));
                        }
                        Urgency::Marked | Urgency::Past => {}
                    }
                }
                let start = taken_of(&place, head)?;
                let length = (head.length - start).min(size - bytes);
                bytes += length;
                place.total += length as u64;
                place.taken = 0;
                visit(Piece {
                    slot,
                    start,
                    length,
                })
            })?;
        if bytes == 0 && end.is_none() && size > 0 {
            end = reset(sight, cursor.position);
        }
        let end = if bytes == 0 { end } else { None };
        Ok(Received { bytes, end })
    }

    /// Receives up to `size` bytes, as many as there are, without a copy. [`Receiver::wake`] is to be asked then.
    ///
    /// # Errors
    /// As [`Receiver::receive`].
    pub fn consume(
        &mut self,
        sight: &Sight<M>,
        cursor: &mut ReceiveCursor,
        size: usize,
    ) -> Result<Received> {
        self.take(sight, cursor, size, |_, _, _| Ok(()))
    }
}
