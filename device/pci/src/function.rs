//! The trait: what a driver needs of a function.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use millrace_memory::Domain;

use crate::{Bar, Result};

/// Offset of the command register in configuration space (PCI Local Bus 3.0, section 6.2.2).
const COMMAND: u16 = 0x04;
/// Bits of the command register: the function answers in memory space, may reach memory itself, and does not
/// assert INTx.
const COMMAND_MEMORY: u16 = 1 << 1;
const COMMAND_BUS_MASTER: u16 = 1 << 2;
const COMMAND_INTX_DISABLE: u16 = 1 << 10;

/// PCI identity of a function (PCI Local Bus 3.0, section 6.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The vendor, 0xffff if nothing answers.
    pub vendor: u16,
    /// The device, in the vendor's own counting.
    pub device: u16,
    /// Class, subclass and programming interface in the low 24 bits: 0x010802 is NVMe.
    pub class: u32,
    /// Revision of the device, in the vendor's own counting.
    pub revision: u8,
}

/// A PCI function that this process owns. All its users may be on different threads.
pub trait Function: fmt::Debug + Send + Sync {
    /// What it is called in messages: its address or the socket that serves it.
    fn name(&self) -> &str;

    /// Reads configuration space from `offset` on.
    ///
    /// # Errors
    /// If the offset lies outside, or the provider fails.
    fn read_config(&self, offset: u16, bytes: &mut [u8]) -> Result<()>;

    /// Writes configuration space from `offset` on.
    ///
    /// # Errors
    /// As [`Function::read_config`].
    fn write_config(&self, offset: u16, bytes: &[u8]) -> Result<()>;

    /// Registers behind base address 0 to 5. They stay mapped as long as a clone exists.
    ///
    /// # Errors
    /// If the function does not have these registers, or they are not accessible.
    fn bar(&self, index: u8) -> Result<Arc<Bar>>;

    /// Where the function reaches memory.
    fn domain(&self) -> Arc<dyn Domain>;

    /// How many MSI-X vectors it has; zero if it can only be polled.
    fn vectors(&self) -> u16;

    /// Signals `events[i]` (an eventfd) when vector `i` fires; replaces what was set before. No events
    /// switch interrupts off. Returns how many of the events were taken, the first ones: the host may have
    /// fewer vectors left than the function has, or none.
    ///
    /// # Errors
    /// If there are more events than vectors or the provider refuses.
    fn set_vectors(&self, events: &[BorrowedFd<'_>]) -> Result<usize>;

    /// Resets the function. Its memory access stops; configuration space and vectors must be set anew.
    ///
    /// # Errors
    /// If it cannot be reset alone, or the provider refuses.
    fn reset(&self) -> Result<()>;
}

impl dyn Function + '_ {
    /// Reads the PCI identity from configuration space.
    ///
    /// # Errors
    /// If configuration space is not readable.
    pub fn identity(&self) -> Result<Identity> {
        let mut header = [0; 12];
        self.read_config(0, &mut header)?;
        let [
            v0,
            v1,
            d0,
            d1,
            _,
            _,
            _,
            _,
            revision,
            interface,
            subclass,
            class,
        ] = header;
        Ok(Identity {
            vendor: u16::from_le_bytes([v0, v1]),
            device: u16::from_le_bytes([d0, d1]),
            class: u32::from_le_bytes([interface, subclass, class, 0]),
            revision,
        })
    }

    /// Whether something still answers: a function that was pulled out reads as all ones.
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.identity()
            .is_ok_and(|identity| identity.vendor != u16::MAX)
    }

    /// Enables or disables bus mastering. The registers respond in either case.
    ///
    /// Either call also disables INTx for good. The kernel enables INTx when it hands a function to a process, and this
    /// library never acknowledges one: a function without vectors, such as a polled controller, would hold its line,
    /// and the host would disable the line for all devices that share it.
    /// # Errors
    /// If configuration space is not readable or writable.
    pub fn set_bus_master(&self, on: bool) -> Result<()> {
        let mut command = [0; 2];
        self.read_config(COMMAND, &mut command)?;
        let mut bits = u16::from_le_bytes(command) | COMMAND_MEMORY | COMMAND_INTX_DISABLE;
        if on {
            bits |= COMMAND_BUS_MASTER;
        } else {
            bits &= !COMMAND_BUS_MASTER;
        }
        self.write_config(COMMAND, &bits.to_le_bytes())
    }

    /// Disables INTx once more, if it was disabled: a virtualized bit takes effect only when it changes.
    pub(crate) fn disable_intx_again(&self) -> Result<()> {
        let mut command = [0; 2];
        self.read_config(COMMAND, &mut command)?;
        let bits = u16::from_le_bytes(command);
        if bits & COMMAND_INTX_DISABLE == 0 {
            return Ok(());
        }
        let without = bits & !COMMAND_INTX_DISABLE;
        self.write_config(COMMAND, &without.to_le_bytes())?;
        self.write_config(COMMAND, &command)
    }
}
