//! A domain that maps a region by one call at an address of one space.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_memory::{Domain, Error, ErrorKind, Iova, IovaRange, IovaSpace, Region, Result};

/// Mapper of regions into IOMMU translation tables.
pub(crate) trait Mapper: fmt::Debug + Send + Sync {
    /// Makes the region visible from `iova` on. Nothing of it is visible if it fails.
    fn map(&self, iova: Iova, region: &Region) -> Result<()>;

    /// Takes it back.
    fn unmap(&self, iova: Iova, region: &Region) -> Result<()>;
}

/// Regions at addresses that are all alike. Takes all back when it is dropped.
#[derive(Debug)]
pub(crate) struct Flat<M: Mapper> {
    mapper: M,
    /// The IOMMU's smallest page: the device's pages must be made of whole ones.
    granule: u64,
    mapped: Mutex<Mapped>,
}

/// What is mapped. Each region's addresses are taken from the space.
#[derive(Debug)]
struct Mapped {
    space: IovaSpace,
    regions: BTreeMap<u64, Arc<Region>>,
}

impl<M: Mapper> Flat<M> {
    /// Nothing mapped yet; addresses come from `ranges`.
    pub(crate) fn new(mapper: M, ranges: Vec<IovaRange>, granule: u64) -> Result<Self> {
        let space = IovaSpace::new(ranges, granule)?;
        Ok(Self {
            mapper,
            granule,
            mapped: Mutex::new(Mapped {
                space,
                regions: BTreeMap::new(),
            }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Mapped> {
        // What is guarded changes by whole steps: a panic between two leaves addresses taken at worst.
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: Mapper> Domain for Flat<M> {
    fn map(&self, region: &Arc<Region>) -> Result<Iova> {
        let page_size = region.page_size() as u64;
        if page_size % self.granule != 0 {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "memory in pages of {page_size} bytes for an IOMMU whose smallest page has {}",
                    self.granule
                ),
            ));
        }
        let mut mapped = self.lock();
        // Aligned like its pages, so that the IOMMU can use a large page for a large page.
        let iova = mapped.space.take(region.size() as u64, page_size)?;
        if let Err(error) = self.mapper.map(iova, region) {
            mapped.space.give(iova)?;
            return Err(error);
        }
        mapped.regions.insert(iova.0, Arc::clone(region));
        Ok(iova)
    }

    unsafe fn unmap(&self, iova: Iova) -> Result<()> {
        let mut mapped = self.lock();
        let region = mapped
            .regions
            .get(&iova.0)
            .ok_or_else(|| Error::new(ErrorKind::NotMapped, format!("device address {iova}")))?;
        self.mapper.unmap(iova, region)?;
        mapped.regions.remove(&iova.0);
        mapped.space.give(iova)
    }
}

impl<M: Mapper> Drop for Flat<M> {
    fn drop(&mut self) {
        let mapped = self.mapped.get_mut();
        let mapped = mapped.unwrap_or_else(PoisonError::into_inner);
        for (iova, region) in std::mem::take(&mut mapped.regions) {
            // If it fails, the provider ends the translation when the last descriptor is closed, and keeps the pages
            // until then.
            let _ = self.mapper.unmap(Iova(iova), &region);
        }
    }
}
