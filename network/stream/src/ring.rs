//! Slots one behind another in a ring of lines.
//!
//! ```text
//! slot, whole lines:
//!  0      tag     u32  the slot's place in the stream of lines, mixed with a constant
//!  4      length  u16  bytes of payload
//!  6      kind    u8   1 pad, 2 data, 3 finish
//!  7      flags   u8   zero
//!  8      payload
//! ```
//! These eight bytes, read as a little-endian number, are the word that publishes the slot; zero is no slot.
//!
//! # Invariants
//! 1. A slot does not wrap: it ends at the ring's end at the latest.
//! 2. Before a slot is published, the word behind it is zero; so the reader, which looks there only after it took
//!    the slot, meets zero or a newer slot, never payload of a lap ago. The line behind a slot is therefore free
//!    as well, and a ring holds one line less than it has.
//! 3. A position counts lines from the start of the connection and never wraps (2^64 lines are 2^70 bytes).

use std::ops::ControlFlow;

use millrace_window::{Incoming, IncomingSlot, LINE, Medium, Outgoing, WORD};

use crate::{Error, ErrorKind, Result};

/// The most bytes that one slot carries.
pub(crate) const SLOT_BYTES_MAX: usize = 8192;

/// Why a slot is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Nothing: the next slot is at the ring's start.
    Pad = 1,
    /// Payload.
    Data = 2,
    /// The last one.
    Finish = 3,
}

/// What a slot's word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    pub(crate) length: usize,
    /// From here to the next slot.
    pub(crate) lines: u64,
}

/// Where the lines of a ring lie in a half.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    base: usize,
    lines: u64,
}

/// How many lines a slot of so many bytes takes.
pub(crate) const fn lines_of(length: usize) -> u64 {
    (WORD + length).div_ceil(LINE) as u64
}

/// The word of a slot.
pub(crate) const fn word(position: u64, kind: Kind, length: u16) -> u64 {
    tag(position) | (length as u64) << 32 | (kind as u64) << 48
}

const fn tag(position: u64) -> u64 {
    (position ^ 0x6c6c_696d) & 0xffff_ffff
}

impl Ring {
    /// A ring of `lines`, a power of two, from `base` of a half on.
    pub(crate) const fn new(base: usize, lines: u32) -> Self {
        Self {
            base,
            lines: lines as u64,
        }
    }

    pub(crate) const fn lines(self) -> u64 {
        self.lines
    }

    /// How many lines there are from `position` to the ring's end.
    pub(crate) const fn left(self, position: u64) -> u64 {
        self.lines - self.index(position)
    }

    /// The line that `position` is at.
    pub(crate) const fn index(self, position: u64) -> u64 {
        position & (self.lines - 1)
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "an index is below the number of lines, which a u32 gave"
    )]
    const fn offset(self, position: u64) -> usize {
        self.base + self.index(position) as usize * LINE
    }

    /// Publishes a slot at `position`, which with the line behind it is free, and returns where the next begins.
    ///
    /// # Errors
    /// What the window says, if the ring does not lie within the half.
    #[inline]
    pub(crate) fn put<M: Medium>(
        self,
        outgoing: &mut Outgoing<M>,
        position: u64,
        kind: Kind,
        payload: &[u8],
    ) -> Result<u64> {
        let length =
            u16::try_from(payload.len()).expect("a slot carries SLOT_BYTES_MAX bytes at most");
        let own = match kind {
            Kind::Pad => 1,
            Kind::Data | Kind::Finish => lines_of(payload.len()),
        };
        let taken = match kind {
            Kind::Pad => self.left(position),
            Kind::Data | Kind::Finish => own,
        };
        let size = usize::try_from(own).expect("a slot is small") * LINE;
        let next = position + taken;
        // The word behind is cleared by a store of this slot's payload where it is the neighbour.
        let is_neighbour = taken == own && self.index(next) != 0;
        if !is_neighbour {
            outgoing.slot(self.offset(next), LINE)?.publish(0);
        }
        let reach = if is_neighbour { size + LINE } else { size };
        let mut slot = outgoing.slot(self.offset(position), reach)?;
        if is_neighbour {
            slot.store(size, &[0; WORD])?;
        }
        slot.store(WORD, payload)?;
        slot.publish(word(position, kind, length));
        Ok(next)
    }

    /// The slot at `position`, if it is there.
    ///
    /// # Errors
    /// [`ErrorKind::Protocol`] if what is there is none.
    #[inline]
    pub(crate) fn look<M: Medium>(
        self,
        incoming: &Incoming<M>,
        position: u64,
    ) -> Result<Option<(Head, IncomingSlot<'_, M>)>> {
        let slot = incoming.poll(self.offset(position))?;
        if slot.word() == 0 {
            return Ok(None);
        }
        let head = self.head(slot.word(), position)?;
        Ok(Some((head, slot)))
    }

    /// Whether there is anything at `position`.
    #[inline]
    pub(crate) fn is_set<M: Medium>(self, incoming: &Incoming<M>, position: u64) -> bool {
        incoming
            .poll(self.offset(position))
            .is_ok_and(|slot| slot.word() != 0)
    }

    fn head(self, word: u64, position: u64) -> Result<Head> {
        let broken = |context| Err(Error::new(ErrorKind::Protocol, context));
        let [.., low, high, kind, flags] = word.to_le_bytes();
        let length = usize::from(u16::from_le_bytes([low, high]));
        if word & 0xffff_ffff != tag(position) || flags != 0 {
            return broken("a slot of another place");
        }
        let (kind, lines, is_sound) = match kind {
            1 => (Kind::Pad, self.left(position), length == 0),
            2 => (
                Kind::Data,
                lines_of(length),
                length != 0 && length <= SLOT_BYTES_MAX,
            ),
            3 => (Kind::Finish, lines_of(length), length == WORD),
            _ => return broken("a slot of an unknown kind"),
        };
        if !is_sound || lines > self.left(position) {
            return broken("a slot of a wrong length");
        }
        Ok(Head {
            kind,
            length,
            lines,
        })
    }

    /// Calls `visit` for each slot that is there from `position` on, pads aside, until it breaks. Goes round the
    /// ring once at most.
    ///
    /// # Errors
    /// As [`Ring::look`], and what `visit` says.
    pub(crate) fn walk<M: Medium>(
        self,
        incoming: &Incoming<M>,
        position: u64,
        mut visit: impl FnMut(Head, &IncomingSlot<'_, M>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let mut place = position;
        while place - position < self.lines {
            let Some((head, slot)) = self.look(incoming, place)? else {
                break;
            };
            if head.kind != Kind::Pad && visit(head, &slot)?.is_break() {
                break;
            }
            place += head.lines;
        }
        Ok(())
    }
}

/// Copies payload from byte `start` of it on.
///
/// # Errors
/// What the window says, if that lies outside.
#[inline]
pub(crate) fn copy<M: Medium>(
    slot: &IncomingSlot<'_, M>,
    start: usize,
    into: &mut [u8],
) -> Result<()> {
    let skipped = start % WORD;
    let (first, rest) = if skipped == 0 {
        (0, into)
    } else {
        let mut word = [0; WORD];
        slot.load(WORD + start - skipped, &mut word)?;
        let count = into.len().min(WORD - skipped);
        let (head, rest) = into.split_at_mut(count);
        head.copy_from_slice(&word[skipped..skipped + count]);
        (count, rest)
    };
    if !rest.is_empty() {
        slot.load(WORD + start + first, rest)?;
    }
    Ok(())
}
