//! Registers in this process's address space.

use std::fmt;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rustix::io;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::MappedArea;

/// A shared mapping of a file, unmapped on drop.
struct Mapping {
    address: NonNull<u8>,
    size: usize,
}

// SAFETY: a mapping is an address range of this process; it is not bound to the thread that made it.
unsafe impl Send for Mapping {}

// SAFETY: nothing of it changes until it is dropped.
unsafe impl Sync for Mapping {}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapping").field("size", &self.size).finish()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping's own, and users of its words hold a clone of it, so that none is left now.
        let unmapped = unsafe { munmap(self.address.as_ptr().cast(), self.size) };
        debug_assert!(unmapped.is_ok(), "a mapping of one's own can be unmapped");
    }
}

/// Maps the registers at `range` of a bar, which lie at `offset` of the file. The offset and the start of the
/// range must be multiples of the page size (`Region::areas`); the length need not, a bar smaller than a page
/// gets the whole page.
pub(crate) fn map(file: BorrowedFd<'_>, range: Range<u64>, offset: u64) -> io::Result<MappedArea> {
    let size = range
        .end
        .checked_sub(range.start)
        .and_then(|size| usize::try_from(size).ok())
        .ok_or(io::Errno::INVAL)?;
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: no address is asked for, so that the kernel takes one that is free.
    let address = unsafe { mmap(ptr::null_mut(), size, protection, flags, file, offset) }?;
    let address = NonNull::new(address.cast::<u8>()).ok_or(io::Errno::NOMEM)?;
    let mapping = Arc::new(Mapping { address, size });
    // SAFETY: the mapping has these bytes, from the start of a page on, until its last clone is dropped; the range
    // starts at a page of the bar (`Region::areas` leaves out other ranges); the address is passed to the area only.
    Ok(unsafe { MappedArea::new(range, address, mapping) })
}
