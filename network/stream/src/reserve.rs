//! Sending without a copy: bytes are stored where the peer reads them, then published.

use std::iter;
use std::ptr::NonNull;

use millrace_window::{LINE, Mapped, Medium, WORD};

use crate::ring::{Ring, lines_of};
use crate::slot::{Kind, SLOT_BYTES_MAX};
use crate::{Error, ErrorKind, PeerState, Result, SendCursor, Sender};

/// Reserved room in the ring: plain words, like a cursor. It becomes void when the same cursor sends anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Reserved {
    position: u64,
    length: usize,
}

/// A slot's payload within a reservation.
#[derive(Clone, Copy, Debug)]
struct Place {
    position: u64,
    length: usize,
}

impl Reserved {
    /// The reservation of this cursor with this length, if nothing was sent since.
    pub const fn at(cursor: &SendCursor, length: usize) -> Self {
        Self {
            position: cursor.position,
            length,
        }
    }

    /// Bytes of the reservation; 0 is no room.
    #[must_use]
    pub const fn length(&self) -> usize {
        self.length
    }

    /// The slots of the first `length` bytes: full ones, except the last and the one at the ring's end. Their positions
    /// follow from these numbers alone.
    fn places(self, ring: Ring<Kind>, length: usize) -> impl Iterator<Item = Place> + Clone {
        let (mut position, mut rest) = (self.position, length);
        iter::from_fn(move || {
            let length = payload_of(ring.left(position))
                .min(SLOT_BYTES_MAX)
                .min(rest);
            let place = Place { position, length };
            position += lines_of(length);
            rest -= length;
            (length > 0).then_some(place)
        })
    }
}

/// The most bytes of a slot with `lines` lines.
fn payload_of(lines: u64) -> usize {
    usize::try_from(lines).map_or(usize::MAX, |lines| (lines * LINE).saturating_sub(WORD))
}

impl<M: Medium> Sender<M> {
    /// Reserves room for up to `length` bytes, as much as is free. It consists of one region for each slot
    /// ([`Sender::fill`]). The peer does not see it, and it need not be released.
    ///
    /// # Errors
    /// As [`Sender::send`].
    pub fn reserve(
        &mut self,
        peer_state: &PeerState<M>,
        cursor: &mut SendCursor,
        length: usize,
    ) -> Result<Reserved> {
        self.begin(peer_state, cursor)?;
        let first = lines_of(length.min(SLOT_BYTES_MAX));
        let left = self.ring.left(cursor.position);
        // A region is not split if there is room for a pad.
        if left < first && self.free(peer_state, cursor, left + first)? >= left + first {
            self.pad(cursor)?;
        }
        let wanted = length.min(payload_of(self.ring.inflight_max()));
        let all = Reserved::at(cursor, wanted);
        let lines = all.places(self.ring, wanted);
        let lines = lines.map(|place| lines_of(place.length)).sum();
        let mut free = self.free(peer_state, cursor, lines)?;
        let mut room = 0;
        for place in all.places(self.ring, wanted) {
            let length = place.length.min(payload_of(free));
            room += length;
            if length < place.length {
                break;
            }
            free -= lines_of(length);
        }
        Ok(Reserved::at(cursor, room))
    }

    /// Stores bytes at byte `offset` of a reservation, a multiple of 8. Zeros pad the last word.
    ///
    /// # Errors
    /// [`ErrorKind::Geometry`] if the range exceeds the reservation.
    pub fn fill(&mut self, reserved: Reserved, offset: usize, bytes: &[u8]) -> Result<()> {
        let end = offset.checked_add(bytes.len());
        if offset % WORD != 0 || end.is_none_or(|end| end > reserved.length) {
            return Err(outside());
        }
        let (mut skipped, mut rest) = (offset, bytes);
        for place in reserved.places(self.ring, reserved.length) {
            if rest.is_empty() {
                break;
            }
            if skipped >= place.length {
                skipped -= place.length;
                continue;
            }
            let (part, tail) = rest.split_at(rest.len().min(place.length - skipped));
            let lines = lines_of(place.length);
            let mut slot = self.ring.place(&mut self.outgoing, place.position, lines)?;
            slot.store(WORD + skipped, part)?;
            (skipped, rest) = (0, tail);
        }
        Ok(())
    }

    /// Publishes the first `length` bytes of a reservation at once, and makes it void. [`Sender::wake`] is due
    /// afterwards.
    ///
    /// # Errors
    /// [`ErrorKind::Geometry`] if `length` exceeds the reservation; [`ErrorKind::Ended`] if it is void. Nothing is sent
    /// then.
    pub fn commit(
        &mut self,
        cursor: &mut SendCursor,
        reserved: Reserved,
        length: usize,
    ) -> Result<()> {
        if reserved.position != cursor.position || cursor.ended != 0 {
            return Err(Error::new(
                ErrorKind::Ended,
                "the reservation is void: something was sent since",
            ));
        }
        if length > reserved.length {
            return Err(outside());
        }
        if length > 0 {
            let lengths = reserved.places(self.ring, length);
            let lengths = lengths.map(|place| place.length);
            let (ring, outgoing) = (self.ring, &mut self.outgoing);
            cursor.position =
                ring.publish_in_place(outgoing, reserved.position, Kind::Data, lengths)?;
            cursor.total += length as u64;
        }
        Ok(())
    }
}

impl Sender<Mapped> {
    /// The regions of a reservation, in the order of the stream.
    ///
    /// The caller must store there only while the ring pair exists and nothing was sent since; must create no reference
    /// to the bytes, which the peer can change; and must let no other thread access them meanwhile.
    pub fn places(&mut self, reserved: Reserved) -> impl Iterator<Item = NonNull<[u8]>> + use<'_> {
        let (ring, outgoing) = (self.ring, &mut self.outgoing);
        let places = reserved.places(ring, reserved.length);
        places.map_while(move |place| {
            let lines = lines_of(place.length);
            let mut slot = ring.place(outgoing, place.position, lines).ok()?;
            let first = slot.payload().cast();
            Some(NonNull::slice_from_raw_parts(first, place.length))
        })
    }
}

fn outside() -> Error {
    Error::new(
        ErrorKind::Geometry,
        "the range exceeds the reservation, or its offset is not a multiple of 8",
    )
}
