//! Completion queue entries (Base 4.6).
//!
//! ```text
//!   byte  0        4        8          10         12          14
//!        | result | result2| SQ head  | SQ id    | command id | status, phase in bit 0 |
//! ```
//! The last 8 bytes are read as one word: a reader that sees its phase bit sees all of it.

use crate::spec::status::Status;

/// Offset of the word with the phase bit.
pub(crate) const TAIL_OFFSET: usize = 8;
/// The phase bit of that word.
pub(crate) const PHASE: u64 = 1 << 48;

/// The last 8 bytes of an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompletionTail(pub(crate) u64);

#[expect(
    clippy::cast_possible_truncation,
    reason = "each field is cut out of the word by its width"
)]
impl CompletionTail {
    /// How far the controller has read the submission queue.
    pub(crate) const fn sq_head(self) -> u16 {
        self.0 as u16
    }

    /// The submission queue of the command.
    pub(crate) const fn sq_id(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// Id of the completed command.
    pub(crate) const fn command_id(self) -> u16 {
        (self.0 >> 32) as u16
    }

    /// The bit that changes with each round of the ring, where it lies.
    pub(crate) const fn phase(self) -> u64 {
        self.0 & PHASE
    }

    /// Status field of the entry.
    pub(crate) const fn status(self) -> Status {
        Status((self.0 >> 49) as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_where_the_specification_has_them() {
        let bytes = [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x03, 0x80];
        let tail = CompletionTail(u64::from_le_bytes(bytes));
        assert_eq!(tail.sq_head(), 0x2211);
        assert_eq!(tail.sq_id(), 0x4433);
        assert_eq!(tail.command_id(), 0x6655);
        assert_eq!(tail.phase(), PHASE);
        assert_eq!(tail.status().code(), 1);
        assert!(tail.status().is_final());
        assert!(!tail.status().has_more());
    }
}
