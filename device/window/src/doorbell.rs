//! How a peer that sleeps is woken.

use std::fmt;
use std::os::fd::OwnedFd;

use crate::error::refused;
use crate::{Error, ErrorKind, Result};

/// Wakes the peer. What was published before is visible to it when it wakes.
///
/// Where the peer waits, and that it looks once more before it does, is for the protocol above.
pub trait Doorbell: fmt::Debug + Send + Sync {
    /// Rings it. Several rings before the peer wakes may be one.
    ///
    /// # Errors
    /// If the peer cannot be reached this way any more.
    fn ring(&self) -> Result<()>;
}

/// An eventfd that the peer waits for.
#[derive(Debug)]
pub struct EventDoorbell(OwnedFd);

impl EventDoorbell {
    /// Rings by this eventfd. It must be non-blocking, so that a peer that never reads it does not stop us.
    #[must_use]
    pub const fn new(event: OwnedFd) -> Self {
        Self(event)
    }
}

impl Doorbell for EventDoorbell {
    fn ring(&self) -> Result<()> {
        let one = 1_u64.to_ne_bytes();
        match rustix::io::retry_on_intr(|| rustix::io::write(&self.0, &one)) {
            // The count is at its largest: it is readable.
            Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
            Err(errno) => Err(refused(errno, "ringing an eventfd")),
        }
    }
}

/// A register of a PCI function: NTB's doorbell, ivshmem's at offset 12 (peer in the upper half, vector in the
/// lower).
#[cfg(feature = "pci")]
#[derive(Debug)]
pub struct RegisterDoorbell {
    register: millrace_pci::Register,
    value: u32,
}

#[cfg(feature = "pci")]
impl RegisterDoorbell {
    /// Rings by storing `value` to `register`.
    #[must_use]
    pub const fn new(register: millrace_pci::Register, value: u32) -> Self {
        Self { register, value }
    }
}

#[cfg(feature = "pci")]
impl Doorbell for RegisterDoorbell {
    fn ring(&self) -> Result<()> {
        self.register.store_released(self.value).map_err(|error| {
            Error::new(ErrorKind::Refused, "storing to a doorbell register").caused_by(error)
        })
    }
}

/// Error of a window without a doorbell.
pub(crate) fn none() -> Error {
    Error::new(ErrorKind::Unsupported, "the window has no doorbell")
}
