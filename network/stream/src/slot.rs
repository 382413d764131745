//! The slots of a lane.

use millrace_window::WORD;

use crate::ring::SlotKind;

/// The most bytes that one slot carries.
pub(crate) const SLOT_BYTES_MAX: usize = 8192;

/// What places are mixed with.
pub(crate) const SALT: u32 = 0x6c6c_696d;

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
    /// One byte of payload, which is urgent.
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
