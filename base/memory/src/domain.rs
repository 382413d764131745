//! What a device may reach.

use std::fmt;
use std::sync::Arc;

use crate::{Region, Result};

/// Device address (I/O virtual address), in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Iova(pub u64);

impl fmt::Display for Iova {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Device addresses from `first` to `last`, both included, so that a range can end at 2^64 - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IovaRange {
    /// Lowest address of the range, included.
    pub first: Iova,
    /// Highest address of the range, included.
    pub last: Iova,
}

/// A device address space: what is mapped here can be read and written by every device in it, and nothing
/// else can. With VFIO it is a container's; a device model brings its own.
pub trait Domain: fmt::Debug + Send + Sync {
    /// Maps the whole region for the devices; returns the device address of its first byte, a multiple of
    /// [`Region::page_size`]. The domain keeps its clone of the region until [`Domain::unmap`] succeeds.
    ///
    /// # Errors
    /// [`ErrorKind::LockLimit`](crate::ErrorKind::LockLimit) if the limit of locked memory is too low,
    /// [`ErrorKind::NoAddresses`](crate::ErrorKind::NoAddresses) if no range of device addresses is free,
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) for other failures of the kernel or the model.
    fn map(&self, region: &Arc<Region>) -> Result<Iova>;

    /// Unmaps the region for which [`Domain::map`] returned this address.
    ///
    /// # Safety
    /// No device has these addresses in a command or is given them any more: the next mapping there may be other
    /// memory. An [`Arena`](crate::Arena) guarantees this for its buffers.
    ///
    /// # Errors
    /// [`ErrorKind::NotMapped`](crate::ErrorKind::NotMapped) if nothing is mapped there, or `Refused`.
    unsafe fn unmap(&self, iova: Iova) -> Result<()>;
}

/// Identity of a domain, unique as long as the domain exists; a buffer's arena keeps its domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DomainId(usize);

impl DomainId {
    /// The name of `domain`: where it lies.
    #[must_use]
    pub fn of(domain: &Arc<dyn Domain>) -> Self {
        Self(Arc::as_ptr(domain).cast::<()>().addr())
    }
}
