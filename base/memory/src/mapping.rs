//! A region in a domain.

use std::mem;
use std::sync::Arc;

use crate::{Domain, Error, ErrorKind, Iova, Region, Result};

/// A region that devices see, until this is dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    domain: Arc<dyn Domain>,
    region: Arc<Region>,
    iova: Iova,
}

impl Mapping {
    /// Maps the region.
    ///
    /// # Errors
    /// The domain's error, and [`ErrorKind::Refused`] if the address it returns is misaligned or out of range for this
    /// region.
    pub(crate) fn new(domain: Arc<dyn Domain>, region: Arc<Region>) -> Result<Self> {
        let iova = domain.map(&region)?;
        let mapping = Self {
            domain,
            region,
            iova,
        };
        let (size, page_size) = (mapping.region.size(), mapping.region.page_size());
        let ends = iova.0.checked_add(size as u64 - 1).is_some();
        if !ends || iova.0 % page_size as u64 != 0 {
            let context = format!("{iova} for {size} bytes in pages of {page_size}");
            return Err(Error::new(ErrorKind::Refused, context));
        }
        Ok(mapping)
    }

    pub(crate) fn domain(&self) -> &Arc<dyn Domain> {
        &self.domain
    }

    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Where the region begins for the devices.
    pub(crate) fn iova(&self) -> Iova {
        self.iova
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: a driver owns the buffer, or the device memory, of each command that names its address until no
        // device accesses it, and all buffers are dropped before the last clone of the mapping.
        let unmapped = unsafe { self.domain.unmap(self.iova) };
        if unmapped.is_err() {
            // A device may still write there: the memory must never be reused.
            mem::forget(Arc::clone(&self.region));
        }
    }
}
