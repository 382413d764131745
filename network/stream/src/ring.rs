//! A ring of slots in lines of 64 bytes.
//!
//! ```text
//! slot, whole lines:
//!  0      tag     u32  the slot's position in lines, mixed with the ring's salt
//!  4      length  u16  bytes of payload
//!  6      kind    u8   1 pad, else defined by the protocol above
//!  7      flags   u8   defined by the protocol above; zero of a pad
//!  8      payload
//! ```
//! These eight bytes, read as a little-endian number, are the word that publishes the slot; zero is no slot.
//!
//! # Invariants
//! 1. A slot does not wrap: it ends at the ring's end at the latest.
//! 2. Before a slot is published, the word behind it is zero. The reader looks there only after it took the slot, so it
//!    finds zero or a newer slot, never payload of an earlier lap. The line behind a slot is therefore free as well,
//!    and a ring holds one line less than it has.
//! 3. Consecutive slots may be published as one ([`Batch`]): the words of all but the first are stored as payload of
//!    it.
//! 4. A position counts lines from the start of the connection and never wraps (2^64 lines are 2^70 bytes).

use std::marker::PhantomData;
use std::ops::ControlFlow;

use millrace_window::{Incoming, IncomingSlot, LINE, Medium, Outgoing, OutgoingSlot, WORD};

use crate::mutation_point::MutationPoint;
use crate::{Error, ErrorKind, Result};

/// The slot kinds of a protocol.
pub(crate) trait SlotKind: Copy + PartialEq {
    /// A pad: the next slot is at the ring's start. Its byte is 1.
    const PAD: Self;

    /// The kind's byte in a word.
    fn byte(self) -> u8;

    /// The kind of a byte, if a slot of it may have this length and these flags. Not called for pads.
    fn find(byte: u8, length: usize, flags: u8) -> Option<Self>;
}

/// The decoded word of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head<K> {
    pub(crate) kind: K,
    pub(crate) length: usize,
    /// Lines from this slot to the next.
    pub(crate) lines: u64,
}

/// The position and size of a ring in its half of the memory.
#[derive(Debug)]
pub(crate) struct Ring<K> {
    base: usize,
    lines: u64,
    /// The salt of the tags.
    salt: u32,
    kind: PhantomData<K>,
}

/// Slots in construction, to be published as one. Dropping it discards them.
#[derive(Debug)]
pub(crate) struct Batch<'outgoing, K, M: Medium> {
    outgoing: &'outgoing mut Outgoing<M>,
    ring: Ring<K>,
    start: u64,
    /// Lines that may be stored to, without the one behind the last slot.
    room: u64,
    /// The word of the first slot; 0 if there is none.
    first: u64,
    /// Lines used so far.
    used: u64,
}

/// Lines of a slot with `length` bytes.
#[inline]
pub(crate) const fn lines_of(length: usize) -> u64 {
    (WORD + length).div_ceil(LINE) as u64
}

/// The kind byte of a pad.
const PAD: u8 = 1;

impl<K> Clone for Ring<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Ring<K> {}

impl<K: SlotKind> Ring<K> {
    /// A ring of `lines`, a power of two, from byte `base` of its half on.
    pub(crate) const fn new(base: usize, lines: u32, salt: u32) -> Self {
        Self {
            base,
            lines: lines as u64,
            salt,
            kind: PhantomData,
        }
    }

    /// The word that publishes a slot.
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

    /// The most lines in flight of slots with more than one line. The rest is for streams of small slots.
    pub(crate) const fn inflight_max(self) -> u64 {
        self.lines / 4
    }

    /// Of the lines from `returned` on, those of a pad that began at `pad`; a `pad` of 0 is none.
    #[inline]
    pub(crate) const fn padded(self, pad: u64, returned: u64) -> u64 {
        if returned <= pad && pad != 0 {
            self.left(pad)
        } else {
            0
        }
    }

    /// Lines from `position` to the ring's end.
    pub(crate) const fn left(self, position: u64) -> u64 {
        self.lines - self.index(position)
    }

    /// The line index of `position`.
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

    /// Publishes a slot at `position`, which must be free with the line behind it. Returns the position of the next
    /// slot.
    ///
    /// # Errors
    /// [`ErrorKind::Window`] if the ring does not lie within the half.
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
        // If the next word is adjacent, a store of this slot's payload clears it.
        let is_neighbour = taken == own && self.index(next) != 0;
        if !is_neighbour && MutationPoint::ZeroAhead.is_enabled() {
            outgoing.slot(self.offset(next), LINE)?.publish(0);
        }
        let inflight_max = if is_neighbour { size + LINE } else { size };
        let mut slot = outgoing.slot(self.offset(position), inflight_max)?;
        if is_neighbour && MutationPoint::ZeroAhead.is_enabled() {
            slot.store(size, &[0; WORD])?;
        }
        slot.store(WORD, payload)?;
        slot.publish(self.word(position, kind, 0, length));
        Ok(next)
    }

    /// Publishes consecutive slots as one. Payloads of these lengths, at least one, were stored before; their lines and
    /// the one behind the last are free. Returns the position of the next slot.
    ///
    /// # Errors
    /// [`ErrorKind::Window`] if the ring does not lie within the half.
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
        let early = !MutationPoint::PublishedLast.is_enabled();
        let (mut next, mut first) = (position, None);
        for length in lengths {
            let lines = lines_of(length);
            let mut slot = outgoing.slot(self.offset(next), size_of_lines(lines))?;
            slot.stored(length)?;
            // The reader finds none of the others before the first.
            if first.is_some() || early {
                slot.publish(word(next, length));
            }
            first = first.or(Some(word(next, length)));
            next += lines;
        }
        if MutationPoint::ZeroAhead.is_enabled() {
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
    /// [`ErrorKind::Window`] if the ring does not lie within the half.
    pub(crate) fn place<M: Medium>(
        self,
        outgoing: &mut Outgoing<M>,
        position: u64,
        lines: u64,
    ) -> Result<OutgoingSlot<'_, M>> {
        Ok(outgoing.slot(self.offset(position), size_of_lines(lines))?)
    }

    /// The slot at `position`, if one is published.
    ///
    /// # Errors
    /// [`ErrorKind::Protocol`] if its word is invalid.
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

    /// Whether a slot can be received at `position`, or behind a pad there: a pad is published before the next slot.
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

    /// Whether any word is published at `position`.
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
            return broken("protocol error: the tag of a slot does not match its position");
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
            _ => broken("protocol error: a slot of an unknown kind or a wrong length"),
        }
    }

    /// Calls `visit` for each published slot from `position` on, except pads, until it breaks; at most once around the
    /// ring.
    ///
    /// # Errors
    /// As [`Ring::look`], and the errors of `visit`.
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
    /// A batch from `position` on, where `room` lines and one behind them are free. It has at most `lines_max` lines,
    /// and ends at the ring's end at the latest.
    ///
    /// # Errors
    /// [`ErrorKind::Window`] if the ring does not lie within the half.
    pub(crate) fn batch<M: Medium>(
        self,
        outgoing: &mut Outgoing<M>,
        position: u64,
        room: u64,
        lines_max: u64,
    ) -> Result<Batch<'_, K, M>> {
        let left = self.left(position);
        let room = room.min(lines_max).min(left);
        if room == left && MutationPoint::ZeroAhead.is_enabled() {
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
    /// Lines that are still free.
    pub(crate) const fn room(&self) -> u64 {
        self.room - self.used
    }

    /// The position of the next slot.
    pub(crate) const fn position(&self) -> u64 {
        self.start + self.used
    }

    /// Adds a slot. The caller has checked [`Batch::room`].
    ///
    /// # Errors
    /// [`ErrorKind::Window`] if there is no room.
    pub(crate) fn put(&mut self, kind: K, flags: u8, payload: &[u8]) -> Result<()> {
        let length =
            u16::try_from(payload.len()).expect("a slot's payload is within its protocol's limit");
        let word = self.ring.word(self.position(), kind, flags, length);
        let place = size_of_lines(self.used);
        if self.used == 0 && !MutationPoint::PublishedLast.is_enabled() {
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

    /// Publishes all slots, and returns the position of the next.
    ///
    /// # Errors
    /// [`ErrorKind::Window`] if the ring does not lie within the half.
    pub(crate) fn publish(mut self) -> Result<u64> {
        let next = self.position();
        if self.used == 0 {
            return Ok(next);
        }
        let is_neighbour = self.ring.index(next) != 0;
        let (place, word) = (size_of_lines(self.used), self.first);
        let mut slot = self.slot(self.used + u64::from(is_neighbour))?;
        if is_neighbour && MutationPoint::ZeroAhead.is_enabled() {
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

/// Copies payload from byte `start` on.
///
/// # Errors
/// [`ErrorKind::Window`] if the range lies outside of the slot.
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
