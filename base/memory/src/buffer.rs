//! A block and who has it.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::slice;

use crate::cells::Returner;
use crate::{DeviceMemory, DomainId, Error, ErrorKind, Iova, Result};

/// Bytes that devices see, of an [`Arena`](crate::Arena)'s block. Returned to the arena when it is dropped.
///
/// New ones hold what the block's last holder left there, at first zeros.
///
/// Whoever has a device work on a buffer must have it by value until the device is done with it: references
/// to its bytes tell the compiler that nobody else changes them.
///
/// All of its block is of use, or a range of it ([`Buffer::set_range`]): its bytes, their number and their
/// device address are the range's.
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
    /// For as long as the returner exists, `capacity` bytes from `address` on are initialised memory which
    /// nobody else reads or writes until `block` is returned; `iova` is where devices see it.
    /// `len` is no more than `capacity`.
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

    /// Whether no byte is.
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

    /// The domain whose devices see it. A driver compares before it names the buffer to a device: in another
    /// domain its device address may be somebody else's.
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

    /// The same memory to share with a device, from the first byte of use to the block's end, zeroed.
    ///
    /// # Panics
    /// If the first byte of use is not at a multiple of [`DeviceMemory::ALIGN`]: words are accessed whole.
    /// Where a range begins is the driver's choice, never a device's; that of a new buffer fits.
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
        // SAFETY: as above, and whoever calls has the buffer to itself.
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
