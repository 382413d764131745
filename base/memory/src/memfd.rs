//! Memory behind a descriptor.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create,
};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MlockFlags, ProtFlags, mlock, mlock_with, mmap, munmap};

use crate::{Error, ErrorKind, HugePages, RegionOptions, Result, available, base_page_size, numa};

/// How much is allocated at once, if no signal comes.
const STEP_MAX: usize = 64 << 20;

/// A memfd, sealed and mapped whole, with all pages allocated.
pub(crate) struct Memfd {
    address: NonNull<u8>,
    size: usize,
    page_size: usize,
    file: OwnedFd,
}

impl Memfd {
    /// A memfd of `size` bytes, in whole pages: huge pages of `huge` bytes each, or base pages.
    ///
    /// # Errors
    /// As [`Region::new`](crate::Region::new).
    pub(crate) fn new(size: usize, huge: Option<usize>, options: &RegionOptions) -> Result<Self> {
        if huge.is_none() {
            // Huge pages are set aside: the kernel counts them itself when they are mapped.
            available::check(size, options.node)?;
        }
        let file = create_file(size, huge)?;
        let address = map(&file, size).map_err(|errno| match huge {
            // Also returned where a processor is emulated: there huge pages exist but cannot be mapped.
            Some(page_size) => no_such_pages(errno, page_size),
            None => refused(errno, &format!("mapping {size} bytes")),
        })?;
        let memory = Self {
            address,
            size,
            page_size: huge.unwrap_or_else(base_page_size),
            file,
        };
        let locked = huge.is_some() || !options.locked || memory.lock_to_come()?;
        if let Some(node) = options.node {
            numa::bind(address, size, node)?;
        }
        memory.populate()?;
        if let (Some(node), Some(_)) = (options.node, huge) {
            numa::move_to(address, size, node)?;
        }
        if !locked {
            memory.lock_present()?;
        }
        Ok(memory)
    }

    /// Locks all pages as they are allocated. Must precede [`Memfd::populate`]: an exceeded limit is then an error of
    /// its own before memory is allocated. Returns whether locking is supported; emulators of another processor do not
    /// support it.
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
        // SAFETY: the range is this mapping; locking it changes no contents and invalidates no reference.
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
    /// huge pages an error; touching one that cannot be allocated is a signal.
    fn populate(&self) -> Result<()> {
        let allocate = |from: usize, count: usize| {
            let (from, count) = (from as u64, count as u64);
            fallocate(&self.file, FallocateFlags::empty(), from, count)
        };
        in_steps(self.size, self.page_size, allocate).map_err(|errno| {
            let (count, kibibytes) = (self.size / self.page_size, self.page_size / 1024);
            refused(
                errno,
                &format!("allocating {count} pages of {kibibytes} KiB"),
            )
        })?;
        for offset in (0..self.size).step_by(self.page_size) {
            // SAFETY: the offset is less than the size of the mapping.
            let page = unsafe { self.address.add(offset) };
            // SAFETY: the page is mapped for writing and new, so nothing else accesses it; it was allocated above, so
            // that mapping it needs no more memory of its kind.
            unsafe { page.write_volatile(0) };
        }
        Ok(())
    }

    /// Where it begins in this process.
    pub(crate) const fn address(&self) -> NonNull<u8> {
        self.address
    }

    /// The file, which is as long as the memory.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Memfd {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping's own. Users of its bytes hold a clone of the region, so none is left now.
        let unmapped = unsafe { munmap(self.address.as_ptr().cast(), self.size) };
        debug_assert!(unmapped.is_ok(), "a mapping of one's own can be unmapped");
    }
}

/// Calls `allocate` with offset and count for all of `size` bytes, in steps of whole pages.
///
/// The kernel takes a step back that a signal interrupts, and nothing would ever be done if each step were
/// interrupted. So the next one is half as long, down to one page, which is not; after one that succeeds they
/// grow again.
fn in_steps(
    size: usize,
    page_size: usize,
    mut allocate: impl FnMut(usize, usize) -> std::result::Result<(), Errno>,
) -> std::result::Result<(), Errno> {
    let step_max = STEP_MAX.max(page_size);
    let (mut offset, mut step) = (0, step_max);
    while offset < size {
        let count = step.min(size - offset);
        match allocate(offset, count) {
            Ok(()) => {
                offset += count;
                step = (step * 2).min(step_max);
            }
            // Both sizes are powers of two, and a step remains one.
            Err(Errno::INTR) => step = (step / 2).max(page_size),
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// A sealed memfd of this size: no process can shrink or grow it.
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
    // SAFETY: the kernel chooses a free address; the file is new, so no other process has it.
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

    const PAGE: usize = 4096;

    /// A kernel in which a signal comes after each `between` pages of work, and which takes back what it has
    /// allocated of the step that is interrupted.
    struct Interrupted {
        between: usize,
        until_signal: usize,
        /// All work, that which was in vain too, in pages.
        work: usize,
        allocated: usize,
    }

    impl Interrupted {
        fn new(between: usize) -> Self {
            Self {
                between,
                until_signal: between,
                work: 0,
                allocated: 0,
            }
        }

        fn allocate(&mut self, from: usize, count: usize) -> std::result::Result<(), Errno> {
            assert!(count > 0 && count % PAGE == 0 && count <= STEP_MAX);
            assert_eq!(from, self.allocated, "one step follows the other");
            assert!(self.work < 1 << 24, "no progress");
            let pages = count / PAGE;
            if pages > self.until_signal {
                self.work += self.until_signal;
                self.until_signal = self.between;
                return Err(Errno::INTR);
            }
            self.until_signal -= pages;
            self.work += pages;
            self.allocated += count;
            Ok(())
        }
    }

    #[test]
    fn signals_do_not_stop_progress() {
        let size = 3 * STEP_MAX + 5 * PAGE;
        for between in [1, 2, 3, 100, 4096, STEP_MAX / PAGE - 1, usize::MAX] {
            let mut kernel = Interrupted::new(between);
            let done = in_steps(size, PAGE, |from, count| kernel.allocate(from, count));
            assert_eq!((done, kernel.allocated), (Ok(()), size), "{between}");
            let most = 4 * size / PAGE + 2 * (STEP_MAX / PAGE);
            assert!(kernel.work <= most, "{between}: {} pages", kernel.work);
        }
    }

    #[test]
    fn steps_are_no_smaller_than_a_page_and_end_with_an_error() {
        let mut steps = Vec::new();
        let gigantic = 1 << 30;
        let done = in_steps(3 * gigantic, gigantic, |from, count| {
            steps.push((from / gigantic, count / gigantic));
            match steps.len() {
                1 | 3 => Err(Errno::INTR),
                5 => Err(Errno::NOSPC),
                _ => Ok(()),
            }
        });
        assert_eq!(done, Err(Errno::NOSPC));
        assert_eq!(steps, [(0, 1), (0, 1), (1, 1), (1, 1), (2, 1)]);
        assert_eq!(in_steps(0, PAGE, |_, _| Err(Errno::NOSPC)), Ok(()));
    }
}
