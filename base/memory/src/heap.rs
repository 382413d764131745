//! Memory of the allocator: a region on systems other than Linux, and under miri, which has no shared memory and
//! nothing to lock.

use std::alloc::{Layout, alloc_zeroed, dealloc};
#[cfg(miri)]
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
    ///
    /// # Errors
    /// [`ErrorKind::NoMemory`] if the allocator has none; [`ErrorKind::Refused`] for what only Linux has, but under
    /// miri, where nothing depends on it.
    pub(crate) fn new(size: usize, huge: Option<usize>, options: &RegionOptions) -> Result<Self> {
        if !cfg!(miri) {
            refuse_what_is_absent(huge, options)?;
        }
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
    #[cfg(miri)]
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

/// Refuses the first option that the allocator cannot fulfil.
fn refuse_what_is_absent(huge: Option<usize>, options: &RegionOptions) -> Result<()> {
    let absent = [
        ("huge pages", huge.is_some()),
        ("memory of a NUMA node", options.node.is_some()),
        ("locked memory", options.locked),
    ];
    absent
        .iter()
        .find(|(_, is_wanted)| *is_wanted)
        .map_or(Ok(()), |(what, _)| {
            let context = format!("{what}: only Linux is supported");
            Err(Error::new(ErrorKind::Refused, context))
        })
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    const UNLOCKED: RegionOptions = RegionOptions {
        pages: crate::Pages::Base,
        node: None,
        locked: false,
    };

    #[test]
    fn memory_is_zeroed_and_aligned() {
        let size = 2 * base_page_size();
        let heap = Heap::new(size, None, &UNLOCKED).expect("the allocator has memory");
        assert_eq!(heap.address().addr().get() % base_page_size(), 0);
        // SAFETY: the bytes are there until the drop, initialized, and nothing else refers to them.
        let bytes = unsafe { std::slice::from_raw_parts(heap.address().as_ptr(), size) };
        assert!(bytes.iter().all(|&byte| byte == 0));
    }

    #[test]
    fn options_that_only_linux_has_are_refused() {
        let of_node = RegionOptions {
            node: Some(0),
            ..UNLOCKED
        };
        for (huge, options, expected) in [
            (Some(2 << 20), UNLOCKED, "huge pages"),
            (None, of_node, "NUMA node"),
            (None, RegionOptions::default(), "locked memory"),
        ] {
            let error = Heap::new(2 << 20, huge, &options).err().expect(expected);
            assert_eq!(error.kind(), ErrorKind::Refused);
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
