//! The address space of x86-64 and Arm.

use std::mem::offset_of;
use std::sync::Arc;

use millrace_memory::{Domain, Error, ErrorKind, Iova, IovaRange, Region, Result, base_page_size};
use rustix::io::Errno;
use vfio_bindings::bindings::vfio;

use super::container::Container;
use super::kernel::{Call, argument_size};
use crate::argument::Argument;
use crate::capability::{broken, chain, pairs};
use crate::domain::{Flat, Mapper};
use crate::refused;
use crate::region::ask;

/// Addresses that every Type1 IOMMU translates, for kernels before 5.4, which do not list them: 39 bits
/// without x86's interrupts at 0xfee00000 and what firmware reserves below.
const RANGES_WITHOUT_LIST: [IovaRange; 2] = [
    IovaRange {
        first: Iova(0x1000_0000),
        last: Iova(0xdfff_ffff),
    },
    IovaRange {
        first: Iova(0x1_0000_0000),
        last: Iova(0x7f_ffff_ffff),
    },
];

/// VFIO's description of the address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Info {
    /// The smallest page.
    pub(super) granule: u64,
    pub(super) ranges: Vec<IovaRange>,
    /// How many mappings may still be made, if the kernel counts them.
    pub(super) mappings: Option<u32>,
}

impl Info {
    pub(super) fn read(info: &Argument, page_size: u64) -> crate::Result<Self> {
        let word = |offset| {
            info.word(offset)
                .ok_or_else(|| broken("an address space too short"))
        };
        let flags = word(offset_of!(vfio::vfio_iommu_type1_info, flags))?;
        let sizes = info.long(offset_of!(vfio::vfio_iommu_type1_info, iova_pgsizes));
        let known = flags & vfio::VFIO_IOMMU_INFO_PGSIZES != 0;
        let sizes = sizes.filter(|sizes| known && *sizes != 0);
        let mut read = Self {
            granule: sizes.map_or(page_size, |sizes| 1 << sizes.trailing_zeros()),
            ranges: RANGES_WITHOUT_LIST.to_vec(),
            mappings: None,
        };
        if flags & vfio::VFIO_IOMMU_INFO_CAPS == 0 {
            return Ok(read);
        }
        let first = word(offset_of!(vfio::vfio_iommu_type1_info, cap_offset))?;
        for capability in chain(info, size_of::<vfio::vfio_iommu_type1_info>(), first)? {
            match u32::from(capability.id) {
                vfio::VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE => {
                    // The number of ranges, a word that is reserved, then first and last of each.
                    let count = word(capability.payload)?;
                    read.ranges = pairs(info, capability.payload + 8, count)?
                        .into_iter()
                        .map(|(first, last)| IovaRange {
                            first: Iova(first),
                            last: Iova(last),
                        })
                        .collect();
                }
                vfio::VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL => {
                    read.mappings = Some(word(capability.payload)?);
                }
                _ => {}
            }
        }
        Ok(read)
    }
}

/// Enters regions into a container of Type1.
#[derive(Debug)]
struct Type1 {
    container: Arc<Container>,
    mappings: Option<u32>,
}

/// DMA domain of the container.
pub(super) fn domain(container: Arc<Container>) -> crate::Result<Arc<dyn Domain>> {
    let what = "the IOMMU's address space";
    let info = ask(size_of::<vfio::vfio_iommu_type1_info>(), what, |argument| {
        let answered = container.call(Call::Type1Info(argument));
        answered.map(|_| ()).map_err(|errno| refused(errno, what))
    })?;
    let info = Info::read(&info, base_page_size() as u64)?;
    let mapper = Type1 {
        container,
        mappings: info.mappings,
    };
    let domain = Flat::new(mapper, info.ranges, info.granule);
    let domain = domain.map_err(|error| broken(what).caused_by(error))?;
    Ok(Arc::new(domain))
}

/// The call that maps a region, the same for all containers.
pub(super) fn map_dma(iova: Iova, region: &Region) -> vfio::vfio_iommu_type1_dma_map {
    vfio::vfio_iommu_type1_dma_map {
        argsz: argument_size::<vfio::vfio_iommu_type1_dma_map>(),
        flags: vfio::VFIO_DMA_MAP_FLAG_READ | vfio::VFIO_DMA_MAP_FLAG_WRITE,
        vaddr: user_address(region),
        iova: iova.0,
        size: region.size() as u64,
    }
}

/// The call that takes a region back.
pub(super) fn unmap_dma(iova: Iova, region: &Region) -> vfio::vfio_iommu_type1_dma_unmap {
    vfio::vfio_iommu_type1_dma_unmap {
        argsz: argument_size::<vfio::vfio_iommu_type1_dma_unmap>(),
        iova: iova.0,
        size: region.size() as u64,
        ..Default::default()
    }
}

/// Where a region is, for the kernel.
pub(super) fn user_address(region: &Region) -> u64 {
    region.address().as_ptr().expose_provenance() as u64
}

/// The error for a mapping that the kernel refused.
pub(super) fn map_error(errno: Errno, region: &Region, iova: Iova) -> Error {
    let size = region.size();
    let attempted = format!("mapping {size} bytes at device address {iova}");
    match errno {
        Errno::NOMEM | Errno::PERM => Error::lock_limit(&attempted, size).caused_by(errno),
        _ => Error::new(ErrorKind::Refused, attempted).caused_by(errno),
    }
}

/// The error for what the kernel did not take back.
pub(super) fn unmap_error(errno: Errno, iova: Iova) -> Error {
    let attempted = format!("unmapping device address {iova}");
    Error::new(ErrorKind::Refused, attempted).caused_by(errno)
}

impl Mapper for Type1 {
    fn map(&self, iova: Iova, region: &Region) -> Result<()> {
        let mut map = map_dma(iova, region);
        match (self.container.call(Call::MapDma(&mut map)), self.mappings) {
            (Ok(_), _) => Ok(()),
            (Err(Errno::NOSPC), Some(mappings)) => {
                let context = format!("the kernel allows {mappings} mappings; use larger regions");
                Err(Error::new(ErrorKind::Refused, context).caused_by(Errno::NOSPC))
            }
            (Err(errno), _) => Err(map_error(errno, region, iova)),
        }
    }

    fn unmap(&self, iova: Iova, region: &Region) -> Result<()> {
        let mut unmap = unmap_dma(iova, region);
        self.container
            .call(Call::UnmapDma(&mut unmap))
            .map_err(|errno| unmap_error(errno, iova))?;
        // The kernel writes back how much it was. Less is still mapped in part.
        if unmap.size != region.size() as u64 {
            let context = format!("unmapped {} bytes at device address {iova}", unmap.size);
            return Err(Error::new(ErrorKind::Refused, context));
        }
        Ok(())
    }
}
