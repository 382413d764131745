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
    /// One of `size` bytes, in whole pages: huge ones of so many bytes each, or base pages.
    pub(crate) fn new(size: usize, huge: Option<usize>, _: &RegionOptions) -> Result<Self> {
        let none = || Error::new(ErrorKind::NoMemory, format!("{size} bytes"));
        let align = huge.unwrap_or_else(base_page_size);
        let layout = Layout::from_size_align(size, align).map_err(|_| none())?;
        // SAFETY: a region is not empty.
        let address = unsafe { alloc_zeroed(layout) };
        let address = NonNull::new(address).ok_or_else(none)?;
        Ok(Self { address, layout })
    }

    /// Where it begins.
    pub(crate) const fn address(&self) -> NonNull<u8> {
        self.address
    }

    /// There is none. Crates that hand a region to other processes are built for miri, and do not do it there.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        panic!("memory under miri has no file")
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout, and nobody uses the bytes of a region any more.
        unsafe { dealloc(self.address.as_ptr(), self.layout) };
    }
}
