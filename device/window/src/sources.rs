//! Where windows come from.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use millrace_memory::{Region, RegionOptions};
use rustix::fs::{
    FileType, Mode, OFlags, SealFlags, fchmod, fcntl_get_seals, fstat, fstatfs, major, minor, open,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::error::refused;
use crate::mapped::Keeper;
use crate::{Attributes, Cacheability, Direction, Error, ErrorKind, Mapped, Result, Window};

/// The file system of device attributes (`statfs(2)`).
const SYSFS_MAGIC: u64 = 0x6265_6572;

/// What others than the owner may do to a file.
const OTHERS: Mode = Mode::RWXG.union(Mode::RWXO);

impl Window {
    /// A window for peers on this host: `size` bytes of zeros, rounded up to whole pages. A peer passes the descriptor
    /// to [`Window::attach`], and has access to all bytes. The memory can neither shrink nor grow, and only the owner
    /// can open it in another way.
    ///
    /// Use huge pages only between peers that trust each other: one could punch holes, and if no page is free the
    /// other's next access raises a signal.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] if the memory cannot be allocated.
    pub fn create(size: usize, options: &RegionOptions) -> Result<(Self, OwnedFd)> {
        let attempted = || format!("shared memory of {size} bytes");
        let region = Region::new(size, options)
            .map_err(|error| Error::new(ErrorKind::Refused, attempted()).caused_by(error))?;
        fchmod(region.file(), Mode::RUSR | Mode::WUSR)
            .map_err(|errno| refused(errno, attempted()))?;
        let file = rustix::io::fcntl_dupfd_cloexec(region.file(), 0)
            .map_err(|errno| refused(errno, attempted()))?;
        let (first, size) = (region.address(), region.size());
        let (attributes, keeper) = (Attributes::SHARED_MEMORY, Arc::new(region));
        // SAFETY: the region has these bytes until its last clone is dropped, was made above so that nothing else in
        // this process has the address, and cannot shrink.
        let mapped = unsafe { Mapped::new(first, size, attributes, keeper) }?;
        Ok((Self::new(mapped), file))
    }

    /// Maps the window that a peer on this host has made.
    ///
    /// # Errors
    /// [`ErrorKind::Unsafe`] if the file could shrink, or others than its owner may open it;
    /// [`ErrorKind::Refused`] if it cannot be mapped.
    pub fn attach(file: impl AsFd) -> Result<Self> {
        let file = file.as_fd();
        let unsafe_because = |what: &str| Error::new(ErrorKind::Unsafe, what);
        let seals = fcntl_get_seals(file).map_err(|errno| {
            unsafe_because("a file that cannot be sealed against shrinking").caused_by(errno)
        })?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(unsafe_because(
                "a file that is not sealed against shrinking",
            ));
        }
        let status = fstat(file).map_err(|errno| refused(errno, "looking at shared memory"))?;
        if Mode::from_raw_mode(status.st_mode).intersects(OTHERS) {
            return Err(unsafe_because("others than the owner may open the file"));
        }
        let size = u64::try_from(status.st_size).unwrap_or(0);
        map(file, size, Attributes::SHARED_MEMORY)
    }

    /// Maps a BAR by the kernel's file of it, `/sys/bus/pci/devices/<address>/resource<number>` or
    /// `resource<number>_wc`: write-combining if the name ends so, else uncached. The function must be enabled.
    ///
    /// # Errors
    /// [`ErrorKind::Unsafe`] if the file is not in sysfs: other files could shrink. Otherwise the kernel's error.
    pub fn open_resource(path: &Path, direction: Direction) -> Result<Self> {
        let attempted = || path.display().to_string();
        let file = open_file(path)?;
        let system = fstatfs(&file).map_err(|errno| refused(errno, attempted()))?;
        if u64::try_from(system.f_type).ok() != Some(SYSFS_MAGIC) {
            let context = format!("{} is not in sysfs", path.display());
            return Err(Error::new(ErrorKind::Unsafe, context));
        }
        let status = fstat(&file).map_err(|errno| refused(errno, attempted()))?;
        let attributes = Attributes {
            cacheability: cacheability_in_name(path),
            coherent: true,
            direction,
        };
        let size = u64::try_from(status.st_size).unwrap_or(0);
        map(file.as_fd(), size, attributes)
    }

    /// Maps a DAX device, `/dev/dax<region>.<number>`: persistent memory, or CXL memory that another host shares. The
    /// configuration of the memory determines `coherent`: whether the hardware keeps the hosts' caches coherent.
    ///
    /// # Errors
    /// [`ErrorKind::Unsafe`] if it is not a device; [`ErrorKind::Unsupported`] if it has no size; otherwise the
    /// kernel's error.
    pub fn open_dax(path: &Path, coherent: bool) -> Result<Self> {
        let file = open_file(path)?;
        let status = fstat(&file).map_err(|errno| refused(errno, path.display().to_string()))?;
        if FileType::from_raw_mode(status.st_mode) != FileType::CharacterDevice {
            let context = format!("{} is not a device", path.display());
            return Err(Error::new(ErrorKind::Unsafe, context));
        }
        let (major, minor) = (major(status.st_rdev), minor(status.st_rdev));
        let attribute = format!("/sys/dev/char/{major}:{minor}/size");
        let size = fs::read_to_string(&attribute)
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .ok_or_else(|| {
                let context = format!("{}: no size in {attribute}", path.display());
                Error::new(ErrorKind::Unsupported, context)
            })?;
        let attributes = Attributes {
            coherent,
            ..Attributes::SHARED_MEMORY
        };
        map(file.as_fd(), size, attributes)
    }

    /// The bytes of `range` of a BAR that this process owns. VFIO maps them uncached.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if they are not mapped as a whole; [`ErrorKind::OutOfRange`] if the range
    /// does not begin at a multiple of [`APART`](crate::APART).
    ///
    /// # Safety
    /// As long as the window or a half of it exists, this process uses no registers of the bar in that range, and
    /// makes no other window of it.
    #[cfg(feature = "pci")]
    pub unsafe fn on_bar(
        bar: &millrace_pci::Bar,
        range: std::ops::Range<u64>,
        attributes: Attributes,
    ) -> Result<Self> {
        let unmapped = || {
            let context = format!("{range:?} of the bar is not mapped");
            Error::new(ErrorKind::Unsupported, context)
        };
        let (first, area) = bar.mapped_bytes(&range).ok_or_else(unmapped)?;
        let size = usize::try_from(range.end - range.start).map_err(|_| unmapped())?;
        // SAFETY: the bar has these bytes mapped as long as the area exists, and the caller does not access them
        // otherwise.
        let mapped = unsafe { Mapped::new(first, size, attributes, area) }?;
        Ok(Self::new(mapped))
    }
}

/// A mapping of a file. Ends when it is dropped.
#[derive(Debug)]
struct Mapping {
    first: NonNull<u8>,
    size: usize,
}

// SAFETY: a mapping is an address range of this process; it is not bound to the thread that made it.
unsafe impl Send for Mapping {}

// SAFETY: nothing of it changes until it is dropped.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping's own. Users of its bytes hold a clone of it, so none is left now.
        let unmapped = unsafe { munmap(self.first.as_ptr().cast(), self.size) };
        debug_assert!(unmapped.is_ok(), "a mapping of one's own can be unmapped");
    }
}

fn open_file(path: &Path) -> Result<OwnedFd> {
    open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| refused(errno, path.display().to_string()))
}

fn cacheability_in_name(path: &Path) -> Cacheability {
    let name = path.file_name().unwrap_or_default();
    if name.as_encoded_bytes().ends_with(b"_wc") {
        Cacheability::WriteCombining
    } else {
        Cacheability::Uncached
    }
}

/// Maps the first `size` bytes of a file that cannot become shorter.
fn map(file: BorrowedFd<'_>, size: u64, attributes: Attributes) -> Result<Window> {
    let attempted = || format!("mapping a window of {size} bytes");
    let size = usize::try_from(size)
        .ok()
        .filter(|&size| size > 0)
        .ok_or_else(|| Error::new(ErrorKind::OutOfRange, attempted()))?;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: no address is asked for, so that the kernel takes one that is free.
    let address = unsafe { mmap(ptr::null_mut(), size, protection, MapFlags::SHARED, file, 0) }
        .map_err(|errno| refused(errno, attempted()))?;
    let first = NonNull::new(address.cast::<u8>())
        .ok_or_else(|| Error::new(ErrorKind::Refused, attempted()))?;
    let keeper: Keeper = Arc::new(Mapping { first, size });
    // SAFETY: the mapping has these bytes until its last clone is dropped; only the window has the address.
    // The callers check that the file cannot shrink.
    let mapped = unsafe { Mapped::new(first, size, attributes, keeper) }?;
    Ok(Window::new(mapped))
}
