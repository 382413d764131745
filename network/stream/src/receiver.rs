//! The receiving half of a ring pair.

use std::mem;
use std::ops::{ControlFlow, Range};

use millrace_window::{IncomingSlot, LINE, Mapped, Medium, Outgoing};

use crate::layout::{RETURNED, WAITS_FOR_DATA};
use crate::mutation_point::MutationPoint;
use crate::ring::{self, Head, Ring};
use crate::slot::Kind;
use crate::{Closing, Error, ErrorKind, PeerState, ReceiveCursor, Result};

/// The receiving half of a ring pair. One thread at a time may use it.
#[derive(Debug)]
pub struct Receiver<M: Medium = Mapped> {
    outgoing: Outgoing<M>,
    pub(crate) ring: Ring<Kind>,
}

/// The state of an urgent byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgent {
    /// No urgent byte: none was sent, it was taken or passed, or it stays inline.
    Nothing,
    /// It is announced and has not arrived yet.
    Announced,
    /// The value of the urgent byte, which has arrived.
    Byte(u8),
}

/// The result of a receive call, without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The count of bytes received by this call.
    pub bytes: usize,
    /// The end of the stream: only with no bytes, and at every call from then on.
    pub end: Option<End>,
}

/// The way in which a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The peer has finished, and all bytes were received.
    Finished,
    /// The peer reset the connection with this errno, 1 to 4095.
    Reset(u16),
}

/// The treatment of an urgent byte that is next in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UrgentPlacement {
    /// A newer one exists: it is an ordinary byte.
    Ordinary,
    /// It stays inline, and a receive ends before it.
    Inline,
    /// It is skipped, as it is read out of band.
    OutOfBand,
}

/// The least lines that are returned from a drained ring.
const CREDIT_RETURN_MIN: u64 = 16;

impl<M: Medium> Receiver<M> {
    pub(crate) const fn new(outgoing: Outgoing<M>, ring: Ring<Kind>) -> Self {
        Self { outgoing, ring }
    }

    /// Receives bytes into `into`, as far as they are available and fit. [`Receiver::wake`] is due afterwards.
    ///
    /// # Errors
    /// [`ErrorKind::Protocol`] if the peer broke the protocol. Bytes that this call has moved are lost, as is the
    /// connection.
    #[inline]
    pub fn receive(
        &mut self,
        peer_state: &PeerState<M>,
        cursor: &mut ReceiveCursor,
        into: &mut [u8],
    ) -> Result<Received> {
        self.take(peer_state, cursor, into.len(), |slot, start, part| {
            ring::copy(slot, start, &mut into[part])
        })
    }

    /// Receives up to `size` bytes. For each slot, `copy` gets the offset in the slot and the range of the received
    /// bytes.
    #[inline]
    pub(crate) fn take(
        &mut self,
        peer_state: &PeerState<M>,
        cursor: &mut ReceiveCursor,
        size: usize,
        mut copy: impl FnMut(&IncomingSlot<'_, M>, usize, Range<usize>) -> Result<()>,
    ) -> Result<Received> {
        let mut bytes = 0;
        let mut end = None;
        let mut drained = false;
        // A peer that publishes as fast as this loop reads must not keep it running.
        let mut pads = 0;
        while bytes < size && pads < 3 {
            let Some((head, slot)) = peer_state.look(cursor.position)? else {
                drained = true;
                break;
            };
            match head.kind {
                Kind::Pad => {
                    cursor.position += head.lines;
                    pads += 1;
                }
                Kind::Data => {
                    let taken = slot_bytes_taken(cursor, head)?;
                    let count = (head.length - taken).min(size - bytes);
                    copy(&slot, taken, bytes..bytes + count)?;
                    bytes += count;
                    cursor.total += count as u64;
                    if taken + count == head.length {
                        cursor.position += head.lines;
                        cursor.taken = 0;
                    } else {
                        cursor.taken = (taken + count) as u64;
                    }
                }
                Kind::Urgent => match self.urgency(peer_state, cursor) {
                    // A receive ends before the mark.
                    UrgentPlacement::OutOfBand | UrgentPlacement::Inline if bytes > 0 => break,
                    UrgentPlacement::OutOfBand => {
                        cursor.total += 1;
                        cursor.position += head.lines;
                        pads += 1;
                    }
                    UrgentPlacement::Inline | UrgentPlacement::Ordinary => {
                        copy(&slot, 0, bytes..bytes + 1)?;
                        bytes += 1;
                        cursor.total += 1;
                        cursor.position += head.lines;
                    }
                },
                Kind::Finish => {
                    let mut total = [0; 8];
                    ring::copy(&slot, 0, &mut total)?;
                    end = Some(finish(u64::from_le_bytes(total), cursor.total)?);
                    break;
                }
            }
        }
        if drained && bytes == 0 {
            end = reset(peer_state, cursor.position);
        }
        // A receive of exactly the available bytes drains the ring, too.
        drained |= bytes == size && cursor.taken == 0 && !peer_state.is_there(cursor.position);
        self.return_credit(cursor, drained);
        let end = if bytes == 0 { end } else { None };
        Ok(Received { bytes, end })
    }

    /// Copies available bytes, and leaves them in the ring.
    ///
    /// # Errors
    /// As [`Receiver::receive`].
    pub fn peek(
        &self,
        peer_state: &PeerState<M>,
        cursor: &ReceiveCursor,
        into: &mut [u8],
    ) -> Result<Received> {
        let mut rest = into;
        self.borrow(peer_state, cursor, rest.len(), |piece| {
            let (part, tail) = mem::take(&mut rest).split_at_mut(piece.length());
            piece.copy(0, part)?;
            rest = tail;
            Ok(ControlFlow::Continue(()))
        })
    }

    /// The count of bytes that can be received.
    #[must_use]
    pub fn pending(&self, peer_state: &PeerState<M>, cursor: &ReceiveCursor) -> usize {
        let mut bytes = 0usize;
        let walked = self
            .ring
            .walk(peer_state.incoming(), cursor.position, |head, _| {
                match head.kind {
                    Kind::Data => bytes += head.length,
                    Kind::Urgent if cursor.is_urgent_inline() => bytes += 1,
                    Kind::Urgent | Kind::Finish | Kind::Pad => {}
                }
                Ok(ControlFlow::Continue(()))
            });
        // Bytes before a violation can still be received.
        drop(walked);
        bytes.saturating_sub(usize::try_from(cursor.taken).unwrap_or(usize::MAX))
    }

    /// The urgent byte, wherever it is. It is taken out of band, unless `leave` is set.
    ///
    /// # Errors
    /// As [`Receiver::receive`].
    pub fn urgent(
        &self,
        peer_state: &PeerState<M>,
        cursor: &mut ReceiveCursor,
        leave: bool,
    ) -> Result<Urgent> {
        let wanted = peer_state.urgent();
        if cursor.is_urgent_inline() || !peer_state.has_urgent(cursor) {
            return Ok(Urgent::Nothing);
        }
        let mut found = Urgent::Announced;
        let mut place = cursor.total.saturating_sub(cursor.taken);
        self.ring
            .walk(peer_state.incoming(), cursor.position, |head, slot| {
                place += head.length as u64;
                if head.kind != Kind::Urgent || place != wanted {
                    return Ok(ControlFlow::Continue(()));
                }
                let mut byte = [0];
                ring::copy(slot, 0, &mut byte)?;
                found = Urgent::Byte(byte[0]);
                Ok(ControlFlow::Break(()))
            })?;
        if !leave && matches!(found, Urgent::Byte(_)) {
            cursor.urgent = wanted << 1;
        }
        Ok(found)
    }

    pub(crate) fn urgency(
        &self,
        peer_state: &PeerState<M>,
        cursor: &ReceiveCursor,
    ) -> UrgentPlacement {
        if !peer_state.is_at_mark(cursor) {
            UrgentPlacement::Ordinary
        } else if cursor.is_urgent_inline() {
            UrgentPlacement::Inline
        } else {
            UrgentPlacement::OutOfBand
        }
    }

    /// Whether the peer must be woken: it sleeps for room that was made since the last call. True once for each sleep.
    #[must_use]
    #[inline]
    pub fn wake(&mut self, peer_state: &PeerState<M>, cursor: &mut ReceiveCursor) -> bool {
        if cursor.wake_pending == 0 {
            return false;
        }
        cursor.wake_pending = 0;
        self.outgoing.settle();
        let waits = peer_state.waits_for_room();
        let is_new = waits != cursor.notified;
        cursor.notified = waits;
        is_new
    }

    /// Announces a sleep for data. True if data is there already and this side must not sleep.
    #[must_use]
    pub fn arm(&mut self, peer_state: &PeerState<M>, cursor: &mut ReceiveCursor) -> bool {
        cursor.armed = cursor.armed.wrapping_add(1);
        self.store_word(WAITS_FOR_DATA, cursor.armed);
        self.outgoing.settle();
        peer_state.is_readable(cursor.position)
    }

    /// Returns credit when half of `inflight_max` lines is pending, or when the ring was drained.
    #[inline]
    fn return_credit(&mut self, cursor: &mut ReceiveCursor, drained: bool) {
        let pending = cursor.position - cursor.credited;
        let is_due =
            pending >= self.ring.inflight_max() / 2 || drained && pending >= CREDIT_RETURN_MIN;
        if is_due && MutationPoint::GivenBack.is_enabled() {
            self.store_word(RETURNED, cursor.position);
            cursor.credited = cursor.position;
            cursor.wake_pending = 1;
        }
    }

    fn store_word(&mut self, offset: usize, word: u64) {
        self.outgoing
            .slot(offset, LINE)
            .expect("the area was checked when the ring pair was made")
            .publish(word);
    }
}

/// Bytes already received of the slot at the cursor.
pub(crate) fn slot_bytes_taken(cursor: &ReceiveCursor, head: Head<Kind>) -> Result<usize> {
    usize::try_from(cursor.taken)
        .ok()
        .filter(|taken| *taken < head.length)
        .ok_or(Error::new(
            ErrorKind::Protocol,
            "a slot changed while it was received",
        ))
}

fn finish(said: u64, received: u64) -> Result<End> {
    if said == received {
        return Ok(End::Finished);
    }
    Err(Error::new(
        ErrorKind::Protocol,
        "protocol error: the total of the end differs from the received bytes",
    ))
}

/// The reset of a stream that has no slot at `position`.
pub(crate) fn reset<M: Medium>(peer_state: &PeerState<M>, position: u64) -> Option<End> {
    let Closing::Reset(errno) = peer_state.closing() else {
        return None;
    };
    // Bytes sent before the reset were published before it.
    let is_there = matches!(peer_state.look(position), Ok(Some(_)));
    (!is_there).then_some(End::Reset(errno))
}
