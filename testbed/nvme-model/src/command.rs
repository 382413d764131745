//! A submission queue entry (base specification 1.4, section 4.2).

/// The 64 bytes as 16 words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    pub(crate) words: [u32; 16],
}

/// Admin command opcodes (base specification 1.4, figure 139).
pub(crate) mod admin {
    pub(crate) const DELETE_SUBMISSION_QUEUE: u8 = 0x00;
    pub(crate) const CREATE_SUBMISSION_QUEUE: u8 = 0x01;
    pub(crate) const GET_LOG_PAGE: u8 = 0x02;
    pub(crate) const DELETE_COMPLETION_QUEUE: u8 = 0x04;
    pub(crate) const CREATE_COMPLETION_QUEUE: u8 = 0x05;
    pub(crate) const IDENTIFY: u8 = 0x06;
    pub(crate) const ABORT: u8 = 0x08;
    pub(crate) const SET_FEATURES: u8 = 0x09;
    pub(crate) const GET_FEATURES: u8 = 0x0a;
    pub(crate) const ASYNCHRONOUS_EVENT_REQUEST: u8 = 0x0c;
    pub(crate) const DOORBELL_BUFFER_CONFIG: u8 = 0x7c;
    pub(crate) const FORMAT_NVM: u8 = 0x80;
}

/// NVM command opcodes (NVM command set specification 1.0, figure 21).
pub(crate) mod nvm {
    pub(crate) const FLUSH: u8 = 0x00;
    pub(crate) const WRITE: u8 = 0x01;
    pub(crate) const READ: u8 = 0x02;
    pub(crate) const WRITE_UNCORRECTABLE: u8 = 0x04;
    pub(crate) const COMPARE: u8 = 0x05;
    pub(crate) const WRITE_ZEROES: u8 = 0x08;
    pub(crate) const DATASET_MANAGEMENT: u8 = 0x09;
}

/// Sets of dwords, one bit each: the namespace, the data pointer, and the last ones.
pub(crate) mod dwords {
    pub(crate) const NAMESPACE: u16 = 1 << 1;
    pub(crate) const POINTER: u16 = 0xf << 6;
    pub(crate) const FROM_10: u16 = 0x3f << 10;
    pub(crate) const FROM_11: u16 = 0x1f << 11;
    pub(crate) const FROM_12: u16 = 0xf << 12;
    pub(crate) const FROM_13: u16 = 7 << 13;
    pub(crate) const FROM_14: u16 = 3 << 14;
}

/// How a command says where its data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pointer {
    Prp,
    Sgl,
    /// A value that is reserved, or names metadata as SGL.
    Reserved,
}

impl Command {
    pub(crate) const fn opcode(&self) -> u8 {
        (self.words[0] & 0xff) as u8
    }

    pub(crate) const fn id(&self) -> u16 {
        (self.words[0] >> 16) as u16
    }

    pub(crate) const fn is_fused(&self) -> bool {
        self.words[0] & 0x300 != 0
    }

    /// Bits 13:10 of the first word.
    pub(crate) const fn reserved(&self) -> u32 {
        self.words[0] >> 10 & 0xf
    }

    pub(crate) const fn pointer(&self) -> Pointer {
        match self.words[0] >> 14 & 3 {
            0 => Pointer::Prp,
            1 => Pointer::Sgl,
            _ => Pointer::Reserved,
        }
    }

    pub(crate) const fn namespace(&self) -> u32 {
        self.words[1]
    }

    pub(crate) const fn metadata(&self) -> u64 {
        self.long(4)
    }

    /// PRP entry 1, or the first 8 bytes of the SGL descriptor.
    pub(crate) const fn data_first(&self) -> u64 {
        self.long(6)
    }

    /// PRP entry 2, or the rest of the SGL descriptor.
    pub(crate) const fn data_second(&self) -> u64 {
        self.long(8)
    }

    /// Command dword `number`.
    pub(crate) const fn dword(&self, number: usize) -> u32 {
        self.words[number]
    }

    /// Two command dwords, the lower first.
    pub(crate) const fn long(&self, number: usize) -> u64 {
        (self.words[number + 1] as u64) << 32 | self.words[number] as u64
    }
}
