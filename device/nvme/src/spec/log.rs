//! Log pages (Base 5.14.1).

use super::{u16_at, u32_at, u64_at, u128_at};
use crate::spec::status::Status;
use crate::{Error, ErrorKind, Result};

/// Log page identifiers.
pub(crate) mod page {
    pub(crate) const ERRORS: u8 = 0x01;
    pub(crate) const HEALTH: u8 = 0x02;
    pub(crate) const CHANGED_NAMESPACES: u8 = 0x04;
}

/// Bytes of the SMART / Health Information log page.
pub const HEALTH_SIZE: usize = 512;
/// Bytes of an entry of the Error Information log page.
pub const ERROR_SIZE: usize = 64;

/// The SMART / Health Information log page (Base figure 194).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Bit 0 spare low, 1 temperature, 2 reliability degraded, 3 read only, 4 backup of the cache failed,
    /// 5 persistent memory unreliable.
    pub warnings: u8,
    /// Composite temperature of controller and namespaces in kelvin.
    pub temperature: u16,
    /// Spare that is left, in percent.
    pub spare: u8,
    /// Below this the spare is low, in percent.
    pub spare_threshold: u8,
    /// Life that is used, in percent; may exceed 100.
    pub used: u8,
    /// Data read, in units of 512,000 bytes.
    pub data_read: u128,
    /// Data written, in units of 512,000 bytes.
    pub data_written: u128,
    /// Number of Read and Compare commands.
    pub reads: u128,
    /// Number of Write commands that the controller has completed.
    pub writes: u128,
    /// Minutes with a command under way.
    pub busy_minutes: u128,
    /// Number of power cycles in the device's life.
    pub power_cycles: u128,
    /// Hours with power; time in a non-operational power state may not count.
    pub power_on_hours: u128,
    /// Number of power losses without a shutdown.
    pub unsafe_shutdowns: u128,
    /// Data that could not be recovered.
    pub media_errors: u128,
    /// Entries ever made in the error log.
    pub error_entries: u128,
    /// Minutes above the temperature at which it warns.
    pub warning_minutes: u32,
    /// Minutes above the temperature at which it is in danger.
    pub critical_minutes: u32,
    /// Kelvin, of sensors 1 to 8; none where there is no such sensor.
    pub sensors: [Option<u16>; 8],
}

impl Health {
    /// Reads the 512 bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Protocol`] if there are fewer.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        check_size(bytes, HEALTH_SIZE, "health log")?;
        Ok(Self {
            warnings: bytes[0],
            temperature: u16_at(bytes, 1),
            spare: bytes[3],
            spare_threshold: bytes[4],
            used: bytes[5],
            data_read: u128_at(bytes, 32),
            data_written: u128_at(bytes, 48),
            reads: u128_at(bytes, 64),
            writes: u128_at(bytes, 80),
            busy_minutes: u128_at(bytes, 96),
            power_cycles: u128_at(bytes, 112),
            power_on_hours: u128_at(bytes, 128),
            unsafe_shutdowns: u128_at(bytes, 144),
            media_errors: u128_at(bytes, 160),
            error_entries: u128_at(bytes, 176),
            warning_minutes: u32_at(bytes, 192),
            critical_minutes: u32_at(bytes, 196),
            sensors: std::array::from_fn(|index| {
                Some(u16_at(bytes, 200 + 2 * index)).filter(|kelvin| *kelvin != 0)
            }),
        })
    }

    /// Names of the warning bits that are set.
    #[must_use]
    pub fn warning_names(&self) -> Vec<&'static str> {
        [
            "spare below its threshold",
            "temperature out of range",
            "reliability degraded",
            "media read only",
            "backup of the volatile memory failed",
            "persistent memory unreliable",
        ]
        .into_iter()
        .enumerate()
        .filter(|(bit, _)| self.warnings >> bit & 1 == 1)
        .map(|(_, name)| name)
        .collect()
    }
}

/// An entry of the Error Information log page (Base figure 193).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorEntry {
    /// The how manieth error it was, from one on.
    pub number: u64,
    /// The command's submission queue, 0xffff if it was not one command.
    pub queue: u16,
    /// The command's id, 0xffff if it was not one command.
    pub command: u16,
    /// Status of the command that failed, without the phase bit.
    pub status: Status,
    /// First logical block that had the error.
    pub block: u64,
    /// Id of the namespace that the error concerns.
    pub namespace: u32,
}

impl ErrorEntry {
    /// Reads the entries that there are of a log page, newest first.
    ///
    /// # Errors
    /// [`ErrorKind::Protocol`] if the page is not whole entries.
    pub fn parse_all(bytes: &[u8]) -> Result<Vec<Self>> {
        if bytes.len() % ERROR_SIZE != 0 {
            let size = bytes.len();
            let context = format!("error log of {size} bytes");
            return Err(Error::new(ErrorKind::Protocol, context));
        }
        let entries = bytes.chunks_exact(ERROR_SIZE).map(|entry| Self {
            number: u64_at(entry, 0),
            queue: u16_at(entry, 8),
            command: u16_at(entry, 10),
            status: Status(u16_at(entry, 12) >> 1),
            block: u64_at(entry, 16),
            namespace: u32_at(entry, 24),
        });
        Ok(entries.filter(|entry| entry.number != 0).collect())
    }
}

fn check_size(bytes: &[u8], size: usize, what: &str) -> Result<()> {
    if bytes.len() < size {
        let context = format!("{what} of {} bytes", bytes.len());
        return Err(Error::new(ErrorKind::Protocol, context));
    }
    Ok(())
}
