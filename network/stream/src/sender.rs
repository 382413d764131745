//! What is stored when a side sends.

use millrace_window::{LINE, Mapped, Medium, Outgoing, WORD};

use crate::lane::{CLOSING, SERVICE, URGENT, WAITS_FOR_ROOM};
use crate::ring::{Ring, lines_of};
use crate::slot::{Kind, SLOT_BYTES_MAX};
use crate::{Error, ErrorKind, Result, Service, Sight};

/// The half of a lane that sends. One thread at a time has it.
#[derive(Debug)]
pub struct Sender<M: Medium = Mapped> {
    pub(crate) outgoing: Outgoing<M>,
    pub(crate) ring: Ring<Kind>,
}

/// How far a sender has got. The default is the start of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendCursor {
    /// Lines that were stored to.
    pub position: u64,
    /// Lines that are known to have been given back.
    pub returned: u64,
    /// Bytes that were sent.
    pub total: u64,
    /// How often this side has gone to sleep for room.
    pub armed: u64,
    /// The peer's last sleep for data that it was rung for.
    pub rung: u64,
    /// Where it was last asked whether to begin at the ring's start again, in sixteenths of the ring.
    pub stride: u64,
    /// 1 when the end was sent.
    pub ended: u64,
    /// Where the last pad began; 0 is none.
    pub pad: u64,
}

/// A sender whose reader keeps up goes back to the ring's start after this part of the ring, so that few pages and
/// cache lines are used. Until the reader is there, too, no more than this part is free.
const STRIDES: u64 = 16;
/// The reader keeps up if it is no further behind than this part of a stride.
const NEAR: u64 = 16;

impl<M: Medium> Sender<M> {
    pub(crate) const fn new(outgoing: Outgoing<M>, ring: Ring<Kind>) -> Self {
        Self { outgoing, ring }
    }

    /// Sends as many of the bytes as there is room for and returns how many. Each is visible to the peer at once;
    /// [`Sender::wake`] is to be asked after the last.
    ///
    /// # Errors
    /// [`ErrorKind::Protocol`] if the peer has broken the protocol; [`ErrorKind::Ended`] after
    /// [`Sender::finish`].
    #[inline]
    pub fn send(
        &mut self,
        sight: &Sight<M>,
        cursor: &mut SendCursor,
        bytes: &[u8],
    ) -> Result<usize> {
        self.begin(sight, cursor)?;
        let mut rest = bytes;
        while !rest.is_empty() {
            let wanted = rest.len().min(SLOT_BYTES_MAX);
            let lines = self.room(sight, cursor, lines_of(wanted))?;
            if lines == 0 {
                break;
            }
            let room = usize::try_from(lines).expect("a slot is small") * LINE - WORD;
            let (slice, tail) = rest.split_at(wanted.min(room));
            cursor.position =
                self.ring
                    .put(&mut self.outgoing, cursor.position, Kind::Data, slice)?;
            rest = tail;
        }
        let sent = bytes.len() - rest.len();
        cursor.total += sent as u64;
        Ok(sent)
    }

    /// Sends a byte that is urgent: the peer hears of it before it has received what is ahead of it. False if there
    /// is no room yet. [`Sender::wake`] is to be asked then.
    ///
    /// # Errors
    /// As [`Sender::send`].
    pub fn send_urgent(
        &mut self,
        sight: &Sight<M>,
        cursor: &mut SendCursor,
        byte: u8,
    ) -> Result<bool> {
        if cursor.ended != 0 {
            return Err(Error::new(ErrorKind::Ended, "bytes behind the end"));
        }
        if self.room(sight, cursor, 1)? == 0 {
            return Ok(false);
        }
        // Whoever meets the slot knows which byte is urgent.
        self.say(URGENT, cursor.total + 1);
        cursor.position =
            self.ring
                .put(&mut self.outgoing, cursor.position, Kind::Urgent, &[byte])?;
        cursor.total += 1;
        Ok(true)
    }

    /// Sends the end: the peer finds it when it has received all bytes. False if there is no room yet.
    ///
    /// # Errors
    /// As [`Sender::send`].
    pub fn finish(&mut self, sight: &Sight<M>, cursor: &mut SendCursor) -> Result<bool> {
        if cursor.ended != 0 {
            return Ok(true);
        }
        if self.room(sight, cursor, 1)? == 0 {
            return Ok(false);
        }
        let total = cursor.total.to_le_bytes();
        cursor.position =
            self.ring
                .put(&mut self.outgoing, cursor.position, Kind::Finish, &total)?;
        cursor.ended = 1;
        Ok(true)
    }

    /// Whether the peer sleeps for what was sent since this was last asked, and must be woken: once for each time
    /// that it went to sleep.
    #[must_use]
    #[inline]
    pub fn wake(&mut self, sight: &Sight<M>, cursor: &mut SendCursor) -> bool {
        self.outgoing.settle();
        let waits = sight.waits_for_data();
        let is_new = waits != cursor.rung;
        cursor.rung = waits;
        is_new
    }

    /// Says that this side goes to sleep until there is room. True if it must not, as there is some.
    #[must_use]
    pub fn arm(&mut self, sight: &Sight<M>, cursor: &mut SendCursor) -> bool {
        cursor.armed = cursor.armed.wrapping_add(1);
        self.say(WAITS_FOR_ROOM, cursor.armed);
        self.outgoing.settle();
        sight.has_room(cursor)
    }

    /// Says that a holder of this side lets go of it.
    pub fn close(&mut self) {
        self.say(CLOSING, 1);
    }

    /// Breaks the connection off: the peer gets this errno, 1 to 4095, when it has received what was sent.
    pub fn reset(&mut self, errno: u16) {
        self.say(CLOSING, 2 | u64::from(errno) << 8);
    }

    /// Says how whoever carries what is sent shall do so. It looks when it is rung.
    pub fn serve(&mut self, service: Service) {
        self.say(SERVICE, service.word());
    }

    fn say(&mut self, offset: usize, word: u64) {
        self.outgoing
            .slot(offset - WAITS_FOR_ROOM, LINE)
            .expect("the area was checked when the lane was made")
            .publish(word);
    }

    /// Before bytes are sent.
    #[inline]
    pub(crate) fn begin(&mut self, sight: &Sight<M>, cursor: &mut SendCursor) -> Result<()> {
        if cursor.ended != 0 {
            return Err(Error::new(ErrorKind::Ended, "bytes behind the end"));
        }
        if cursor.position / self.stride() != cursor.stride {
            self.rewind(sight, cursor)?;
        }
        Ok(())
    }

    /// How many lines a slot may take that wants so many: none if there is no room.
    #[inline]
    fn room(&self, sight: &Sight<M>, cursor: &mut SendCursor, wanted: u64) -> Result<u64> {
        let free = self.free(sight, cursor, wanted)?;
        Ok(free.min(self.ring.left(cursor.position)).min(wanted))
    }

    /// How many lines are free for slots that take so many; those beyond that need not be known.
    #[inline]
    pub(crate) fn free(
        &self,
        sight: &Sight<M>,
        cursor: &mut SendCursor,
        wanted: u64,
    ) -> Result<u64> {
        let position = cursor.position;
        // The line behind the slot must be free, too.
        let (ring, pad) = (self.ring, cursor.pad);
        let free = |returned| {
            let out = position - returned;
            let here = (ring.lines() - 1).saturating_sub(out);
            if wanted == 1 {
                return here;
            }
            let slots = out - ring.padded(pad, returned);
            here.min((ring.reach() - 1).saturating_sub(slots))
        };
        if free(cursor.returned) < wanted {
            let returned = sight.returned(cursor.returned, position)?;
            cursor.returned = returned;
        }
        Ok(free(cursor.returned))
    }

    /// How many lines there are between two places where it is asked whether to begin at the ring's start.
    #[inline]
    const fn stride(&self) -> u64 {
        self.ring.lines() / STRIDES
    }

    /// Goes back to the ring's start if the reader is near.
    #[cold]
    fn rewind(&mut self, sight: &Sight<M>, cursor: &mut SendCursor) -> Result<()> {
        let stride = self.stride();
        if self.ring.index(cursor.position) >= stride {
            cursor.returned = sight.returned(cursor.returned, cursor.position)?;
            if cursor.position - cursor.returned <= stride / NEAR {
                self.pad(cursor)?;
            }
        }
        cursor.stride = cursor.position / stride;
        Ok(())
    }

    /// Goes on at the ring's start: what is left of the ring, and the line there, are free.
    pub(crate) fn pad(&mut self, cursor: &mut SendCursor) -> Result<()> {
        cursor.pad = cursor.position;
        cursor.position = self
            .ring
            .put(&mut self.outgoing, cursor.position, Kind::Pad, &[])?;
        Ok(())
    }
}
