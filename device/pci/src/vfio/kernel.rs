//! What is asked of the kernel, so that a script can answer in its place.

use std::ffi::CStr;
use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::io;
use vfio_bindings::bindings::vfio;

use crate::argument::Argument;

/// The kernel, or what stands for it in a test.
pub(super) trait Kernel: fmt::Debug + Send + Sync {
    /// Opens a file for reading and writing.
    fn open(&self, path: &Path) -> io::Result<OwnedFd>;

    /// Makes one call on `file`; returns what it answers.
    fn call(&self, file: BorrowedFd<'_>, call: Call<'_>) -> io::Result<u32>;

    /// `VFIO_GROUP_GET_DEVICE_FD`: opens the function with this name.
    fn device(&self, group: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd>;

    /// Writes some of the bytes at an offset of a device's file; returns how many.
    fn write(&self, file: BorrowedFd<'_>, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// How many more bytes this process may lock; none if there is no limit.
    fn lock_room(&self) -> Option<u64>;
}

/// One `ioctl` with its argument. The kernel reads and writes no memory through it but the argument; what a
/// mapping names is reached by the device, later.
#[derive(Debug)]
pub(super) enum Call<'a> {
    /// `VFIO_GET_API_VERSION`, of a container.
    ApiVersion,
    /// Of a container: whether it can be of this IOMMU type.
    CheckExtension(u32),
    /// Of a container: makes it of this IOMMU type.
    SetIommu(u32),
    /// `VFIO_GROUP_GET_STATUS`, of a group.
    GroupStatus(&'a mut vfio::vfio_group_status),
    /// Of a group: joins the container behind this descriptor.
    SetContainer(i32),
    /// `VFIO_DEVICE_GET_INFO`, of a device.
    DeviceInfo(&'a mut vfio::vfio_device_info),
    /// `VFIO_DEVICE_GET_REGION_INFO`, of a device: a `vfio_region_info` and space for capabilities, `argsz` in all.
    RegionInfo(&'a mut Argument),
    /// `VFIO_DEVICE_GET_IRQ_INFO`, of a device.
    IrqInfo(&'a mut vfio::vfio_irq_info),
    /// `VFIO_DEVICE_SET_IRQS`, of a device: a `vfio_irq_set` and its data, `argsz` in all.
    SetIrqs(&'a mut Argument),
    /// `VFIO_DEVICE_RESET`, of a device.
    DeviceReset,
    /// Of a container, Type1: a `vfio_iommu_type1_info` and room for capabilities.
    Type1Info(&'a mut Argument),
    /// `VFIO_IOMMU_MAP_DMA`, of a container.
    MapDma(&'a mut vfio::vfio_iommu_type1_dma_map),
    /// `VFIO_IOMMU_UNMAP_DMA`, of a container.
    UnmapDma(&'a mut vfio::vfio_iommu_type1_dma_unmap),
    /// Of a container, sPAPR v1: charges the window to the limit of locked memory.
    IommuEnable,
    /// `VFIO_IOMMU_SPAPR_TCE_GET_INFO`, of a container.
    SpaprInfo(&'a mut vfio::vfio_iommu_spapr_tce_info),
    /// Of a container, sPAPR v2: pins memory.
    RegisterMemory(&'a mut vfio::vfio_iommu_spapr_register_memory),
    /// `VFIO_IOMMU_SPAPR_UNREGISTER_MEMORY`, of a container (sPAPR v2).
    UnregisterMemory(&'a mut vfio::vfio_iommu_spapr_register_memory),
    /// `VFIO_IOMMU_SPAPR_TCE_CREATE`, of a container (sPAPR v2).
    CreateWindow(&'a mut vfio::vfio_iommu_spapr_tce_create),
    /// `VFIO_IOMMU_SPAPR_TCE_REMOVE`, of a container (sPAPR v2).
    RemoveWindow(&'a mut vfio::vfio_iommu_spapr_tce_remove),
    /// Of a device's own file: joins an iommufd.
    BindIommufd(&'a mut vfio::vfio_device_bind_iommufd),
    /// Of a device's own file: into an address space.
    AttachAddressSpace(&'a mut vfio::vfio_device_attach_iommufd_pt),
    /// `IOMMU_IOAS_ALLOC`, of an iommufd.
    AllocateAddressSpace(&'a mut IoasAllocate),
    /// Of an iommufd: which addresses it has; they are written to the second, as many as it has room for.
    AddressRanges(&'a mut IoasIovaRanges, &'a mut [vfio::vfio_iova_range]),
    /// `IOMMU_IOAS_MAP`, of an iommufd.
    MapAddressSpace(&'a mut IoasMap),
    /// `IOMMU_IOAS_UNMAP`, of an iommufd.
    UnmapAddressSpace(&'a mut IoasUnmap),
}

// The structures of iommufd (include/uapi/linux/iommufd.h), which vfio-bindings does not have.

/// `struct iommu_ioas_alloc`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IoasAllocate {
    pub(super) size: u32,
    pub(super) flags: u32,
    pub(super) out_ioas_id: u32,
}

/// `struct iommu_ioas_iova_ranges`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IoasIovaRanges {
    pub(super) size: u32,
    pub(super) ioas_id: u32,
    pub(super) num_iovas: u32,
    pub(super) reserved: u32,
    /// An address in this process; filled in when the call is made.
    pub(super) allowed_iovas: u64,
    pub(super) out_iova_alignment: u64,
}

/// `struct iommu_ioas_map`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IoasMap {
    pub(super) size: u32,
    pub(super) flags: u32,
    pub(super) ioas_id: u32,
    pub(super) reserved: u32,
    pub(super) user_va: u64,
    pub(super) length: u64,
    pub(super) iova: u64,
}

/// `struct iommu_ioas_unmap`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IoasUnmap {
    pub(super) size: u32,
    pub(super) ioas_id: u32,
    pub(super) iova: u64,
    pub(super) length: u64,
}

/// The flags of `struct iommu_ioas_map`.
pub(super) const IOAS_MAP_FIXED_IOVA: u32 = 1 << 0;
pub(super) const IOAS_MAP_WRITABLE: u32 = 1 << 1;
pub(super) const IOAS_MAP_READABLE: u32 = 1 << 2;

const _: () = assert!(size_of::<IoasAllocate>() == 12);
const _: () = assert!(size_of::<IoasIovaRanges>() == 32);
const _: () = assert!(size_of::<IoasMap>() == 40);
const _: () = assert!(size_of::<IoasUnmap>() == 24);

/// The `argsz` of a structure of a fixed size.
pub(super) fn argument_size<T>() -> u32 {
    u32::try_from(size_of::<T>()).expect("the kernel's structures are small")
}
