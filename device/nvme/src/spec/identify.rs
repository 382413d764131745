//! Identify data structures (Base 5.15), checked as what comes from outside: whatever the bytes, reading
//! them gives a value or an error.

use std::fmt;

use super::{text_at, u16_at, u32_at, u64_at, u128_at};
use crate::{Error, ErrorKind, Result};

/// Bytes of an Identify data structure.
pub const IDENTIFY_SIZE: usize = 4096;

/// What to identify (CNS, Base figure 244).
pub(crate) mod cns {
    pub(crate) const NAMESPACE: u32 = 0;
    pub(crate) const CONTROLLER: u32 = 1;
    pub(crate) const ACTIVE_NAMESPACES: u32 = 2;
    /// Of the I/O command set with number 0, which is NVM (from Base 2.0 on).
    pub(crate) const NVM_CONTROLLER: u32 = 6;
}

/// The Identify Controller data structure, as far as it is used (Base figure 247).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerData {
    /// PCI vendor id of the function (VID).
    pub vendor: u16,
    /// Serial number, trimmed, at most 20 ASCII characters (SN).
    pub serial: String,
    /// Model number, trimmed, at most 40 ASCII characters (MN).
    pub model: String,
    /// Firmware revision, trimmed, at most 8 ASCII characters (FR).
    pub firmware: String,
    /// log2 of the longest transfer in smallest memory pages; zero: no limit (MDTS).
    pub transfer_shift: u8,
    /// Controller id in its subsystem (CNTLID).
    pub controller: u16,
    /// Version: major << 16 | minor << 8 | tertiary.
    pub version: u32,
    /// Longest normal shutdown in microseconds; zero if not reported (RTD3E).
    pub shutdown_us: u32,
    /// Supported optional asynchronous events, as bits (OAES).
    pub events: u32,
    /// Supported optional admin commands, as bits (OACS).
    pub admin_commands: u16,
    /// How many aborts may be under way, less one (ACL).
    pub aborts: u8,
    /// How many asynchronous event requests may be under way, less one (AERL).
    pub event_requests: u8,
    /// The most entries of its error log (ELPE, which counts from zero).
    pub error_entries: u16,
    /// Warning temperature in kelvin; zero if not reported (WCTEMP).
    pub temperature_warning: u16,
    /// Temperature in kelvin at which it is in danger (CCTEMP).
    pub temperature_critical: u16,
    /// Capacity of all media in bytes, zero if not reported (TNVMCAP).
    pub capacity: u128,
    /// Sizes of a submission queue entry: smallest in bits 3:0, largest in 7:4, log2 (SQES).
    pub sqe_sizes: u8,
    /// Sizes of a completion queue entry, as exponents of two (CQES).
    pub cqe_sizes: u8,
    /// Highest valid namespace id, active or not (NN).
    pub namespaces: u32,
    /// Supported optional I/O commands, as bits (ONCS).
    pub io_commands: u16,
    /// What Format changes at once, and whether it erases (FNA).
    pub format: u8,
    /// Whether it has a cache that loses its content with power (VWC).
    pub volatile_cache: bool,
    /// Blocks less one that are written whole or not at all while power stays (AWUN).
    pub atomic_write: u16,
    /// Blocks less one that a power failure never tears (AWUPF).
    pub atomic_write_power_fail: u16,
    /// Scatter-gather lists: bits 1:0 are 1 (any alignment) or 2 (of 4 bytes) if it takes them (SGLS).
    pub sgl: u32,
    /// NVMe qualified name of the subsystem (SUBNQN).
    pub qualified_name: String,
}

impl ControllerData {
    /// Reads the 4,096 bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Protocol`] if there are fewer, or they cannot be those of a controller for I/O.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        check_size(bytes, "Identify Controller")?;
        let data = Self {
            vendor: u16_at(bytes, 0),
            serial: text_at(bytes, 4, 20),
            model: text_at(bytes, 24, 40),
            firmware: text_at(bytes, 64, 8),
            transfer_shift: bytes[77],
            controller: u16_at(bytes, 78),
            version: u32_at(bytes, 80),
            shutdown_us: u32_at(bytes, 88),
            events: u32_at(bytes, 92),
            admin_commands: u16_at(bytes, 256),
            aborts: bytes[258],
            event_requests: bytes[259],
            error_entries: u16::from(bytes[262]) + 1,
            temperature_warning: u16_at(bytes, 266),
            temperature_critical: u16_at(bytes, 268),
            capacity: u128_at(bytes, 280),
            sqe_sizes: bytes[512],
            cqe_sizes: bytes[513],
            namespaces: u32_at(bytes, 516),
            io_commands: u16_at(bytes, 520),
            format: bytes[524],
            volatile_cache: bytes[525] & 1 == 1,
            atomic_write: u16_at(bytes, 526),
            atomic_write_power_fail: u16_at(bytes, 528),
            sgl: u32_at(bytes, 536),
            qualified_name: text_at(bytes, 768, 256),
        };
        let (kind, discovery) = (bytes[111], 2);
        if kind == discovery {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the controller is a discovery controller, which has no namespaces",
            ));
        }
        Ok(data)
    }

    /// Whether Compare is there (ONCS bit 0).
    #[must_use]
    pub const fn has_compare(&self) -> bool {
        self.io_commands & 1 != 0
    }

    /// Whether Dataset Management is there, which deallocates (ONCS bit 2).
    #[must_use]
    pub const fn has_dataset_management(&self) -> bool {
        self.io_commands & 1 << 2 != 0
    }

    /// Whether Write Zeroes is there (ONCS bit 3).
    #[must_use]
    pub const fn has_write_zeroes(&self) -> bool {
        self.io_commands & 1 << 3 != 0
    }

    /// Whether Format NVM is there (OACS bit 1).
    #[must_use]
    pub const fn has_format(&self) -> bool {
        self.admin_commands & 1 << 1 != 0
    }

    /// Whether shadow doorbells are there (OACS bit 8).
    #[must_use]
    pub const fn has_doorbell_buffers(&self) -> bool {
        self.admin_commands & 1 << 8 != 0
    }

    /// Whether I/O commands may carry scatter-gather lists.
    #[must_use]
    pub const fn has_sgl(&self) -> bool {
        matches!(self.sgl & 3, 1 | 2)
    }

    /// The longest transfer in bytes on a controller whose smallest page has `page_shift_min` bits, or none
    /// if there is no limit.
    #[must_use]
    pub fn transfer_max(&self, page_shift_min: u32) -> Option<u64> {
        let shift = u32::from(self.transfer_shift).checked_add(page_shift_min)?;
        // A limit beyond 2^63 bytes is none.
        (self.transfer_shift > 0 && shift < 63).then(|| 1 << shift)
    }
}

/// The I/O Command Set specific Identify Controller data structure of the NVM command set, as far as it is used
/// (NVM, CNS 06h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandLimits {
    /// Whether the controller was asked and has answered.
    pub are_known: bool,
    /// log2 of the longest Write Zeroes in smallest memory pages; zero: no limit (WZSL).
    pub write_zeroes_shift: u8,
    /// The most blocks of one range of a Dataset Management command; zero: no limit (DMRSL).
    pub range_blocks: u32,
    /// The most blocks of all ranges of one; zero: no limit (DMSL).
    pub ranges_blocks: u64,
}

impl CommandLimits {
    /// Reads the 4,096 bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Protocol`] if there are fewer.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        check_size(bytes, "I/O Command Set specific Identify Controller")?;
        Ok(Self {
            are_known: true,
            write_zeroes_shift: bytes[1],
            range_blocks: u32_at(bytes, 4),
            ranges_blocks: u64_at(bytes, 8),
        })
    }

    /// Longest Write Zeroes in bytes on a controller whose smallest page has `page` bytes: none if unknown, 2^64 - 1 if
    /// unlimited.
    #[must_use]
    pub fn write_zeroes_max(&self, page: u64) -> Option<u64> {
        let shift = u32::from(self.write_zeroes_shift);
        let max = match shift {
            1..64 => page.saturating_mul(1 << shift),
            _ => u64::MAX,
        };
        self.are_known.then_some(max)
    }

    /// The most blocks that one command deallocates, if there is a limit.
    #[must_use]
    pub fn deallocate_max(&self) -> Option<u64> {
        let limits = [u64::from(self.range_blocks), self.ranges_blocks];
        limits.into_iter().filter(|limit| *limit > 0).min()
    }
}

/// A format of blocks that a namespace can have (LBAF, NVM figure 98).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockFormat {
    /// Bytes of metadata in a block.
    pub metadata: u16,
    /// log2 of the bytes of a block.
    pub block_shift: u8,
    /// Relative performance, 0 best to 3 degraded.
    pub performance: u8,
}

/// The Identify Namespace data structure, as far as it is used (Base figure 245).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceData {
    /// Size of the namespace in blocks (NSZE).
    pub blocks: u64,
    /// Blocks that may be allocated at a time (NCAP).
    pub capacity: u64,
    /// Number of blocks allocated at present (NUSE).
    pub used: u64,
    /// Block formats that the namespace supports (LBAF).
    pub formats: Vec<BlockFormat>,
    /// Which of them it has (FLBAS).
    pub format: usize,
    /// Blocks less one that are written atomically without a power failure; none if the controller's limit applies
    /// (NAWUN).
    pub atomic_write: Option<u16>,
    /// Blocks less one that a power failure never tears; none if the controller's limit applies (NAWUPF).
    pub atomic_write_power_fail: Option<u16>,
    /// Blocks less one between boundaries over which writes are not atomic (NABSPF), zero if there are none.
    pub atomic_boundary: u16,
    /// The first block that an atomic boundary lies at (NABO).
    pub atomic_offset: u16,
    /// Blocks between boundaries that reads and writes should not cross, zero if there are none (NOIOB).
    pub optimal_boundary: u16,
    /// What deallocated blocks read as: 0 unsaid, 1 zeroes, 2 ones (DLFEAT bits 2:0).
    pub deallocated: u8,
    /// Whether Write Zeroes may be asked to deallocate (DLFEAT bit 3).
    pub zeroes_deallocate: bool,
    /// EUI-64, zero if it has none.
    pub eui64: u64,
    /// NGUID, zero if it has none; in the order of its bytes.
    pub nguid: u128,
}

impl NamespaceData {
    /// Reads the 4,096 bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Protocol`] if there are fewer, or they contradict themselves.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        check_size(bytes, "Identify Namespace")?;
        // Base 2.0: bits 6:5 are the upper bits of the format's number.
        let format = usize::from(bytes[26] & 0xf | (bytes[26] >> 5 & 3) << 4);
        let formats: Vec<BlockFormat> = (0..=usize::from(bytes[25]).min(63))
            .map(|index| {
                let entry = 128 + 4 * index;
                BlockFormat {
                    metadata: u16_at(bytes, entry),
                    block_shift: bytes[entry + 2],
                    performance: bytes[entry + 3] & 3,
                }
            })
            .collect();
        if format >= formats.len() {
            let count = formats.len();
            return Err(protocol(format!(
                "namespace in format {format} of {count} formats"
            )));
        }
        // Zero does not mean one block here, but the controller's unit.
        let has_atomicity = bytes[24] >> 1 & 1 == 1;
        let own_unit =
            |offset| Some(u16_at(bytes, offset)).filter(|unit| has_atomicity && *unit > 0);
        let nguid: [u8; 16] = u128_at(bytes, 104).to_le_bytes();
        let eui64: [u8; 8] = u64_at(bytes, 120).to_le_bytes();
        Ok(Self {
            blocks: u64_at(bytes, 0),
            capacity: u64_at(bytes, 8),
            used: u64_at(bytes, 16),
            formats,
            format,
            atomic_write: own_unit(34),
            atomic_write_power_fail: own_unit(36),
            atomic_boundary: u16_at(bytes, 44),
            atomic_offset: u16_at(bytes, 42),
            optimal_boundary: u16_at(bytes, 46),
            deallocated: bytes[33] & 7,
            zeroes_deallocate: bytes[33] >> 3 & 1 == 1,
            eui64: u64::from_be_bytes(eui64),
            nguid: u128::from_be_bytes(nguid),
        })
    }

    /// Block format that the namespace has at present (FLBAS).
    #[must_use]
    pub fn block_format(&self) -> BlockFormat {
        self.formats[self.format]
    }
}

/// Reads a list of namespace ids: ascending, ended by zero (Base 5.15.2.3).
///
/// # Errors
/// [`ErrorKind::Protocol`] if it is not ascending from beyond `after`.
pub fn parse_namespace_list(bytes: &[u8], after: u32) -> Result<Vec<u32>> {
    check_size(bytes, "Namespace List")?;
    let mut namespaces = Vec::new();
    let mut last = after;
    for entry in 0..IDENTIFY_SIZE / 4 {
        let id = u32_at(bytes, 4 * entry);
        if id == 0 {
            break;
        }
        if id <= last {
            return Err(protocol(format!("namespace {id} listed after {last}")));
        }
        namespaces.push(id);
        last = id;
    }
    Ok(namespaces)
}

fn check_size(bytes: &[u8], what: &str) -> Result<()> {
    if bytes.len() < IDENTIFY_SIZE {
        let size = bytes.len();
        return Err(protocol(format!("{what} data of {size} bytes")));
    }
    Ok(())
}

fn protocol(context: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Protocol, context.to_string())
}
