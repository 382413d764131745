//! The layout of messages.
//!
//! ```text
//!   0       2         4              8       12      16
//!   +-------+---------+--------------+-------+-------+---------...
//!   |  id   | command | size, header | flags | error | payload
//!   |       |         | and payload  |       |       |
//!   +-------+---------+--------------+-------+-------+---------...
//! ```
//! Numbers are in the machine's order of bytes: both ends are on the same one. Bits 0 to 3 of the flags say
//! whether it is a command (0) or an answer (1); bit 5 that `error` holds an errno. Descriptors travel with
//! the first byte.

use crate::{Error, ErrorKind, Result};

/// Bytes of a header.
pub(super) const HEADER: usize = 16;
/// Flags of a header.
const KIND_MASK: u32 = 0xf;
const KIND_ANSWER: u32 = 1;
const FLAG_ERROR: u32 = 1 << 5;

/// The commands that a client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Command {
    Version = 1,
    DmaMap = 2,
    DmaUnmap = 3,
    DeviceInfo = 4,
    RegionInfo = 5,
    IrqInfo = 7,
    SetIrqs = 8,
    RegionRead = 9,
    RegionWrite = 10,
    Reset = 13,
}

/// Header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) id: u16,
    pub(super) command: u16,
    /// Bytes of header and payload.
    pub(super) size: u32,
    flags: u32,
    error: u32,
}

impl Header {
    /// Header of a command with `payload` bytes of payload.
    pub(super) fn command(id: u16, command: Command, payload: usize) -> Result<Self> {
        let size = u32::try_from(HEADER + payload).map_err(|error| {
            let context = format!("a message of {payload} bytes");
            Error::new(ErrorKind::OutOfRange, context).caused_by(error)
        })?;
        Ok(Self {
            id,
            command: command as u16,
            size,
            flags: 0,
            error: 0,
        })
    }

    pub(super) fn to_bytes(self) -> Vec<u8> {
        Payload::default()
            .half(self.id)
            .half(self.command)
            .word(self.size)
            .word(self.flags)
            .word(self.error)
            .bytes
    }

    pub(super) fn from_bytes(bytes: [u8; HEADER]) -> Self {
        let [a, b, c, d, rest @ ..] = bytes;
        let word =
            |at: usize| u32::from_ne_bytes([rest[at], rest[at + 1], rest[at + 2], rest[at + 3]]);
        Self {
            id: u16::from_ne_bytes([a, b]),
            command: u16::from_ne_bytes([c, d]),
            size: word(0),
            flags: word(4),
            error: word(8),
        }
    }

    /// Checks that it is the head of the answer to `sent`, with at most `payload_max` bytes of payload;
    /// returns how many there are.
    pub(super) fn check_answer(&self, sent: &Self, payload_max: usize) -> Result<usize> {
        let wrong = |what: &str| Error::new(ErrorKind::Protocol, format!("{what}: {self:?}"));
        if self.flags & KIND_MASK != KIND_ANSWER {
            return Err(wrong("a command where an answer was due"));
        }
        if (self.id, self.command) != (sent.id, sent.command) {
            return Err(wrong("an answer to something else"));
        }
        let payload = (self.size as usize)
            .checked_sub(HEADER)
            .ok_or_else(|| wrong("an answer shorter than its head"))?;
        if payload > payload_max {
            return Err(wrong("an answer longer than it may be"));
        }
        Ok(payload)
    }

    /// Errno of a refusal, 0 if the server sent none; none if it is no refusal.
    pub(super) fn refusal(&self) -> Option<u32> {
        (self.flags & FLAG_ERROR != 0).then_some(self.error)
    }
}

/// Payload under construction.
#[derive(Clone, Debug, Default)]
pub(super) struct Payload {
    pub(super) bytes: Vec<u8>,
}

impl Payload {
    pub(super) fn half(mut self, value: u16) -> Self {
        self.bytes.extend(value.to_ne_bytes());
        self
    }

    pub(super) fn word(mut self, value: u32) -> Self {
        self.bytes.extend(value.to_ne_bytes());
        self
    }

    pub(super) fn long(mut self, value: u64) -> Self {
        self.bytes.extend(value.to_ne_bytes());
        self
    }

    pub(super) fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend(bytes);
        self
    }
}
