//! Memory that stays where it is.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create,
};
use rustix::io::{Errno, retry_on_intr};
use rustix::mm::{MapFlags, MlockFlags, ProtFlags, mlock, mlock_with, mmap, munmap};

use crate::{Error, ErrorKind, HugePages, Result, base_page_size, numa};

/// Auto takes huge pages if at most this part of them is left over.
const WASTE_DIVISOR: usize = 8;

/// How much is allocated at once: between two steps a signal that arrives is handled.
const STEP: usize = 64 << 20;

/// Of which pages a region is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pages {
    /// The largest huge pages of which enough are free and at most an eighth of the memory is left over by
    /// rounding up; base pages if there are none.
    #[default]
    Auto,
    /// Base pages.
    Base,
    /// Huge pages of so many bytes each.
    Huge(usize),
}

/// How a region is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionOptions {
    /// Of which pages.
    pub pages: Pages,
    /// The NUMA node that they must come from; anywhere if none.
    pub node: Option<u32>,
    /// Whether base pages are locked. Those that are not may be moved or swapped, and no limit counts them:
    /// for memory that only this process and the kernel touch, and for domains that pin by themselves what
    /// they map.
    pub locked: bool,
}

impl Default for RegionOptions {
    fn default() -> Self {
        Self {
            pages: Pages::default(),
            node: None,
            locked: true,
        }
    }
}

/// Memory that is locked, unless asked otherwise, and stays where it is, shared by whoever has its
/// descriptor.
///
/// All pages are there when it is made, so touching them never fails later. They start as zeros. The size of
/// the file is sealed: nobody who has the descriptor can make it shorter or longer. A child process shares
/// the pages and does not move them: the mapping is shared, not copied on write.
///
/// Base pages are locked and count against RLIMIT_MEMLOCK; huge pages are never swapped and do not.
///
/// Linux 4.16 or later.
pub struct Region {
    address: NonNull<u8>,
    size: usize,
    page_size: usize,
    file: OwnedFd,
}

// SAFETY: a region is an address and a descriptor; it hands out no reference to its bytes, so what threads
// may do to them is for those who make references from the address.
unsafe impl Send for Region {}

// SAFETY: as above; nothing of it changes until it is dropped.
unsafe impl Sync for Region {}

impl Region {
    /// A region of at least `size` bytes, rounded up to whole pages.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the size is zero or too large, a page size is not a power of two, or the
    /// node does not exist; [`ErrorKind::NoMemory`] if there is not enough memory of this kind;
    /// [`ErrorKind::LockLimit`] if base pages may not be locked; [`ErrorKind::Refused`] if the kernel cannot
    /// do one of the steps.
    pub fn new(size: usize, options: &RegionOptions) -> Result<Self> {
        let of = |huge| Self::of_pages(size, huge, options);
        match options.pages {
            Pages::Base => of(None),
            Pages::Huge(page_size) => of(Some(page_size)),
            Pages::Auto => auto_sizes(size, &HugePages::offered())
                .find_map(|page_size| of(Some(page_size)).ok())
                .map_or_else(|| of(None), Ok),
        }
    }

    fn of_pages(size: usize, huge: Option<usize>, options: &RegionOptions) -> Result<Self> {
        let page_size = huge.unwrap_or_else(base_page_size);
        let size = whole_pages(size, page_size)?;
        let file = create_file(size, huge)?;
        let address = map(&file, size).map_err(|errno| match huge {
            // Also said where a processor is emulated: there huge pages can be named but not mapped.
            Some(page_size) => no_such_pages(errno, page_size),
            None => refused(errno, &format!("mapping {size} bytes")),
        })?;
        let region = Self {
            address,
            size,
            page_size,
            file,
        };
        let locked = huge.is_some() || !options.locked || region.lock_to_come()?;
        if let Some(node) = options.node {
            numa::bind(address, size, node)?;
        }
        region.populate()?;
        if let (Some(node), Some(_)) = (options.node, huge) {
            numa::move_to(address, size, node)?;
        }
        if !locked {
            region.lock_present()?;
        }
        Ok(region)
    }

    /// Has all pages locked as soon as they are there. Comes before [`Region::populate`]: a limit is met
    /// before memory is allocated, and cannot be mistaken for a lack of memory. Returns whether that can be
    /// done: not by emulators of another processor.
    fn lock_to_come(&self) -> Result<bool> {
        let (address, size) = (self.address.as_ptr(), self.size);
        // SAFETY: the range is this mapping's own; locking does not change what it holds.
        let locked = unsafe { mlock_with(address.cast(), size, MlockFlags::ONFAULT) };
        match locked {
            Ok(()) => Ok(true),
            Err(Errno::NOSYS | Errno::INVAL) => Ok(false),
            Err(errno) => Err(self.not_locked(errno)),
        }
    }

    /// Locks pages that are there.
    fn lock_present(&self) -> Result<()> {
        let (address, size) = (self.address.as_ptr(), self.size);
        // SAFETY: as above.
        let locked = unsafe { mlock(address.cast(), size) };
        locked.map_err(|errno| self.not_locked(errno))
    }

    fn not_locked(&self, errno: Errno) -> Error {
        let attempted = "locking memory for devices";
        match errno {
            Errno::NOMEM | Errno::PERM | Errno::AGAIN => {
                Error::lock_limit(attempted, self.size).caused_by(errno)
            }
            _ => refused(errno, attempted),
        }
    }

    /// Allocates all pages and enters them into the page table. Allocating through the file makes a lack of
    /// memory an error; touching a page that cannot be allocated is a signal.
    fn populate(&self) -> Result<()> {
        let step = STEP.max(self.page_size);
        for offset in (0..self.size).step_by(step) {
            let count = step.min(self.size - offset);
            let (from, count) = (offset as u64, count as u64);
            retry_on_intr(|| fallocate(&self.file, FallocateFlags::empty(), from, count)).map_err(
                |errno| {
                    refused(
                        errno,
                        &format!(
                            "allocating {} pages of {} KiB",
                            self.size / self.page_size,
                            self.page_size / 1024
                        ),
                    )
                },
            )?;
        }
        for offset in (0..self.size).step_by(self.page_size) {
            // SAFETY: the offset is less than the size of the mapping.
            let page = unsafe { self.address.add(offset) };
            // SAFETY: the page is mapped for writing and, as the region is new, nobody else has it; it was
            // allocated above, so that entering it needs no more memory of its kind.
            unsafe { page.write_volatile(0) };
        }
        Ok(())
    }

    /// How many bytes: whole pages.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }

    /// The size in bytes of the pages that it is made of.
    #[must_use]
    pub const fn page_size(&self) -> usize {
        self.page_size
    }

    /// Where it begins in this process: a multiple of [`Region::page_size`].
    #[must_use]
    pub const fn address(&self) -> NonNull<u8> {
        self.address
    }

    /// The file behind it, from offset 0 on, for another process that is to see the same memory. Whoever has
    /// it can change all bytes, and punch holes that turn to zeros: only for those who are trusted with that.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping's own. Whoever uses its bytes holds a share of the region, so
        // that nobody does any more.
        let unmapped = unsafe { munmap(self.address.as_ptr().cast(), self.size) };
        debug_assert!(unmapped.is_ok(), "a mapping of one's own can be unmapped");
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("address", &self.address)
            .field("size", &self.size)
            .field("page_size", &self.page_size)
            .finish_non_exhaustive()
    }
}

/// The sizes of huge pages that [`Pages::Auto`] tries, the best first.
fn auto_sizes(size: usize, offered: &[HugePages]) -> impl Iterator<Item = usize> {
    offered.iter().filter_map(move |pages| {
        let rounded = whole_pages(size, pages.size).ok()?;
        let enough = (rounded / pages.size) as u64 <= pages.free;
        let waste = rounded - size;
        (enough && waste <= rounded / WASTE_DIVISOR).then_some(pages.size)
    })
}

fn whole_pages(size: usize, page_size: usize) -> Result<usize> {
    if !page_size.is_power_of_two() {
        let context = format!("pages of {page_size} bytes: a page size is a power of two");
        return Err(Error::new(ErrorKind::Invalid, context));
    }
    size.checked_next_multiple_of(page_size)
        .filter(|rounded| (1..=isize::MAX.unsigned_abs()).contains(rounded))
        .ok_or_else(|| Error::new(ErrorKind::Invalid, format!("memory of {size} bytes")))
}

/// A memfd of this size, which nobody can change.
fn create_file(size: usize, huge: Option<usize>) -> Result<OwnedFd> {
    let mut flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    if let Some(page_size) = huge {
        // The exponent of the page size lies from bit 26 on (memfd_create(2), MAP_HUGE_SHIFT).
        let exponent = MemfdFlags::from_bits_retain(page_size.trailing_zeros() << 26);
        flags |= MemfdFlags::HUGETLB | exponent;
    }
    let file = memfd_create("millrace", flags).map_err(|errno| match huge {
        Some(page_size) => no_such_pages(errno, page_size),
        None => refused(errno, "creating a memfd"),
    })?;
    ftruncate(&file, size as u64)
        .map_err(|errno| refused(errno, &format!("giving a memfd {size} bytes")))?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(&file, seals).map_err(|errno| refused(errno, "sealing a memfd"))?;
    Ok(file)
}

fn map(file: &OwnedFd, size: usize) -> std::result::Result<NonNull<u8>, Errno> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses an address that is free; the file is new, so that nobody else knows it.
    let address = unsafe { mmap(ptr::null_mut(), size, protection, MapFlags::SHARED, file, 0) }?;
    NonNull::new(address.cast()).ok_or(Errno::FAULT)
}

fn no_such_pages(errno: Errno, page_size: usize) -> Error {
    let offered: Vec<String> = HugePages::offered()
        .iter()
        .map(|pages| format!("{} of {} KiB", pages.free, pages.size / 1024))
        .collect();
    let offered = match offered.is_empty() {
        true => "none".to_owned(),
        false => offered.join(", "),
    };
    let wanted = page_size / 1024;
    let context = format!("huge pages of {wanted} KiB; free are: {offered}");
    Error::new(ErrorKind::NoMemory, context).caused_by(errno)
}

fn refused(errno: Errno, attempted: &str) -> Error {
    let kind = match errno {
        Errno::NOMEM | Errno::NOSPC | Errno::DQUOT => ErrorKind::NoMemory,
        _ => ErrorKind::Refused,
    };
    Error::new(kind, attempted).caused_by(errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auto(size: usize, offered: &[(usize, u64)]) -> Vec<usize> {
        let offered: Vec<HugePages> = offered
            .iter()
            .map(|&(size, free)| HugePages {
                size,
                total: free,
                free,
            })
            .collect();
        auto_sizes(size, &offered).collect()
    }

    #[test]
    fn auto_takes_the_largest_pages_that_are_free_and_waste_little() {
        const MIB: usize = 1 << 20;
        const GIB: usize = 1 << 30;
        let plenty = [(GIB, 9), (2 * MIB, 9000)];
        assert_eq!(auto(GIB, &plenty), [GIB, 2 * MIB]);
        // An eighth is left over, and a little more.
        assert_eq!(auto(GIB / 8 * 7, &plenty), [GIB, 2 * MIB]);
        assert_eq!(auto(GIB / 8 * 7 - 1, &plenty), [2 * MIB]);
        assert_eq!(auto(MIB, &plenty), [0_usize; 0]);
        assert_eq!(auto(GIB, &[(GIB, 0), (2 * MIB, 512)]), [2 * MIB]);
        assert_eq!(auto(GIB, &[(GIB, 0), (2 * MIB, 511)]), [0_usize; 0]);
        assert_eq!(auto(usize::MAX, &plenty), [0_usize; 0]);
        assert_eq!(auto(0, &plenty), [0_usize; 0]);
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        for (size, page_size) in [
            (0, 4096),
            (usize::MAX, 4096),
            (1 << 63, 4096),
            (1, 0),
            (1, 3),
        ] {
            let error = whole_pages(size, page_size).expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::Invalid);
        }
        assert_eq!(whole_pages(1, 4096).expect("sound"), 4096);
        assert_eq!(whole_pages(4097, 4096).expect("sound"), 8192);
    }
}
