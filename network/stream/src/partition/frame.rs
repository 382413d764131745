//! The frames of a partition.

use millrace_window::WORD;

use crate::ring::SlotKind;

/// The most payload bytes of one frame.
pub(super) const MTU_MAX: usize = 8192;
/// Bytes of a frame's header behind the slot's word: without a checksum and with one.
pub(super) const HEADER: usize = 8;
pub(super) const HEADER_CHECKED: usize = 16;
/// The flag of a frame with a checksum.
pub(super) const CHECKED: u8 = 1;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// A pad: the next slot is at the ring's start.
    Pad = 1,
    /// Bytes of a connection.
    Data = 2,
    /// A credit without bytes.
    Credit = 3,
    /// The end of the bytes, with their count.
    Finish = 4,
    /// A reset: an errno and the count of bytes. The sender's last frame.
    Reset = 5,
    /// The sender's last frame for this connection, without a reset.
    Close = 6,
    /// Bytes of a connection, the first of them urgent.
    Urgent = 7,
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The receiver's number of the connection.
    pub(super) connection: u32,
    /// The cumulative credit of the frame's receiver, in units of 64 bytes.
    pub(super) credit: u32,
}

impl SlotKind for Kind {
    const PAD: Self = Self::Pad;

    #[inline]
    fn byte(self) -> u8 {
        self as u8
    }

    #[inline]
    fn find(byte: u8, length: usize, flags: u8) -> Option<Self> {
        let header = match flags {
            0 => HEADER,
            CHECKED => HEADER_CHECKED,
            _ => return None,
        };
        let payload = length.checked_sub(header)?;
        match byte {
            2 if (1..=MTU_MAX).contains(&payload) => Some(Self::Data),
            3 if payload == 0 => Some(Self::Credit),
            4 if payload == WORD => Some(Self::Finish),
            5 if payload == 2 * WORD => Some(Self::Reset),
            6 if payload == 0 => Some(Self::Close),
            7 if (1..=MTU_MAX).contains(&payload) => Some(Self::Urgent),
            _ => None,
        }
    }
}

impl Header {
    /// Stores the header at the start of a frame.
    pub(super) fn put(self, frame: &mut [u8]) {
        frame[..4].copy_from_slice(&self.connection.to_le_bytes());
        frame[4..8].copy_from_slice(&self.credit.to_le_bytes());
    }

    /// Reads the header of a frame of at least eight bytes.
    pub(super) fn get(frame: &[u8]) -> Self {
        Self {
            connection: number(frame, 0),
            credit: number(frame, 4),
        }
    }
}

/// The u32 at `offset`, which must lie within.
pub(super) fn number(frame: &[u8], offset: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&frame[offset..offset + 4]);
    u32::from_le_bytes(bytes)
}

/// The u64 at `offset`, which must lie within.
pub(super) fn total(frame: &[u8], offset: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&frame[offset..offset + 8]);
    u64::from_le_bytes(bytes)
}

/// The checksum of a frame: CRC32C of its word, its header without the checksum, and its payload.
#[cfg(feature = "checksum")]
pub(super) fn check(word: u64, frame: &[u8]) -> u32 {
    let crc = millrace_checksum::crc32c(&word.to_le_bytes());
    let crc = millrace_checksum::extend(crc, &frame[..HEADER]);
    millrace_checksum::extend(crc, &frame[HEADER_CHECKED..])
}

/// Unreachable: without the feature no partition with checksums is made.
#[cfg(not(feature = "checksum"))]
pub(super) const fn check(_: u64, _: &[u8]) -> u32 {
    0
}
