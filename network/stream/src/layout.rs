//! The layout of a connection's memory.
//!
//! ```text
//! memory:  area of the connecting side | area of the accepting side
//!
//! area, stored to by its side alone:
//!     0  returned        lines of the other area's ring that were taken, since the start of the connection
//!   128  waits for data  the count of this side's sleeps for data
//!   256  waits for room  the count of this side's sleeps for room in its own ring
//!   384  closing         0 open, 1 closed, or 2 + errno * 256 for a reset
//!   512  urgent          the place of the last urgent byte that this side sends, counted from 1; 0 is none
//!   640  service         the service that this side requests of a forwarder: class + 1 + bytes a second * 256
//!  1024  ring            lines of 64 bytes
//! ```
//! Each of the six is the word of a slot; all memory is zero at the start. An area begins with a page and has as many
//! pages as its ring needs: a connection of a few short messages takes one page of each area. Version 2.

use std::ops::Range;

use millrace_window::LINE;

use crate::{Error, ErrorKind, Result};

/// The geometry of a connection's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The lines of 64 bytes of each of the two rings: a power of two from 64 to 65,536.
    pub ring_lines: u32,
}

/// One of the two sides of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The side that requested the connection; it stores to the first area.
    Connecting,
    /// The side that accepted the connection; it stores to the second area.
    Accepting,
}

/// Bytes of an area before its ring.
pub(crate) const RING: usize = 1024;
/// The alignment of an area in bytes.
const PAGE: usize = 4096;
/// Offsets of the words of an area.
pub(crate) const RETURNED: usize = 0;
pub(crate) const WAITS_FOR_DATA: usize = 128;
pub(crate) const WAITS_FOR_ROOM: usize = 256;
pub(crate) const CLOSING: usize = 384;
pub(crate) const URGENT: usize = 512;
pub(crate) const SERVICE: usize = 640;

impl Geometry {
    /// Rings of 1 MiB, of which slots of more than one line take up at most 256 KiB. Memory that was never stored to is
    /// not allocated.
    pub const DEFAULT: Self = Self { ring_lines: 16_384 };

    /// Checks the limits of the geometry.
    ///
    /// # Errors
    /// [`ErrorKind::Geometry`] if a value is out of range.
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

    /// The size of a connection's memory in bytes.
    #[must_use]
    pub const fn size(self) -> usize {
        2 * self.area()
    }

    const fn area(self) -> usize {
        (RING + self.ring_lines as usize * LINE).next_multiple_of(PAGE)
    }
}

impl Side {
    /// The opposite side of the connection.
    #[must_use]
    pub const fn peer(self) -> Self {
        match self {
            Self::Connecting => Self::Accepting,
            Self::Accepting => Self::Connecting,
        }
    }

    pub(crate) const fn area(self, geometry: Geometry) -> Range<usize> {
        let size = geometry.area();
        match self {
            Self::Connecting => 0..size,
            Self::Accepting => size..2 * size,
        }
    }
}
