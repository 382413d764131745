//! The slots of a ring pair.

use millrace_window::WORD;

use crate::ring::SlotKind;

/// The most payload bytes of a slot.
pub(crate) const SLOT_BYTES_MAX: usize = 8192;

/// The salt of the tags.
pub(crate) const SALT: u32 = 0x6c6c_696d;

/// The kind of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A pad: the next slot is at the ring's start.
    Pad = 1,
    /// The payload is bytes of the stream.
    Data = 2,
    /// The payload is the stream's total: its end.
    Finish = 3,
    /// One urgent byte of the stream.
    Urgent = 4,
}

impl SlotKind for Kind {
    const PAD: Self = Self::Pad;

    #[inline]
    fn byte(self) -> u8 {
        self as u8
    }

    #[inline]
    fn find(byte: u8, length: usize, flags: u8) -> Option<Self> {
        match byte {
            2 if (1..=SLOT_BYTES_MAX).contains(&length) && flags == 0 => Some(Self::Data),
            3 if length == WORD && flags == 0 => Some(Self::Finish),
            4 if length == 1 && flags == 0 => Some(Self::Urgent),
            _ => None,
        }
    }
}
