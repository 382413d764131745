//! The domain of no device.

use std::sync::{Arc, OnceLock};

use crate::{Domain, Iova, Region, Result};

/// A domain that no device is in: for memory that moves by the kernel or by copying. Device addresses are
/// those of this process, and nothing has to be locked
/// ([`RegionOptions::locked`](crate::RegionOptions::locked)).
#[derive(Debug, Default)]
pub struct NoDevice {
    /// A domain's name is its address, so that it must have one of its own.
    _place: u8,
}

impl NoDevice {
    /// The domain shared by all arenas whose buffers may be mixed.
    #[must_use]
    pub fn shared() -> Arc<dyn Domain> {
        static SHARED: OnceLock<Arc<NoDevice>> = OnceLock::new();
        let shared: &Arc<Self> = SHARED.get_or_init(Arc::default);
        Arc::<Self>::clone(shared)
    }
}

impl Domain for NoDevice {
    /// The arena keeps the region for as long as it needs it; no share is kept here.
    fn map(&self, region: &Arc<Region>) -> Result<Iova> {
        Ok(Iova(region.address().addr().get() as u64))
    }

    unsafe fn unmap(&self, _: Iova) -> Result<()> {
        Ok(())
    }
}
