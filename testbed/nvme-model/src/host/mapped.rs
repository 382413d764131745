//! A part of a file in this process's address space.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use millrace_pci::MappedArea;
use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::Access;

/// Shared bytes of a file, mapped until it is dropped.
#[derive(Debug)]
pub(crate) struct MappedFile {
    first: NonNull<u8>,
    size: usize,
}

// SAFETY: the mapping belongs to this value alone and is valid on every thread; its bytes are never lent.
unsafe impl Send for MappedFile {}

// SAFETY: bytes are accessed by volatile or atomic accesses only; no reference to them is made.
unsafe impl Sync for MappedFile {}

impl MappedFile {
    /// A new file in memory of `size` bytes, of which those from `offset` on are mapped.
    pub(crate) fn create(offset: u64, size: usize) -> io::Result<(OwnedFd, Self)> {
        let file = memfd_create("millrace-nvme-model", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, size as u64)?;
        let rest = usize::try_from((size as u64).saturating_sub(offset));
        let rest = rest.map_err(|_| io::ErrorKind::InvalidInput)?;
        let mapped = Self::new(&file, offset, rest)?;
        Ok((file, mapped))
    }

    /// Maps `size` bytes of `file` from `offset` on for reading and writing.
    pub(crate) fn new(file: impl AsFd, offset: u64, size: usize) -> io::Result<Self> {
        Self::with_protection(file, offset, size, ProtFlags::READ | ProtFlags::WRITE)
    }

    /// Maps what another process has sent, for what `access` allows. The file must have all these bytes now; one
    /// that shrinks later ends this process when they are reached, as a file that a process maps does.
    pub(crate) fn of_client(
        file: impl AsFd,
        offset: u64,
        size: usize,
        access: Access,
    ) -> io::Result<Self> {
        let length = u64::try_from(fstat(&file)?.st_size).unwrap_or(0);
        let end = offset.checked_add(size as u64);
        if size == 0 || end.is_none_or(|end| end > length) {
            let what = format!("{size} bytes from {offset:#x} on of a file of {length}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let mut protection = ProtFlags::empty();
        protection.set(ProtFlags::READ, access.read);
        protection.set(ProtFlags::WRITE, access.write);
        Self::with_protection(file, offset, size, protection)
    }

    fn with_protection(
        file: impl AsFd,
        offset: u64,
        size: usize,
        protection: ProtFlags,
    ) -> io::Result<Self> {
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

    /// The first `size` bytes as registers from `offset` of a BAR on.
    pub(crate) fn area(self: &Arc<Self>, offset: u64, size: usize) -> MappedArea {
        assert!(size <= self.size, "the area lies in the mapping");
        let keep: Arc<dyn fmt::Debug + Send + Sync> = Arc::<Self>::clone(self);
        // SAFETY: the bytes are mapped until the last share of `self` is dropped, at a page's start; they are
        // only ever used as atomics here.
        unsafe { MappedArea::new(offset..offset + size as u64, self.first, keep) }
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
        // SAFETY: `new` mapped exactly this range, and every user of the bytes holds a reference to this value.
        let unmapped = unsafe { munmap(self.first.as_ptr().cast(), self.size) };
        debug_assert!(unmapped.is_ok(), "what was mapped can be unmapped");
    }
}
