//! Receiving without a copy: bytes are read where the peer stored them, then returned.

use std::ops::ControlFlow;

use millrace_window::{IncomingSlot, Mapped, Medium, WORD};

use crate::receiver::{UrgentPlacement, reset, slot_bytes_taken};
use crate::ring;
use crate::slot::Kind;
use crate::{End, PeerState, ReceiveCursor, Received, Receiver, Result};

/// Consecutive bytes of the stream in the peer's ring.
///
/// The peer can change them at any time. The API gives no reference to them, only copies.
#[derive(Debug)]
pub struct Piece<'slot, M: Medium = Mapped> {
    slot: &'slot IncomingSlot<'slot, M>,
    /// Bytes of the slot before the first one.
    start: usize,
    length: usize,
}

impl<M: Medium> Piece<'_, M> {
    /// The count of bytes, at least one.
    #[must_use]
    pub const fn length(&self) -> usize {
        self.length
    }

    /// Copies bytes from `offset` on. `into` must not be longer than the rest.
    ///
    /// # Errors
    /// [`ErrorKind::Window`](crate::ErrorKind::Window) if the range lies outside of the ring.
    #[inline]
    pub fn copy(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        ring::copy(self.slot, self.start.saturating_add(offset), into)
    }
}

impl Piece<'_, Mapped> {
    /// The address of the bytes.
    ///
    /// The caller must load from it only while the ring pair exists, must create no reference to the bytes, and must
    /// not trust a value before it has copied it. After the bytes are received by any call, the peer reuses the memory.
    ///
    /// # Errors
    /// [`ErrorKind::Window`](crate::ErrorKind::Window) if the range lies outside of the ring.
    pub fn address(&self) -> Result<*const u8> {
        let payload = self.slot.payload(WORD, self.start + self.length)?;
        Ok(payload.cast::<u8>().as_ptr().wrapping_add(self.start))
    }
}

impl<M: Medium> Receiver<M> {
    /// Visits up to `size` received bytes in place, until none are left or `visit` breaks. The bytes stay in the ring.
    /// Returns the count of visited bytes.
    ///
    /// # Errors
    /// As [`Receiver::receive`], and the errors of `visit`.
    pub fn borrow(
        &self,
        peer_state: &PeerState<M>,
        cursor: &ReceiveCursor,
        size: usize,
        mut visit: impl FnMut(Piece<'_, M>) -> Result<ControlFlow<()>>,
    ) -> Result<Received> {
        let (mut bytes, mut end, mut place) = (0, None, *cursor);
        self.ring
            .walk(peer_state.incoming(), cursor.position, |head, slot| {
                if bytes == size {
                    return Ok(ControlFlow::Break(()));
                }
                if head.kind == Kind::Finish {
                    end = Some(End::Finished);
                    return Ok(ControlFlow::Break(()));
                }
                if head.kind == Kind::Urgent {
                    match self.urgency(peer_state, &place) {
                        UrgentPlacement::OutOfBand | UrgentPlacement::Inline if bytes > 0 => {
                            return Ok(ControlFlow::Break(()));
                        }
                        UrgentPlacement::OutOfBand => {
                            place.total += 1;
                            return Ok(ControlFlow::Continue(()));
                        }
                        UrgentPlacement::Inline | UrgentPlacement::Ordinary => {}
                    }
                }
                let start = slot_bytes_taken(&place, head)?;
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
            end = reset(peer_state, cursor.position);
        }
        let end = if bytes == 0 { end } else { None };
        Ok(Received { bytes, end })
    }

    /// Receives up to `size` bytes without a copy. [`Receiver::wake`] is due afterwards.
    ///
    /// # Errors
    /// As [`Receiver::receive`].
    pub fn consume(
        &mut self,
        peer_state: &PeerState<M>,
        cursor: &mut ReceiveCursor,
        size: usize,
    ) -> Result<Received> {
        self.take(peer_state, cursor, size, |_, _, _| Ok(()))
    }
}
