//! A file or block special, accessed by system calls of the calling thread.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FallocateFlags, fallocate, fdatasync};
use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev2, retry_on_intr};

use super::errno::failure;
use crate::{Error, ErrorKind, Operation, Request, Result};

/// Repetitions of a system call after `EAGAIN` before it fails.
pub(super) const AGAIN_MAX: u32 = 1000;

/// A block of zeros, aligned for writes that bypass the page cache.
#[repr(align(4096))]
struct Zeros([u8; 64 << 10]);

static ZEROS: Zeros = Zeros([0; 64 << 10]);

/// An open file or block special, and the operations that its file system does not support.
#[derive(Debug)]
pub(super) struct Backing {
    file: OwnedFd,
    block_shift: u32,
    /// Whether zeros must be written.
    no_zero_range: AtomicBool,
    /// Whether a write-through is a write and a flush.
    no_dsync: AtomicBool,
}

impl Backing {
    pub(super) const fn new(file: OwnedFd, block_shift: u32) -> Self {
        Self {
            file,
            block_shift,
            no_zero_range: AtomicBool::new(false),
            no_dsync: AtomicBool::new(false),
        }
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(super) const fn bytes(&self, blocks: u64) -> u64 {
        blocks << self.block_shift
    }

    /// Executes a request that was validated.
    pub(super) fn execute(&self, request: &mut Request) -> Result<()> {
        let (operation, lba) = (request.operation, request.lba);
        let offset = self.bytes(lba.0);
        let done = match (operation, &mut request.buffer) {
            (Operation::Read, Some(buffer)) => self.read(offset, buffer),
            (Operation::Write, Some(buffer)) => self.write(offset, buffer),
            (Operation::WriteThrough, Some(buffer)) => self.write_through(offset, buffer),
            (Operation::Deallocate(blocks), _) => self.punch(offset, self.bytes(blocks)),
            (Operation::WriteZeroes(blocks), _) => self.zero(offset, self.bytes(blocks)),
            (Operation::Flush, _) => retry_on_intr(|| fdatasync(&self.file)),
            (Operation::Read | Operation::Write | Operation::WriteThrough, None) => {
                return Err(Error::new(ErrorKind::Invalid, "no buffer"));
            }
        };
        done.map_err(|errno| failure(errno, &operation, lba))
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> rustix::io::Result<()> {
        let len = bytes.len();
        whole(len, |done| {
            let mut rest = [IoSliceMut::new(&mut bytes[done..])];
            let flags = ReadWriteFlags::empty();
            preadv2(&self.file, &mut rest, offset + done as u64, flags)
        })
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> rustix::io::Result<()> {
        self.write_with(offset, bytes, ReadWriteFlags::empty())
    }

    fn write_with(
        &self,
        offset: u64,
        bytes: &[u8],
        flags: ReadWriteFlags,
    ) -> rustix::io::Result<()> {
        whole(bytes.len(), |done| {
            let rest = [IoSlice::new(&bytes[done..])];
            pwritev2(&self.file, &rest, offset + done as u64, flags)
        })
    }

    fn write_through(&self, offset: u64, bytes: &[u8]) -> rustix::io::Result<()> {
        if !self.no_dsync.load(Ordering::Relaxed) {
            match self.write_with(offset, bytes, ReadWriteFlags::DSYNC) {
                Err(Errno::OPNOTSUPP) => self.no_dsync.store(true, Ordering::Relaxed),
                other => return other,
            }
        }
        self.write(offset, bytes)?;
        retry_on_intr(|| fdatasync(&self.file))
    }

    fn punch(&self, offset: u64, len: u64) -> rustix::io::Result<()> {
        retry_on_intr(|| fallocate(&self.file, PUNCH, offset, len))
    }

    /// Zeroes bytes; writes zeros where the file system has no operation for it.
    pub(super) fn zero(&self, offset: u64, len: u64) -> rustix::io::Result<()> {
        if !self.no_zero_range.load(Ordering::Relaxed) {
            match retry_on_intr(|| fallocate(&self.file, ZERO, offset, len)) {
                Err(Errno::OPNOTSUPP) => self.no_zero_range.store(true, Ordering::Relaxed),
                other => return other,
            }
        }
        self.write_zeros(offset, len)
    }

    /// Writes zeros to `len` bytes at `offset`.
    pub(super) fn write_zeros(&self, offset: u64, len: u64) -> rustix::io::Result<()> {
        let mut done = 0;
        while done < len {
            let step = (len - done).min(ZEROS.0.len() as u64);
            let step_bytes = usize::try_from(step).expect("no more than the zeros");
            self.write(offset + done, &ZEROS.0[..step_bytes])?;
            done += step;
        }
        Ok(())
    }
}

/// `fallocate` mode that makes a hole.
pub(super) const PUNCH: FallocateFlags =
    FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);
/// `fallocate` mode that zeroes a range.
pub(super) const ZERO: FallocateFlags = FallocateFlags::ZERO_RANGE.union(FallocateFlags::KEEP_SIZE);

/// Repeats a call that may transfer fewer than `len` bytes.
fn whole(
    len: usize,
    mut call: impl FnMut(usize) -> rustix::io::Result<usize>,
) -> rustix::io::Result<()> {
    let (mut done, mut again) = (0, 0);
    while done < len {
        match call(done) {
            // The file was truncated.
            Ok(0) => return Err(Errno::NXIO),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if again < AGAIN_MAX => again += 1,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_short_goes_on() {
        let mut answers = vec![Ok(3), Err(Errno::INTR), Ok(1), Err(Errno::AGAIN), Ok(4)];
        let mut from = Vec::new();
        let moved = whole(8, |done| {
            from.push(done);
            answers.remove(0)
        });
        assert_eq!((moved, from), (Ok(()), vec![0, 3, 3, 4, 4]));
        assert_eq!(whole(8, |_| Ok(0)), Err(Errno::NXIO));
        assert_eq!(whole(8, |_| Err(Errno::IO)), Err(Errno::IO));
        assert_eq!(whole(8, |_| Err(Errno::AGAIN)), Err(Errno::AGAIN));
        assert_eq!(whole(0, |_| Err(Errno::IO)), Ok(()));
    }
}
