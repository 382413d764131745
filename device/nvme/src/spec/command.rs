//! Submission queue entries (Base 4.2).
//!
//! ```text
//!   dword 0       1      2,3   4,5    6,7    8,9    10 .. 15
//!        | CDW0 | NSID |  0  | MPTR | PRP1 | PRP2 | of the command |
//!                                   |  SGL1       |
//!   CDW0 = opcode | fused << 8 | PSDT << 14 | command id << 16
//! ```

use millrace_memory::Iova;

/// Opcodes of admin commands (Base 5).
pub(crate) mod admin {
    pub(crate) const DELETE_SQ: u8 = 0x00;
    pub(crate) const CREATE_SQ: u8 = 0x01;
    pub(crate) const GET_LOG_PAGE: u8 = 0x02;
    pub(crate) const DELETE_CQ: u8 = 0x04;
    pub(crate) const CREATE_CQ: u8 = 0x05;
    pub(crate) const IDENTIFY: u8 = 0x06;
    pub(crate) const ABORT: u8 = 0x08;
    pub(crate) const SET_FEATURES: u8 = 0x09;
    pub(crate) const GET_FEATURES: u8 = 0x0a;
    pub(crate) const ASYNC_EVENT: u8 = 0x0c;
    pub(crate) const DOORBELL_BUFFERS: u8 = 0x7c;
    pub(crate) const FORMAT: u8 = 0x80;
}

/// Opcodes of I/O commands (NVM 3).
pub(crate) mod io {
    pub(crate) const FLUSH: u8 = 0x00;
    pub(crate) const WRITE: u8 = 0x01;
    pub(crate) const READ: u8 = 0x02;
    pub(crate) const COMPARE: u8 = 0x05;
    pub(crate) const WRITE_ZEROES: u8 = 0x08;
    pub(crate) const DATASET_MANAGEMENT: u8 = 0x09;
}

/// Feature identifiers (Base 5.21.1).
pub(crate) mod feature {
    pub(crate) const VOLATILE_WRITE_CACHE: u8 = 0x06;
    pub(crate) const NUMBER_OF_QUEUES: u8 = 0x07;
    pub(crate) const ASYNC_EVENTS: u8 = 0x0b;
}

/// Force unit access, in CDW12 of reads and writes (NVM 3.2.4).
pub(crate) const FUA: u32 = 1 << 30;
/// Deallocate rather than write, in CDW12 of Write Zeroes (NVM 3.2.7).
pub(crate) const DEALLOCATE_ZEROES: u32 = 1 << 25;
/// Deallocate, in CDW11 of Dataset Management (NVM 3.2.3).
pub(crate) const DSM_DEALLOCATE: u32 = 1 << 2;

/// Data pointer of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pointer {
    /// Two physical region pages; the second may be the list's.
    Prp(Iova, u64),
    /// The bytes of one scatter-gather descriptor, as two words.
    Sgl(u64, u64),
}

/// One entry, as the words of it that are ever used; the others are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    /// Command dwords 0 and 1: opcode, flags, id, namespace.
    head: u64,
    /// Command dwords 6 to 9: data pointer.
    pointer: [u64; 2],
    /// Command dwords 10 and 11.
    dwords_10_11: u64,
    /// Command dword 12, whose meaning depends on the opcode.
    dword_12: u32,
}

impl Command {
    /// A command with nothing but opcode and namespace.
    #[inline(always)]
    pub(crate) const fn new(opcode: u8, namespace: u32) -> Self {
        Self {
            head: opcode as u64 | (namespace as u64) << 32,
            pointer: [0; 2],
            dwords_10_11: 0,
            dword_12: 0,
        }
    }

    /// Opcode of the command.
    pub(crate) const fn opcode(&self) -> u8 {
        (self.head & 0xff) as u8
    }

    /// This command with a data pointer.
    #[inline(always)]
    pub(crate) const fn with_pointer(mut self, pointer: Pointer) -> Self {
        match pointer {
            Pointer::Prp(first, second) => self.pointer = [first.0, second],
            Pointer::Sgl(address, rest) => {
                // PSDT 01b: scatter-gather list, contiguous metadata (unused).
                self.head |= 1 << 14;
                self.pointer = [address, rest];
            }
        }
        self
    }

    /// This command with dwords 10 and 11.
    pub(crate) const fn with_10_11(mut self, dword10: u32, dword11: u32) -> Self {
        self.dwords_10_11 = dword10 as u64 | (dword11 as u64) << 32;
        self
    }

    /// This command with its blocks: the first in dwords 10 and 11, their number less one in dword 12, together with
    /// `flags`.
    #[inline(always)]
    pub(crate) const fn with_blocks(mut self, lba: u64, flags: u32, blocks: u32) -> Self {
        self.dwords_10_11 = lba;
        self.dword_12 = flags | (blocks - 1);
        self
    }

    /// The entry's words, with the command's id.
    #[inline(always)]
    pub(crate) const fn words(&self, id: u16) -> [u64; 8] {
        let [first, second] = self.pointer;
        [
            self.head | (id as u64) << 16,
            0,
            0,
            first,
            second,
            self.dwords_10_11,
            self.dword_12 as u64,
            0,
        ]
    }
}

/// A scatter-gather descriptor of bytes in memory (Base 4.4, type 0).
pub(crate) fn sgl_data(address: Iova, length: u32) -> (u64, u64) {
    (address.0, u64::from(length))
}

/// A scatter-gather descriptor of the last list of descriptors (Base 4.4, type 3).
pub(crate) fn sgl_last_segment(address: Iova, length: u32) -> (u64, u64) {
    (address.0, u64::from(length) | 0x30 << 56)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_where_the_specification_has_them() {
        let command = Command::new(io::READ, 0x0102_0304)
            .with_pointer(Pointer::Prp(Iova(0xaaaa_0000), 0xbbbb_0000))
            .with_blocks(0x11_0000_0010, FUA, 0x13);
        let mut bytes = Vec::new();
        for word in command.words(0x7788) {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        assert_eq!(bytes.len(), 64);
        assert_eq!(bytes[..8], [0x02, 0, 0x88, 0x77, 4, 3, 2, 1]);
        assert_eq!(bytes[24..32], 0xaaaa_0000_u64.to_le_bytes());
        assert_eq!(bytes[32..40], 0xbbbb_0000_u64.to_le_bytes());
        assert_eq!(bytes[40], 0x10);
        assert_eq!(bytes[44], 0x11);
        assert_eq!(bytes[48..52], [0x12, 0, 0, 0x40]);
    }

    #[test]
    fn a_scatter_gather_pointer_says_so_in_the_first_dword() {
        let (address, rest) = sgl_last_segment(Iova(0x1000), 32);
        let words = Command::new(io::WRITE, 1)
            .with_pointer(Pointer::Sgl(address, rest))
            .words(0);
        assert_eq!(words[0] >> 14 & 3, 1);
        assert_eq!(words[3], 0x1000);
        assert_eq!(words[4].to_le_bytes()[..4], 32_u32.to_le_bytes());
        assert_eq!(words[4].to_le_bytes()[7], 0x30);
    }
}
