//! The counters of a program in memory that the broker reads.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags, fchmod, fcntl_add_seals, ftruncate, memfd_create};

use crate::slab::{self, Totals};

/// The counters of a program: a slab without records. It survives a restart of the broker.
#[derive(Debug)]
pub struct SharedCounters {
    slab: OwnedFd,
}

impl SharedCounters {
    /// Counters that are all zero.
    ///
    /// # Errors
    /// The error of the failed system call.
    pub fn new() -> io::Result<Self> {
        let slab = memfd_create(
            "millrace-slab",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )?;
        fchmod(&slab, 0o600.into())?;
        ftruncate(&slab, slab::SIZE as u64)?;
        fcntl_add_seals(&slab, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let counters = Self { slab };
        counters.report(&Totals::default())?;
        Ok(counters)
    }

    /// Replaces the counters, with one system call.
    ///
    /// # Errors
    /// The error of the failed system call.
    pub fn report(&self, totals: &Totals) -> io::Result<()> {
        let header = totals.header(std::process::id());
        rustix::io::pwrite(&self.slab, &header, 0)?;
        Ok(())
    }
}

impl AsFd for SharedCounters {
    /// The slab's descriptor, for the broker.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.slab.as_fd()
    }
}
