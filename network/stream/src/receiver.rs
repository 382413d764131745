//! What is stored when a side receives.

use std::mem;
use std::ops::{ControlFlow, Range};

use millrace_window::{IncomingSlot, LINE, Mapped, Medium, Outgoing};

use crate::lane::{RETURNED, WAITS_FOR_DATA};
use crate::ring::{self, Head, Ring};
use crate::slot::Kind;
use crate::step::Step;
use crate::{Closing, Error, ErrorKind, Result, Sight};

/// The half of a lane that receives. One thread at a time has it.
#[derive(Debug)]
pub struct Receiver<M: Medium = Mapped> {
    outgoing: Outgoing<M>,
    pub(crate) ring: Ring<Kind>,
}

/// How far a receiver has got. The default is the start of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveCursor {
    /// Lines that were taken.
    pub position: u64,
    /// Bytes that were taken of the slot there.
    pub taken: u64,
    /// Lines that were given back.
    pub given: u64,
    /// 1 if the peer was not yet asked whether it sleeps for them.
    pub gave: u64,
    /// Bytes that were received.
    pub total: u64,
    /// How often this side has gone to sleep for data.
    pub armed: u64,
    /// The peer's last sleep for room that it was rung for.
    pub rung: u64,
    /// Twice the place of the urgent byte that was taken out of the line, and 1 if urgent bytes stay in it.
    pub urgent: u64,
}

/// What there is of an urgent byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgent {
    /// Nothing: none was sent, or it was taken or passed, or it stays in the line.
    Nothing,
    /// It is announced and not there yet.
    Announced,
    /// This is it.
    Byte(u8),
}

impl ReceiveCursor {
    /// Whether urgent bytes stay in the line (`SO_OOBINLINE`).
    #[must_use]
    pub const fn is_urgent_inline(&self) -> bool {
        self.urgent & 1 == 1
    }

    /// Has urgent bytes stay in the line, or not, which is the default.
    pub const fn set_urgent_inline(&mut self, is_inline: bool) {
        self.urgent = self.urgent >> 1 << 1 | is_inline as u64;
    }

    pub(crate) const fn urgent_taken(&self) -> u64 {
        self.urgent >> 1
    }
}

/// What was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// How many bytes.
    pub bytes: usize,
    /// Why there will be no more: only with no bytes, and at every call from then on.
    pub end: Option<End>,
}

/// Why there will be no more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The peer has sent all it wanted to, and all of it was received.
    Finished,
    /// The peer has broken the connection off, with this errno, 1 to 4095.
    Reset(u16),
}

/// What becomes of an urgent byte that is next in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// There is a newer one: this is a byte like others.
    Past,
    /// It stays in the line, and receives end before it.
    Marked,
    /// It is not in the line.
    Skipped,
}

/// Of a ring that was read to its end, so many lines are given back at once.
const GIVEN_DRY: u64 = 16;

impl<M: Medium> Receiver<M> {
    pub(crate) const fn new(outgoing: Outgoing<M>, ring: Ring<Kind>) -> Self {
        Self { outgoing, ring }
    }

    /// Moves what is there to `into`, as far as it goes. [`Receiver::wake`] is to be asked after the last.
    ///
    /// # Errors
    /// [`ErrorKind::Protocol`] if the peer has broken the protocol. Bytes that this call has moved until then are
    /// lost; so are the connection and what it had to say.
    #[inline]
    pub fn receive(
        &mut self,
        sight: &Sight<M>,
        cursor: &mut ReceiveCursor,
        into: &mut [u8],
    ) -> Result<Received> {
        self.take(sight, cursor, into.len(), |slot, start, part| {
            ring::copy(slot, start, &mut into[part])
        })
    }

    /// Takes up to `size` bytes. Of each slot, `copy` gets the byte from which on it is taken, and which of the bytes
    /// they are.
    #[inline]
    pub(crate) fn take(
        &mut self,
        sight: &Sight<M>,
        cursor: &mut ReceiveCursor,
        size: usize,
        mut copy: impl FnMut(&IncomingSlot<'_, M>, usize, Range<usize>) -> Result<()>,
    ) -> Result<Received> {
        let mut bytes = 0;
        let mut end = None;
        let mut is_dry = false;
        // A peer that stores as fast as this loop looks does not keep it from ending.
        let mut pads = 0;
        while bytes < size && pads < 3 {
            let Some((head, slot)) = sight.look(cursor.position)? else {
                is_dry = true;
                break;
            };
            match head.kind {
                Kind::Pad => {
                    cursor.position += head.lines;
                    pads += 1;
                }
                Kind::Data => {
                    let taken = taken_of(cursor, head)?;
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
                Kind::Urgent => match self.urgency(sight, cursor) {
                    // A receive ends before the mark.
                    Urgency::Skipped | Urgency::Marked if bytes > 0 => break,
                    Urgency::Skipped => {
                        cursor.total += 1;
                        cursor.position += head.lines;
                        pads += 1;
                    }
                    Urgency::Marked | Urgency::Past => {
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
        if is_dry && bytes == 0 {
            end = reset(sight, cursor.position);
        }
        // Whoever reads just what there is has read it to its end, too.
        is_dry |= bytes == size && cursor.taken == 0 && !sight.is_there(cursor.position);
        self.give(cursor, is_dry);
        let end = if bytes == 0 { end } else { None };
        Ok(Received { bytes, end })
    }

    /// Copies what is there and leaves it.
    ///
    /// # Errors
    /// As [`Receiver::receive`].
    pub fn peek(
        &self,
        sight: &Sight<M>,
        cursor: &ReceiveCursor,
        into: &mut [u8],
    ) -> Result<Received> {
        let mut rest = into;
        self.borrow(sight, cursor, rest.len(), |piece| {
            let (part, tail) = mem::take(&mut rest).split_at_mut(piece.length());
            piece.copy(0, part)?;
            rest = tail;
            Ok(ControlFlow::Continue(()))
        })
    }

    /// How many bytes are there to be received.
    #[must_use]
    pub fn pending(&self, sight: &Sight<M>, cursor: &ReceiveCursor) -> usize {
        let mut bytes = 0usize;
        let walked = self
            .ring
            .walk(sight.incoming(), cursor.position, |head, _| {
                match head.kind {
                    Kind::Data => bytes += head.length,
                    Kind::Urgent if cursor.is_urgent_inline() => bytes += 1,
                    Kind::Urgent | Kind::Finish | Kind::Pad => {}
                }
                Ok(ControlFlow::Continue(()))
            });
        // What lies before a breach of the protocol can still be received.
        drop(walked);
        bytes.saturating_sub(usize::try_from(cursor.taken).unwrap_or(usize::MAX))
    }

    /// The urgent byte, wherever it is; taken out of the line, unless `leave` says to look at it alone.
    ///
    /// # Errors
    /// As [`Receiver::receive`].
    pub fn urgent(
        &self,
        sight: &Sight<M>,
        cursor: &mut ReceiveCursor,
        leave: bool,
    ) -> Result<Urgent> {
        let wanted = sight.urgent();
        if cursor.is_urgent_inline() || !sight.has_urgent(cursor) {
            return Ok(Urgent::Nothing);
        }
        let mut found = Urgent::Announced;
        let mut place = cursor.total.saturating_sub(cursor.taken);
        self.ring
            .walk(sight.incoming(), cursor.position, |head, slot| {
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

    pub(crate) fn urgency(&self, sight: &Sight<M>, cursor: &ReceiveCursor) -> Urgency {
        if !sight.is_at_mark(cursor) {
            Urgency::Past
        } else if cursor.is_urgent_inline() {
            Urgency::Marked
        } else {
            Urgency::Skipped
        }
    }

    /// Whether the peer sleeps for room that was made since this was last asked, and must be woken: once for each
    /// time that it went to sleep.
    #[must_use]
    #[inline]
    pub fn wake(&mut self, sight: &Sight<M>, cursor: &mut ReceiveCursor) -> bool {
        if cursor.gave == 0 {
            return false;
        }
        cursor.gave = 0;
        self.outgoing.settle();
        let waits = sight.waits_for_room();
        let is_new = waits != cursor.rung;
        cursor.rung = waits;
        is_new
    }

    /// Says that this side goes to sleep until there is something to receive. True if it must not, as there is.
    #[must_use]
    pub fn arm(&mut self, sight: &Sight<M>, cursor: &mut ReceiveCursor) -> bool {
        cursor.armed = cursor.armed.wrapping_add(1);
        self.say(WAITS_FOR_DATA, cursor.armed);
        self.outgoing.settle();
        sight.is_readable(cursor.position)
    }

    /// Gives lines back when half of the sender's reach is pending, or when it was read to its end.
    #[inline]
    fn give(&mut self, cursor: &mut ReceiveCursor, is_dry: bool) {
        let pending = cursor.position - cursor.given;
        let is_due = pending >= self.ring.reach() / 2 || is_dry && pending >= GIVEN_DRY;
        if is_due && Step::GivenBack.is_kept() {
            self.say(RETURNED, cursor.position);
            cursor.given = cursor.position;
            cursor.gave = 1;
        }
    }

    fn say(&mut self, offset: usize, word: u64) {
        self.outgoing
            .slot(offset, LINE)
            .expect("the area was checked when the lane was made")
            .publish(word);
    }
}

/// How many bytes of the slot at the cursor were taken before.
pub(crate) fn taken_of(cursor: &ReceiveCursor, head: Head<Kind>) -> Result<usize> {
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
        "the end does not lie where it says",
    ))
}

/// The end of a stream that has nothing at `position`, if the peer broke it off there.
pub(crate) fn reset<M: Medium>(sight: &Sight<M>, position: u64) -> Option<End> {
    let Closing::Reset(errno) = sight.closing() else {
        return None;
    };
    // What was sent before the reset is there, as it was published before.
    let is_there = matches!(sight.look(position), Ok(Some(_)));
    (!is_there).then_some(End::Reset(errno))
}
