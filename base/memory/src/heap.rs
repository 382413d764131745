//! What stands in for a memfd where miri interprets: it has no shared memory, and nothing to lock.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use crate::{Error, ErrorKind, RegionOptions, Result, base_page_size};

/// Zeroed memory of the heap, which begins at a multiple of its pages' size.
pub(crate) struct Heap {
    address: NonNull<u8>,
    layout: Layout,
}

impl Heap {
    /// Memory of `size` bytes, in whole pages: huge pages of `huge` bytes each, or base pages.
    pub(crate) fn new(size: usize, huge: Option<usize>, _: &RegionOptions) -> Result<Self> {
        let none = || Error::new(ErrorKind::NoMemory, format!("{size} bytes"));
        let align = huge.unwrap_or_else(base_page_size);
        let layout = Layout::from_size_align(size, align).map_err(|_| none())?;
        // SAFETY: a region is not empty.
        let address = unsafe { alloc_zeroed(layout) };
        let address = NonNull::new(address).ok_or_else(none)?;
        Ok(Self { address, layout })
    }

    /// Address of the first byte.
    pub(crate) const fn address(&self) -> NonNull<u8> {
        self.address
    }

    /// Not available. Crates that pass a region to other processes do not do so under miri.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        panic!("memory under miri has no file")
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout, and the region that owned the bytes is being dropped.
        unsafe { dealloc(self.address.as_ptr(), self.layout) };
    }
}
