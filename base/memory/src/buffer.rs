//! A block and its owner.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::slice;

use crate::cells::Returner;
use crate::{DeviceMemory, DomainId, Error, ErrorKind, Iova, Result};

/// A block of an [`Arena`](crate::Arena), accessible to devices. Dropping it returns it to the arena.
///
/// A new buffer has the contents of the block's last use, at first zeros.
///
/// A driver must own a buffer while a device accesses it: references to its bytes let the compiler assume that nothing
/// else changes them.
///
/// The used range is the whole block or a part of it ([`Buffer::set_range`]): its bytes, length and device address are
/// the range's.
pub struct Buffer {
    /// Of the first byte of use, as is the device address.
    address: NonNull<u8>,
    iova: Iova,
    /// The block's, in bytes, 2 GiB at most.
    capacity: u32,
    /// How far from the block's beginning the first byte of use is. `start + len` is no more than `capacity`.
    start: u32,
    len: u32,
    block: u32,
    domain: DomainId,
    /// Used when this is dropped, and by no reference.
    returner: Returner,
}

/// A request has one by value: it stays within a cache line.
const _: () = assert!(size_of::<Buffer>() <= 48);

// SAFETY: the block is this buffer's alone (invariant 2 of the crate), and bytes may be anywhere.
unsafe impl Send for Buffer {}

// SAFETY: through shared references the bytes are read. The returner, which belongs to one thread at a
// time, is touched by `drop` alone, which has the buffer to itself.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// # Safety
    /// As long as the returner exists, `capacity` bytes from `address` on are initialised memory that nothing else
    /// accesses until `block` is returned; `iova` is their device address.
    /// `len` is at most `capacity`.
    #[inline]
    pub(crate) unsafe fn new(
        address: NonNull<u8>,
        iova: Iova,
        capacity: u32,
        len: u32,
        block: u32,
        domain: DomainId,
        returner: Returner,
    ) -> Self {
        debug_assert!(len <= capacity);
        Self {
            address,
            iova,
            capacity,
            start: 0,
            len,
            block,
            domain,
            returner,
        }
    }

    /// Where the first byte of use is for the devices. The others follow.
    #[must_use]
    #[inline]
    pub const fn iova(&self) -> Iova {
        self.iova
    }

    /// How many bytes are of use.
    #[must_use]
    #[inline]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the used range is empty.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many bytes the block has.
    #[must_use]
    #[inline]
    pub const fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Domain whose devices can access the buffer. A driver compares it before it passes the device address to a
    /// device: in another domain the address may belong to other memory.
    #[must_use]
    #[inline]
    pub const fn domain(&self) -> DomainId {
        self.domain
    }

    /// Makes it shorter, or longer, up to the end of the block. The bytes stay; those behind the former end
    /// are what was last there.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the block ends before; nothing is changed.
    pub fn set_len(&mut self, len: usize) -> Result<()> {
        let start = self.start as usize;
        let end = start.checked_add(len);
        self.set_range(start..end.unwrap_or(usize::MAX))
    }

    /// Which bytes of the block are of use, from its beginning: within [`Buffer::capacity`]. The bytes stay
    /// as they are, also those that are of no use for now.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if there is no such range in the block; nothing is changed.
    pub fn set_range(&mut self, range: Range<usize>) -> Result<()> {
        let within = |at| u32::try_from(at).ok().filter(|at| *at <= self.capacity);
        let (Some(start), Some(end)) = (within(range.start), within(range.end)) else {
            return Err(self.no_such_range(&range));
        };
        let Some(len) = end.checked_sub(start) else {
            return Err(self.no_such_range(&range));
        };
        self.address = self.block_address();
        self.iova = Iova(self.iova.0 - u64::from(self.start) + u64::from(start));
        // SAFETY: the start is no more than the capacity, up to which the block is this buffer's.
        self.address = unsafe { self.address.add(start as usize) };
        (self.start, self.len) = (start, len);
        Ok(())
    }

    #[cold]
    fn no_such_range(&self, range: &Range<usize>) -> Error {
        let context = format!("bytes {range:?} of a buffer of {}", self.capacity);
        Error::new(ErrorKind::Invalid, context)
    }

    /// Which bytes of the block are of use.
    #[must_use]
    #[inline]
    pub const fn range(&self) -> Range<usize> {
        let start = self.start as usize;
        start..start + self.len()
    }

    /// The same memory for concurrent access by a device, from the start of the used range to the block's end, zeroed.
    ///
    /// # Panics
    /// If the used range does not begin at a multiple of [`DeviceMemory::ALIGN`]: words are accessed whole. The driver
    /// chooses the range, never a device; that of a new buffer is aligned.
    #[must_use]
    pub fn into_device_memory(self) -> DeviceMemory {
        DeviceMemory::new(self)
    }

    /// Where the first byte of use is in this process.
    #[inline]
    pub(crate) const fn address(&self) -> NonNull<u8> {
        self.address
    }

    /// Where the block begins in this process.
    #[inline]
    const fn block_address(&self) -> NonNull<u8> {
        // SAFETY: so far the first byte of use is behind the block's first one.
        unsafe { self.address.sub(self.start as usize) }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the block is this buffer's, is initialised, and has no fewer than `start + len` bytes.
        unsafe { slice::from_raw_parts(self.address.as_ptr(), self.len()) }
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the used range lies in the block, which is initialised memory that this buffer owns, and `&mut self`
        // excludes other references to it.
        unsafe { slice::from_raw_parts_mut(self.address.as_ptr(), self.len()) }
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        let returned = self.returner.try_push(self.block);
        // Each block is in the ring once at most, the ring has a slot for each, and this one's slot was free
        // before the buffer was made.
        assert!(returned.is_ok(), "a ring has room for all its blocks");
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("iova", &format_args!("{}", self.iova))
            .field("range", &self.range())
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}
