//! Sending without a copy: bytes are stored where the peer reads them, then published.

use std::iter;
use std::ptr::NonNull;

use millrace_window::{LINE, Mapped, Medium, WORD};

use crate::ring::{Ring, lines_of};
use crate::slot::{Kind, SLOT_BYTES_MAX};
use crate::{Error, ErrorKind, Result, SendCursor, Sender, Sight};

/// Room in the ring that nothing was sent in yet: plain words, like a cursor. It is void once anything else was sent
/// by the cursor that it was reserved by.
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
    /// The one that was made by this cursor, of this length, if nothing was sent since.
    pub const fn at(cursor: &SendCursor, length: usize) -> Self {
        Self {
            position: cursor.position,
            length,
        }
    }

    /// How many bytes there is room for; 0 is no room.
    #[must_use]
    pub const fn length(&self) -> usize {
        self.length
    }

    /// The slots that the first `length` bytes of it take: each whole, but for the last, and the one at the ring's
    /// end. Where they are follows from these numbers alone.
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

/// The most bytes that a slot of so many lines carries.
fn payload_of(lines: u64) -> usize {
    usize::try_from(lines).map_or(usize::MAX, |lines| (lines * LINE).saturating_sub(WORD))
}

impl<M: Medium> Sender<M> {
    /// Room for up to `length` bytes, as much as there is. It lies in places, one for each slot ([`Sender::fill`]). The
    /// peer sees nothing of it; it need not be given back.
    ///
    /// # Errors
    /// As [`Sender::send`].
    pub fn reserve(
        &mut self,
        sight: &Sight<M>,
        cursor: &mut SendCursor,
        length: usize,
    ) -> Result<Reserved> {
        self.begin(sight, cursor)?;
        let first = lines_of(length.min(SLOT_BYTES_MAX));
        let left = self.ring.left(cursor.position);
        // A place is whole if it can be.
        if left < first && self.free(sight, cursor, left + first)? >= left + first {
            self.pad(cursor)?;
        }
        let wanted = length.min(payload_of(self.ring.reach()));
        let all = Reserved::at(cursor, wanted);
        let lines = all.places(self.ring, wanted);
        let lines = lines.map(|place| lines_of(place.length)).sum();
        let mut free = self.free(sight, cursor, lines)?;
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

    /// Stores bytes to byte `offset` of a reservation, a multiple of 8. Zeros fill the last eight up.
    ///
    /// # Errors
    /// [`ErrorKind::Geometry`] if they are not within.
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

    /// Sends the first `length` bytes of a reservation, which is void then: the peer sees all of them at once.
    /// [`Sender::wake`] is to be asked then.
    ///
    /// # Errors
    /// [`ErrorKind::Geometry`] if there are not so many; [`ErrorKind::Ended`] if it is void. Nothing is sent then.
    pub fn commit(
        &mut self,
        cursor: &mut SendCursor,
        reserved: Reserved,
        length: usize,
    ) -> Result<()> {
        if reserved.position != cursor.position || cursor.ended != 0 {
            return Err(Error::new(ErrorKind::Ended, "a reservation that is void"));
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
    /// Where the places of a reservation are, one behind another in the stream.
    ///
    /// Whoever stores there does so while the lane exists and nothing was sent since, by this reservation or else;
    /// makes no reference to the bytes, which the peer can change; and lets no other thread access them meanwhile.
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
    Error::new(ErrorKind::Geometry, "bytes that were not reserved")
}
