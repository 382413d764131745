//! A part of a file in this process's address space.

use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Shared bytes of a file, mapped until it is dropped.
#[derive(Debug)]
pub(crate) struct MappedFile {
    first: NonNull<u8>,
    size: usize,
}

// SAFETY: the mapping belongs to this value alone and is valid on every thread; its bytes are never lent.
unsafe impl Send for MappedFile {}

// SAFETY: as above.
unsafe impl Sync for MappedFile {}

impl MappedFile {
    /// Maps `size` bytes of `file` from `offset` on for reading and writing.
    pub(crate) fn new(file: impl AsFd, offset: u64, size: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the place, so that nothing that is mapped changes.
        let first = unsafe {
            mmap(
                std::ptr::null_mut(),
                size,
                protection,
                MapFlags::SHARED,
                file,
                offset,
            )
        }?;
        let first = NonNull::new(first.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { first, size })
    }

    pub(crate) const fn first(&self) -> NonNull<u8> {
        self.first
    }

    pub(crate) const fn size(&self) -> usize {
        self.size
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: `new` mapped exactly this, and who uses the bytes holds a share of this value.
        let unmapped = unsafe { munmap(self.first.as_ptr().cast(), self.size) };
        debug_assert!(unmapped.is_ok(), "what was mapped can be unmapped");
    }
}
