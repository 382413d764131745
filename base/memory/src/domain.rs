//! What a device may reach.

use std::fmt;
use std::sync::Arc;

use crate::{Region, Result};

/// An address as a device says it (I/O virtual address), in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Iova(pub u64);

impl fmt::Display for Iova {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Device addresses from `first` to `last`, both included, so that the last page of 64 bits can be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IovaRange {
    /// The lowest address.
    pub first: Iova,
    /// The highest address.
    pub last: Iova,
}

/// A device address space: what is mapped here can be read and written by every device in it, and nothing
/// else can. With VFIO it is a container's; a device model brings its own.
pub trait Domain: fmt::Debug + Send + Sync {
    /// Makes the whole region visible to the devices; returns the address of its first byte, which is a
    /// multiple of [`Region::page_size`]. The domain keeps its share of the region until [`Domain::unmap`]
    /// succeeds.
    ///
    /// # Errors
    /// [`ErrorKind::LockLimit`](crate::ErrorKind::LockLimit) if the process may not lock so much memory,
    /// [`ErrorKind::NoAddresses`](crate::ErrorKind::NoAddresses) if no range of device addresses is left,
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) if the kernel or the model refuses otherwise.
    fn map(&self, region: &Arc<Region>) -> Result<Iova>;

    /// Takes back what [`Domain::map`] returned this address for.
    ///
    /// # Safety
    /// No device is told these addresses any more, nor works on a command that names them: what is mapped
    /// there next may be memory of somebody else. An [`Arena`](crate::Arena) keeps this for its holders.
    ///
    /// # Errors
    /// [`ErrorKind::NotMapped`](crate::ErrorKind::NotMapped) if nothing is mapped there, or `Refused`.
    unsafe fn unmap(&self, iova: Iova) -> Result<()>;
}

/// A name for a domain, which is no other's as long as the domain lives; a buffer's arena keeps its domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DomainId(usize);

impl DomainId {
    /// The name of `domain`: where it lies.
    #[must_use]
    pub fn of(domain: &Arc<dyn Domain>) -> Self {
        Self(Arc::as_ptr(domain).cast::<()>().addr())
    }
}
