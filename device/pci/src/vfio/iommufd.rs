//! Character devices and iommufd.
//!
//! Unproven on hardware: written after `include/uapi/linux/iommufd.h` and the kernel's
//! Documentation/driver-api/vfio.rst, tested against a simulated kernel.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use millrace_memory::{Domain, Iova, IovaRange, Region, Result};
use rustix::io::Errno;
use vfio_bindings::bindings::vfio;

use super::kernel::{
    Call, IOAS_MAP_FIXED_IOVA, IOAS_MAP_READABLE, IOAS_MAP_WRITABLE, IoasAllocate, IoasIovaRanges,
    IoasMap, IoasUnmap, Kernel, argument_size,
};
use super::type1::{map_error, unmap_error, user_address};
use crate::capability::broken;
use crate::domain::{Flat, Mapper};
use crate::{Error, ErrorKind, refused};

/// More ranges than any machine has.
const RANGES_MAX: u32 = 4096;
/// The part of `struct vfio_device_bind_iommufd` that kernels have had from the start.
const BIND_SIZE: u32 = 16;
/// The part of `struct vfio_device_attach_iommufd_pt` that kernels have had from the start.
const ATTACH_SIZE: u32 = 12;

/// An address space of an iommufd's.
#[derive(Debug)]
struct AddressSpace {
    kernel: Arc<dyn Kernel>,
    iommufd: OwnedFd,
    id: u32,
}

/// Opens a function's own file and gives it an address space of its own. `not_bound` makes the error for
/// what the kernel does not permit.
pub(super) fn open(
    kernel: &Arc<dyn Kernel>,
    dev: &Path,
    path: &Path,
    not_bound: &dyn Fn() -> Error,
) -> crate::Result<(OwnedFd, Arc<dyn Domain>)> {
    let device = open_file(&**kernel, path)?;
    let iommufd = open_file(&**kernel, &dev.join("iommu"))?;
    let mut bind = vfio::vfio_device_bind_iommufd {
        argsz: BIND_SIZE,
        iommufd: iommufd.as_raw_fd(),
        ..Default::default()
    };
    kernel
        .call(device.as_fd(), Call::BindIommufd(&mut bind))
        .map_err(|errno| match errno {
            Errno::PERM => not_bound().caused_by(errno),
            errno => refused(errno, "binding the function to an iommufd"),
        })?;
    let mut space = IoasAllocate {
        size: argument_size::<IoasAllocate>(),
        ..Default::default()
    };
    kernel
        .call(iommufd.as_fd(), Call::AllocateAddressSpace(&mut space))
        .map_err(|errno| refused(errno, "asking for an address space"))?;
    let mut attach = vfio::vfio_device_attach_iommufd_pt {
        argsz: ATTACH_SIZE,
        pt_id: space.out_ioas_id,
        ..Default::default()
    };
    kernel
        .call(device.as_fd(), Call::AttachAddressSpace(&mut attach))
        .map_err(|errno| refused(errno, "putting the function into an address space"))?;
    let space = AddressSpace {
        kernel: Arc::clone(kernel),
        iommufd,
        id: space.out_ioas_id,
    };
    let (ranges, granule) = space.ranges()?;
    let domain = Flat::new(space, ranges, granule);
    let domain = domain.map_err(|error| broken("an address space").caused_by(error))?;
    Ok((device, Arc::new(domain)))
}

fn open_file(kernel: &dyn Kernel, path: &Path) -> crate::Result<OwnedFd> {
    let path_text = path.display();
    kernel.open(path).map_err(|errno| match errno {
        Errno::ACCESS | Errno::PERM => {
            let context =
                format!("opening {path_text}; `chown USER {path_text}` gives it to a user");
            Error::new(ErrorKind::Permission, context).caused_by(errno)
        }
        errno => refused(errno, &format!("opening {path_text}")),
    })
}

impl AddressSpace {
    /// Which addresses it has, and what they must be multiples of.
    fn ranges(&self) -> crate::Result<(Vec<IovaRange>, u64)> {
        let attempted = "asking for the ranges of the address space";
        let mut room = 16;
        // The first answer may be how many there are; that changes only with the devices in the space.
        for _ in 0..2 {
            let mut ranges = vec![vfio::vfio_iova_range::default(); room];
            let mut question = IoasIovaRanges {
                size: argument_size::<IoasIovaRanges>(),
                ioas_id: self.id,
                ..Default::default()
            };
            let call = Call::AddressRanges(&mut question, &mut ranges);
            match self.kernel.call(self.iommufd.as_fd(), call) {
                Ok(_) | Err(Errno::MSGSIZE) if question.num_iovas > RANGES_MAX => {
                    return Err(broken(format!("{} ranges", question.num_iovas)));
                }
                Ok(_) if question.num_iovas as usize <= room => {
                    ranges.truncate(question.num_iovas as usize);
                    return Ok((listed(&ranges), question.out_iova_alignment));
                }
                Ok(_) | Err(Errno::MSGSIZE) => room = question.num_iovas as usize,
                Err(errno) => return Err(refused(errno, attempted)),
            }
        }
        Err(broken("more ranges at each call"))
    }
}

fn listed(ranges: &[vfio::vfio_iova_range]) -> Vec<IovaRange> {
    let range = |range: &vfio::vfio_iova_range| IovaRange {
        first: Iova(range.start),
        last: Iova(range.end),
    };
    ranges.iter().map(range).collect()
}

impl Mapper for AddressSpace {
    fn map(&self, iova: Iova, region: &Region) -> Result<()> {
        let mut map = IoasMap {
            size: argument_size::<IoasMap>(),
            flags: IOAS_MAP_FIXED_IOVA | IOAS_MAP_WRITABLE | IOAS_MAP_READABLE,
            ioas_id: self.id,
            user_va: user_address(region),
            length: region.size() as u64,
            iova: iova.0,
            ..Default::default()
        };
        self.kernel
            .call(self.iommufd.as_fd(), Call::MapAddressSpace(&mut map))
            .map_err(|errno| map_error(errno, region, iova))?;
        Ok(())
    }

    fn unmap(&self, iova: Iova, region: &Region) -> Result<()> {
        let mut unmap = IoasUnmap {
            size: argument_size::<IoasUnmap>(),
            ioas_id: self.id,
            iova: iova.0,
            length: region.size() as u64,
        };
        self.kernel
            .call(self.iommufd.as_fd(), Call::UnmapAddressSpace(&mut unmap))
            .map_err(|errno| unmap_error(errno, iova))?;
        Ok(())
    }
}
