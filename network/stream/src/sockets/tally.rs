//! What a program has counted, where the monitor can read it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags, fchmod, fcntl_add_seals, ftruncate, memfd_create};

use crate::slab::{self, Totals};

/// What a program has counted: a slab without records. It outlives monitors.
#[derive(Debug)]
pub struct Tally {
    slab: OwnedFd,
}

impl Tally {
    /// All zero.
    ///
    /// # Errors
    /// What the system says.
    pub fn new() -> io::Result<Self> {
        let slab = memfd_create(
            "millrace-slab",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )?;
        fchmod(&slab, 0o600.into())?;
        ftruncate(&slab, slab::SIZE as u64)?;
        fcntl_add_seals(&slab, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let tally = Self { slab };
        tally.report(&Totals::default())?;
        Ok(tally)
    }

    /// Replaces what the monitor reads: one system call.
    ///
    /// # Errors
    /// What the system says.
    pub fn report(&self, totals: &Totals) -> io::Result<()> {
        let header = totals.header(std::process::id());
        rustix::io::pwrite(&self.slab, &header, 0)?;
        Ok(())
    }
}

impl AsFd for Tally {
    /// The slab, for the monitor.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.slab.as_fd()
    }
}
