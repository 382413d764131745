//! Controller registers (Base 3.1).

use std::time::Duration;

/// Offset of CAP, 8 bytes.
pub(crate) const CAP: u64 = 0x00;
/// Offset of VS.
pub(crate) const VS: u64 = 0x08;
/// Offset of CC.
pub(crate) const CC: u64 = 0x14;
/// Offset of CSTS.
pub(crate) const CSTS: u64 = 0x1c;
/// Offset of AQA.
pub(crate) const AQA: u64 = 0x24;
/// Offset of ASQ, 8 bytes.
pub(crate) const ASQ: u64 = 0x28;
/// Offset of ACQ, 8 bytes.
pub(crate) const ACQ: u64 = 0x30;
/// Offset of the first doorbell.
pub(crate) const DOORBELLS: u64 = 0x1000;

/// log2 of the size of a submission queue entry.
pub(crate) const SQE_SHIFT: u32 = 6;
/// log2 of the size of a completion queue entry.
pub(crate) const CQE_SHIFT: u32 = 4;

/// Controller Capabilities register, CAP, as read (Base 3.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities(pub u64);

impl Capabilities {
    /// The most entries of an I/O queue (MQES, which counts from zero).
    #[must_use]
    pub const fn queue_entries_max(self) -> u32 {
        (self.0 & 0xffff) as u32 + 1
    }

    /// How long enabling and disabling may take (TO, in units of 500 ms; zero is read as one unit).
    #[must_use]
    pub fn ready_timeout(self) -> Duration {
        let units = (self.0 >> 24) & 0xff;
        Duration::from_millis(500 * units.max(1))
    }

    /// Bytes from one doorbell to the next (DSTRD).
    #[must_use]
    pub const fn doorbell_stride(self) -> u64 {
        4 << ((self.0 >> 32) & 0xf)
    }

    /// Whether the NVM command set can be enabled by itself (CSS bit 0).
    #[must_use]
    pub const fn has_plain_nvm_commands(self) -> bool {
        (self.0 >> 37) & 1 == 1
    }

    /// Whether the NVM command set is there: by itself, or among all that Identify names (CSS bit 6; Base
    /// 2.0).
    #[must_use]
    pub const fn has_nvm_commands(self) -> bool {
        self.has_plain_nvm_commands() || (self.0 >> 43) & 1 == 1
    }

    /// log2 of the smallest memory page (MPSMIN).
    #[must_use]
    pub const fn page_shift_min(self) -> u32 {
        12 + ((self.0 >> 48) & 0xf) as u32
    }

    /// log2 of the largest memory page (MPSMAX).
    #[must_use]
    pub const fn page_shift_max(self) -> u32 {
        12 + ((self.0 >> 52) & 0xf) as u32
    }
}

/// Value of VS from version 2.0 on.
pub(crate) const VERSION_2: u32 = 2 << 16;

/// Bits of CC (Base 3.1.5).
pub(crate) mod cc {
    /// Enable.
    pub(crate) const ENABLE: u32 = 1;
    /// All I/O command sets that are supported (CSS).
    pub(crate) const ALL_COMMAND_SETS: u32 = 6 << 4;
    /// Where the memory page size begins (MPS, log2 less 12).
    pub(crate) const PAGE_SHIFT: u32 = 7;
    /// Normal shutdown (SHN).
    pub(crate) const SHUTDOWN: u32 = 1 << 14;
    /// All bits of SHN.
    pub(crate) const SHUTDOWN_MASK: u32 = 3 << 14;
    /// Where the entry sizes begin (IOSQES, IOCQES; log2).
    pub(crate) const SQE_SIZE: u32 = 16;
    pub(crate) const CQE_SIZE: u32 = 20;
}

/// Bits of CSTS (Base 3.1.6).
pub(crate) mod csts {
    /// Ready.
    pub(crate) const READY: u32 = 1;
    /// Controller fatal status.
    pub(crate) const FATAL: u32 = 1 << 1;
    /// Shutdown status.
    pub(crate) const SHUTDOWN_MASK: u32 = 3 << 2;
    /// Shutdown complete.
    pub(crate) const SHUTDOWN_DONE: u32 = 2 << 2;
}

/// Value that reads of a removed device return.
pub(crate) const GONE: u32 = u32::MAX;
