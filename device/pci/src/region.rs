//! VFIO's description of a function's regions, and the parts of them to map.

use std::mem::offset_of;
use std::ops::Range;

use vfio_bindings::bindings::vfio;

use crate::argument::Argument;
use crate::capability::{broken, chain, pairs};
use crate::{Error, ErrorKind, Result};

/// A structure with all its capabilities is smaller than this.
const ARGUMENT_MAX: u32 = 64 << 10;
/// How often more room may be asked for: what it describes could change between two calls.
const GROWTHS_MAX: u32 = 4;

/// Calls for a structure of `fixed` bytes and the data after it; repeats with more space as long as the answer does not
/// fit.
pub(crate) fn ask(
    fixed: usize,
    what: &str,
    mut call: impl FnMut(&mut Argument) -> Result<()>,
) -> Result<Argument> {
    let mut size = fixed;
    for _ in 0..GROWTHS_MAX {
        let mut argument = Argument::new(size);
        call(&mut argument)?;
        let needed = argument.word(0).unwrap_or(0);
        if needed > ARGUMENT_MAX {
            return Err(broken(format!("{what} in {needed} bytes")));
        }
        if needed as usize <= size {
            return Ok(argument);
        }
        size = needed as usize;
    }
    Err(broken(format!("{what} in more bytes at each call")))
}

/// One region of a device file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) flags: u32,
    pub(crate) size: u64,
    /// Where it begins in the file that it is reached by.
    pub(crate) offset: u64,
    /// Only these parts may be mapped, if there is such a list.
    pub(crate) sparse: Option<Vec<Range<u64>>>,
}

impl Region {
    /// Decodes the kernel's answer.
    pub(crate) fn read(info: &Argument) -> Result<Self> {
        let word = |offset| {
            info.word(offset)
                .ok_or_else(|| broken("a region too short"))
        };
        let long = |offset| {
            info.long(offset)
                .ok_or_else(|| broken("a region too short"))
        };
        let mut region = Self {
            flags: word(offset_of!(vfio::vfio_region_info, flags))?,
            size: long(offset_of!(vfio::vfio_region_info, size))?,
            offset: long(offset_of!(vfio::vfio_region_info, offset))?,
            sparse: None,
        };
        if region.offset.checked_add(region.size).is_none() {
            return Err(broken(format!(
                "{:#x} bytes at {:#x}",
                region.size, region.offset
            )));
        }
        if region.flags & vfio::VFIO_REGION_INFO_FLAG_CAPS == 0 {
            return Ok(region);
        }
        let first = word(offset_of!(vfio::vfio_region_info, cap_offset))?;
        for capability in chain(info, size_of::<vfio::vfio_region_info>(), first)? {
            // That the table of MSI-X vectors may be mapped as well changes nothing: there is no list then.
            if u32::from(capability.id) == vfio::VFIO_REGION_INFO_CAP_SPARSE_MMAP {
                // The number of areas, a word that is reserved, then offset and size of each.
                let count = word(capability.payload)?;
                let areas = pairs(info, capability.payload + 8, count)?;
                region.sparse = Some(sparse_areas(&areas, region.size)?);
            }
        }
        Ok(region)
    }

    /// Which parts to map on a host with pages of `page_size` bytes. What is not mapped is reached by calls.
    pub(crate) fn areas(&self, page_size: u64) -> Vec<Range<u64>> {
        let all = 0..self.size;
        let whole = all.clone();
        if self.flags & vfio::VFIO_REGION_INFO_FLAG_MMAP == 0 || whole.is_empty() {
            return Vec::new();
        }
        // Words are aligned in an area if they are in the region: both must begin with a page.
        if self.offset % page_size != 0 {
            return Vec::new();
        }
        // A region without a list has no vectors that must stay unmapped.
        let areas = self.sparse.clone().unwrap_or_else(|| vec![all]);
        areas
            .into_iter()
            .filter(|area| area.start % page_size == 0)
            .collect()
    }
}

/// The areas in order, if all lie inside and none in another.
pub(crate) fn sparse_areas(areas: &[(u64, u64)], size: u64) -> Result<Vec<Range<u64>>> {
    let mut ranges = Vec::with_capacity(areas.len());
    for (offset, length) in areas.iter().copied().filter(|(_, length)| *length > 0) {
        match offset.checked_add(length).filter(|end| *end <= size) {
            Some(end) => ranges.push(offset..end),
            None => {
                let what = format!("an area of {length:#x} bytes at {offset:#x} of {size:#x}");
                return Err(Error::new(ErrorKind::Protocol, what));
            }
        }
    }
    ranges.sort_unstable_by_key(|range| range.start);
    if ranges.windows(2).any(|pair| pair[0].end > pair[1].start) {
        return Err(Error::new(ErrorKind::Protocol, "areas that overlap"));
    }
    Ok(ranges)
}
