//! One side of a connection.

use std::ops::Range;

use millrace_window::{LINE, Mapped, Medium, Window};

use crate::ring::Ring;
use crate::slot::SALT;
use crate::{Error, ErrorKind, Receiver, Result, Sender, Sight};

/// How large a connection's memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// How many lines of 64 bytes each of the two rings has: a power of two from 64 to 65,536.
    pub ring_lines: u32,
}

/// Which of the two a side is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It asked for the connection, and stores to the first area.
    Connecting,
    /// It was asked, and stores to the second area.
    Accepting,
}

/// One side of a connection: what it may look at, and the two things it may do.
///
/// ```text
/// memory:  area of the connecting side | area of the accepting side
///
/// area, stored to by its side alone:
///     0  returned        lines of the other area's ring that were taken, since the start of the connection
///   128  waits for data  how often this side has gone to sleep for data
///   256  waits for room  how often it has gone to sleep for room in its own ring
///   384  closing         0 open, 1 closed, or 2 + errno * 256 for a reset
///   512  urgent          the place of the last urgent byte that this side sends, counted from 1; 0 is none
///   640  service         how whoever carries this side's bytes shall do so: class + 1 + bytes a second * 256
///  1024  ring            lines of 64 bytes
/// ```
/// Each of the six is the word of a slot; all memory is zero at the start. An area begins with a page and has so many
/// pages that its ring ends within: a connection of a few short messages takes one page of each. Version 2.
#[derive(Debug)]
pub struct Lane<M: Medium = Mapped> {
    /// The peer's area.
    pub sight: Sight<M>,
    /// What is stored when this side sends.
    pub sender: Sender<M>,
    /// What is stored when this side receives.
    pub receiver: Receiver<M>,
}

/// Bytes of an area before its ring.
pub(crate) const RING: usize = 1024;
/// What an area begins and ends at a multiple of: bytes.
const PAGE: usize = 4096;
/// Where an area has its words.
pub(crate) const RETURNED: usize = 0;
pub(crate) const WAITS_FOR_DATA: usize = 128;
pub(crate) const WAITS_FOR_ROOM: usize = 256;
pub(crate) const CLOSING: usize = 384;
pub(crate) const URGENT: usize = 512;
pub(crate) const SERVICE: usize = 640;

impl Geometry {
    /// Rings of 1 MiB, of which slots of more than one line take up 256 KiB at most. What was never stored to takes
    /// no memory.
    pub const DEFAULT: Self = Self { ring_lines: 16_384 };

    /// # Errors
    /// [`ErrorKind::Geometry`] if it is none.
    pub const fn check(self) -> Result<()> {
        let lines = self.ring_lines;
        if lines.is_power_of_two() && 64 <= lines && lines <= 65_536 {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Geometry,
            "a ring has 64 to 65,536 lines, a power of two",
        ))
    }

    /// How many bytes a connection's memory has.
    #[must_use]
    pub const fn size(self) -> usize {
        2 * self.area()
    }

    const fn area(self) -> usize {
        (RING + self.ring_lines as usize * LINE).next_multiple_of(PAGE)
    }
}

impl Side {
    /// The other one.
    #[must_use]
    pub const fn peer(self) -> Self {
        match self {
            Self::Connecting => Self::Accepting,
            Self::Accepting => Self::Connecting,
        }
    }

    const fn area(self, geometry: Geometry) -> Range<usize> {
        let size = geometry.area();
        match self {
            Self::Connecting => 0..size,
            Self::Accepting => size..2 * size,
        }
    }
}

impl<M: Medium> Lane<M> {
    /// This side of the connection whose memory begins with the window.
    ///
    /// # Errors
    /// [`ErrorKind::Geometry`] if there is no such geometry; [`ErrorKind::Window`] if the window is smaller, for
    /// one direction alone, or has a lane already.
    pub fn new(window: &Window<M>, geometry: Geometry, side: Side) -> Result<Self> {
        geometry.check()?;
        let (own, peer) = (side.area(geometry), side.peer().area(geometry));
        let receiver = window.outgoing(own.start..own.start + WAITS_FOR_ROOM)?;
        let sender = window.outgoing(own.start + WAITS_FOR_ROOM..own.end)?;
        let ring = |skipped| Ring::new(RING - skipped, geometry.ring_lines, SALT);
        Ok(Self {
            sight: Sight::new(window.incoming(peer)?, ring(0)),
            sender: Sender::new(sender, ring(WAITS_FOR_ROOM)),
            receiver: Receiver::new(receiver, ring(0)),
        })
    }
}
