//! Slots one behind another in a ring of lines.
//!
//! ```text
//! slot, whole lines:
//!  0      tag     u32  the slot's place in the stream of lines, mixed with the ring's salt
//!  4      length  u16  bytes of payload
//!  6      kind    u8   1 pad, else what the protocol above says
//!  7      flags   u8   what the protocol above says; zero of a pad
//!  8      payload
//! ```
//! These eight bytes, read as a little-endian number, are the word that publishes the slot; zero is no slot.
//!
//! # Invariants
//! 1. A slot does not wrap: it ends at the ring's end at the latest.
//! 2. Before a slot is published, the word behind it is zero; so the reader, which looks there only after it took
//!    the slot, meets zero or a newer slot, never payload of a lap ago. The line behind a slot is therefore free
//!    as well, and a ring holds one line less than it has.
//! 3. Slots that lie behind each other may be published as one ([`Batch`]): the words of all but the first are
//!    stored as payload of it.
//! 4. A position counts lines from the start of the connection and never wraps (2^64 lines are 2^70 bytes).

use std::marker::PhantomData;
use std::ops::ControlFlow;

use millrace_window::{Incoming, IncomingSlot, LINE, Medium, Outgoing, OutgoingSlot, WORD};

use crate::step::Step;
use crate::{Error, ErrorKind, Result};

/// Why a slot is there.
pub(crate) trait SlotKind: Copy + PartialEq {
    /// Nothing: the next slot is at the ring's start. Its byte is 1.
    const PAD: Self;

    /// How a word names it.
    fn byte(self) -> u8;

    /// The kind that a byte names, if a slot of it may have this length and these flags. Not asked for pads.
    fn find(byte: u8, length: usize, flags: u8) -> Option<Self>;
}

/// What a slot's word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head<K> {
    pub(crate) kind: K,
    pub(crate) length: usize,
    /// From here to the next slot.
    pub(crate) lines: u64,
}

/// Where the lines of a ring lie in a half.
#[derive(Debug)]
pub(crate) struct Ring<K> {
    base: usize,
    lines: u64,
    /// What places are mixed with.
    salt: u32,
    kind: PhantomData<K>,
}

/// Slots that are being stored, to be published as one. Dropped, it is as if they had never been.
#[derive(Debug)]
pub(crate) struct Batch<'outgoing, K, M: Medium> {
    outgoing: &'outgoing mut Outgoing<M>,
    ring: Ring<K>,
    start: u64,
    /// How many lines may be stored to, the one behind the last slot aside.
    room: u64,
    /// The word of the first slot; 0 if there is none.
    first: u64,
    /// How many lines there are in it.
    used: u64,
}

/// How many lines a slot of so many bytes takes.
#[inline]
pub(crate) const fn lines_of(length: usize) -> u64 {
    (WORD + length).div_ceil(LINE) as u64
}

/// The byte of a pad.
const PAD: u8 = 1;

impl<K> Clone for Ring<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Ring<K> {}

impl<K: SlotKind> Ring<K> {
    /// A ring of `lines`, a power of two, from `base` of a half on.
    pub(crate) const fn new(base: usize, lines: u32, salt: u32) -> Self {
        Self {
            base,
            lines: lines as u64,
            salt,
            kind: PhantomData,
        }
    }

    /// The word of a slot.
    #[inline]
    pub(crate) fn word(self, position: u64, kind: K, flags: u8, length: u16) -> u64 {
        let kind = u64::from(kind.byte()) | u64::from(flags) << 8;
        self.tag(position) | u64::from(length) << 32 | kind << 48
    }

    const fn tag(self, position: u64) -> u64 {
        (position ^ self.salt as u64) & 0xffff_ffff
    }

    pub(crate) const fn lines(self) -> u64 {
        self.lines
    }

    /// How many lines slots of more than one line may take up together. The rest is for streams of tiny slots.
    pub(crate) const fn reach(self) -> u64 {
        self.lines / 4
    }

    /// Of the lines from `returned` on, those of a pad that began at `pad`; 0 is none.
    #[inline]
    pub(crate) const fn padded(self, pad: u64, returned: u64) -> u64 {
        if returned <= pad && pad != 0 {
            self.left(pad)
        } else {
            0
        }
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
        kind: K,
        payload: &[u8],
    ) -> Result<u64> {
        let length =
            u16::try_from(payload.len()).expect("a slot's payload is within its protocol's limit");
        let own = if kind == K::PAD {
            1
        } else {
            lines_of(payload.len())
        };
        let taken = if kind == K::PAD {
            self.left(position)
        } else {
            own
        };
        let size = usize::try_from(own).expect("a slot is small") * LINE;
        let next = position + taken;
        // The word behind is cleared by a store of this slot's payload where it is the neighbour.
        let is_neighbour = taken == own && self.index(next) != 0;
        if !is_neighbour && Step::ZeroAhead.is_kept() {
            outgoing.slot(self.offset(next), LINE)?.publish(0);
        }
        let reach = if is_neighbour { size + LINE } else { size };
        let mut slot = outgoing.slot(self.offset(position), reach)?;
        if is_neighbour && Step::ZeroAhead.is_kept() {
            slot.store(size, &[0; WORD])?;
        }
        slot.store(WORD, payload)?;
        slot.publish(self.word(position, kind, 0, length));
        Ok(next)
    }

    /// Publishes slots that lie behind each other, as one, whose payload of these lengths was stored before. Returns
    /// where the next begins. With the line behind the last one their lines are free. There is one at least.
    ///
    /// # Errors
    /// What the window says, if the ring does not lie within the half.
    pub(crate) fn publish_in_place<M: Medium>(
        self,
        outgoing: &mut Outgoing<M>,
        position: u64,
        kind: K,
        lengths: impl Iterator<Item = usize> + Clone,
    ) -> Result<u64> {
        let word = |place, length: usize| {
            let length = u16::try_from(length).expect("a slot's payload is within its limit");
            self.word(place, kind, 0, length)
        };
        let early = !Step::PublishedLast.is_kept();
        let (mut next, mut first) = (position, None);
        for length in lengths {
            let lines = lines_of(length);
            let mut slot = outgoing.slot(self.offset(next), size_of_lines(lines))?;
            slot.stored(length)?;
            // The reader meets none of the others before the first.
            if first.is_some() || early {
                slot.publish(word(next, length));
            }
            first = first.or(Some(word(next, length)));
            next += lines;
        }
        if Step::ZeroAhead.is_kept() {
            outgoing.slot(self.offset(next), LINE)?.publish(0);
        }
        if let Some(word) = first {
            outgoing.slot(self.offset(position), LINE)?.publish(word);
        }
        Ok(next)
    }

    /// The lines of a slot at `position`, to be filled.
    ///
    /// # Errors
    /// What the window says, if the ring does not lie within the half.
    pub(crate) fn place<M: Medium>(
        self,
        outgoing: &mut Outgoing<M>,
        position: u64,
        lines: u64,
    ) -> Result<OutgoingSlot<'_, M>> {
        Ok(outgoing.slot(self.offset(position), size_of_lines(lines))?)
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
    ) -> Result<Option<(Head<K>, IncomingSlot<'_, M>)>> {
        let slot = incoming.poll(self.offset(position))?;
        if slot.word() == 0 {
            return Ok(None);
        }
        let head = self.head(slot.word(), position)?;
        Ok(Some((head, slot)))
    }

    /// Whether there is a slot to take at `position`, or behind a pad that is there: a pad is published before what
    /// is sent next.
    #[inline]
    pub(crate) fn holds<M: Medium>(self, incoming: &Incoming<M>, position: u64) -> bool {
        let word = |position| {
            incoming
                .poll(self.offset(position))
                .map_or(0, |slot| slot.word())
        };
        match word(position) {
            0 => false,
            pad if pad.to_le_bytes()[6] == PAD => word(position + self.left(position)) != 0,
            _ => true,
        }
    }

    /// Whether there is anything at `position`.
    #[inline]
    pub(crate) fn is_set<M: Medium>(self, incoming: &Incoming<M>, position: u64) -> bool {
        incoming
            .poll(self.offset(position))
            .is_ok_and(|slot| slot.word() != 0)
    }

    #[inline]
    fn head(self, word: u64, position: u64) -> Result<Head<K>> {
        let broken = |context| Err(Error::new(ErrorKind::Protocol, context));
        let [.., low, high, byte, flags] = word.to_le_bytes();
        let length = usize::from(u16::from_le_bytes([low, high]));
        if word & 0xffff_ffff != self.tag(position) {
            return broken("a slot of another place");
        }
        let left = self.left(position);
        let (kind, lines) = if byte == PAD {
            let is_sound = length == 0 && flags == 0;
            (is_sound.then_some(K::PAD), left)
        } else {
            (K::find(byte, length, flags), lines_of(length))
        };
        match kind {
            Some(kind) if lines <= left => Ok(Head {
                kind,
                length,
                lines,
            }),
            _ => broken("a slot of an unknown kind or a wrong length"),
        }
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
        mut visit: impl FnMut(Head<K>, &IncomingSlot<'_, M>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let mut place = position;
        while place - position < self.lines {
            let Some((head, slot)) = self.look(incoming, place)? else {
                break;
            };
            if head.kind != K::PAD && visit(head, &slot)?.is_break() {
                break;
            }
            place += head.lines;
        }
        Ok(())
    }
}

impl<K: SlotKind> Ring<K> {
    /// Slots to be published as one, from `position` on, from where `room` lines are free, and one behind them.
    /// They have `lines_max` lines at most, and do not go beyond the ring's end.
    ///
    /// # Errors
    /// What the window says, if the ring does not lie within the half.
    pub(crate) fn batch<M: Medium>(
        self,
        outgoing: &mut Outgoing<M>,
        position: u64,
        room: u64,
        lines_max: u64,
    ) -> Result<Batch<'_, K, M>> {
        let left = self.left(position);
        let room = room.min(lines_max).min(left);
        if room == left && Step::ZeroAhead.is_kept() {
            // The line behind the last could be the ring's first.
            outgoing.slot(self.base, LINE)?.publish(0);
        }
        Ok(Batch {
            outgoing,
            ring: self,
            start: position,
            room,
            first: 0,
            used: 0,
        })
    }
}

impl<K: SlotKind, M: Medium> Batch<'_, K, M> {
    /// How many lines there is room for yet.
    pub(crate) const fn room(&self) -> u64 {
        self.room - self.used
    }

    /// Where the next slot begins.
    pub(crate) const fn position(&self) -> u64 {
        self.start + self.used
    }

    /// Adds a slot. [`Batch::room`] has been asked.
    ///
    /// # Errors
    /// What the window says, if there is no room.
    pub(crate) fn put(&mut self, kind: K, flags: u8, payload: &[u8]) -> Result<()> {
        let length =
            u16::try_from(payload.len()).expect("a slot's payload is within its protocol's limit");
        let word = self.ring.word(self.position(), kind, flags, length);
        let place = size_of_lines(self.used);
        if self.used == 0 && !Step::PublishedLast.is_kept() {
            let size = size_of_lines(self.room);
            let slot = self.outgoing.slot(self.ring.offset(self.start), size)?;
            slot.publish(word);
        }
        let is_first = self.used == 0;
        if is_first {
            self.first = word;
        }
        let mut slot = self.slot(self.room)?;
        if !is_first {
            slot.store(place, &word.to_le_bytes())?;
        }
        slot.store(place + WORD, payload)?;
        self.used += lines_of(payload.len());
        Ok(())
    }

    /// Makes all of it visible and returns where the next slot begins.
    ///
    /// # Errors
    /// What the window says, if the ring does not lie within the half.
    pub(crate) fn publish(mut self) -> Result<u64> {
        let next = self.position();
        if self.used == 0 {
            return Ok(next);
        }
        let is_neighbour = self.ring.index(next) != 0;
        let (place, word) = (size_of_lines(self.used), self.first);
        let mut slot = self.slot(self.used + u64::from(is_neighbour))?;
        if is_neighbour && Step::ZeroAhead.is_kept() {
            slot.store(place, &[0; WORD])?;
        }
        slot.publish(word);
        Ok(next)
    }

    fn slot(&mut self, lines: u64) -> Result<OutgoingSlot<'_, M>> {
        let offset = self.ring.offset(self.start);
        Ok(self.outgoing.slot(offset, size_of_lines(lines))?)
    }
}

fn size_of_lines(lines: u64) -> usize {
    usize::try_from(lines).expect("slots are within their ring") * LINE
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
