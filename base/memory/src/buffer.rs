//! A block and who has it.

use std::fmt;
use std::ops::{Deref, DerefMut};
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
pub struct Buffer {
    address: NonNull<u8>,
    iova: Iova,
    /// In bytes, 2 GiB at most.
    capacity: u32,
    len: u32,
    block: u32,
    domain: DomainId,
    /// Used when this is dropped, and by no reference.
    returner: Returner,
}

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
            len,
            block,
            domain,
            returner,
        }
    }

    /// Where the first byte is for the devices. The others follow.
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

    /// Makes it shorter, or as long as the block at most. The bytes stay; those behind the former end are
    /// what was last there.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the block is shorter than `len`; nothing is changed.
    pub fn set_len(&mut self, len: usize) -> Result<()> {
        let fits = u32::try_from(len).ok().filter(|len| *len <= self.capacity);
        let Some(fits) = fits else {
            let context = format!("{len} bytes in a buffer of {}", self.capacity);
            return Err(Error::new(ErrorKind::Invalid, context));
        };
        self.len = fits;
        Ok(())
    }

    /// The same memory to share with a device, all of the block zeroed.
    #[must_use]
    pub fn into_device_memory(self) -> DeviceMemory {
        DeviceMemory::new(self)
    }

    /// Where the first byte is in this process.
    #[inline]
    pub(crate) const fn address(&self) -> NonNull<u8> {
        self.address
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the block is this buffer's, is initialised, and has no fewer than `len` bytes.
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
            .field("len", &self.len)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}
