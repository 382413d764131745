//! Creation of the file for a device.

use std::fs;
use std::path::Path;

use rustix::fs::{CWD, FallocateFlags, Mode, OFlags, fallocate, fsync, ftruncate, open};
use rustix::io::{Errno, retry_on_intr};

use super::backing::Backing;
use super::errno::kind_of;
use crate::{Error, ErrorKind, Result, Size};

/// Bytes allocated by one call: pending signals are handled between two calls.
const STEP: u64 = 1 << 30;
/// Multiple of a file's size, in bytes, whatever the device's block size is.
const BLOCK_BYTES: u64 = 4096;

/// Creates a file of `bytes` bytes and allocates its space.
pub(super) fn create(path: &Path, bytes: u64) -> Result<()> {
    if bytes == 0 || bytes % BLOCK_BYTES != 0 || i64::try_from(bytes).is_err() {
        let context =
            format!("a file of {bytes} bytes: the size must be a multiple of {BLOCK_BYTES}");
        return Err(Error::new(ErrorKind::Invalid, context));
    }
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let refused = |what: &str, errno: Errno| {
        let context = format!("{what} {} of {} bytes", path.display(), Size(bytes));
        Error::new(kind_of(errno), context).caused_by(errno)
    };
    let file = open(path, flags, mode).map_err(|errno| match errno {
        Errno::EXIST => {
            let context = format!("{} exists already", path.display());
            Error::new(ErrorKind::Invalid, context).caused_by(errno)
        }
        errno => refused("making", errno),
    })?;
    let backing = Backing::new(file, 0);
    let made = allocate(&backing, bytes)
        .and_then(|()| fsync(backing.file()))
        .and_then(|()| sync_folder_of(path));
    made.map_err(|errno| {
        // The file is new, so it holds no data.
        let _ = fs::remove_file(path);
        refused("allocating", errno)
    })
}

fn allocate(backing: &Backing, bytes: u64) -> rustix::io::Result<()> {
    for offset in (0..bytes).step_by(usize::try_from(STEP).unwrap_or(usize::MAX)) {
        let step = STEP.min(bytes - offset);
        let none = FallocateFlags::empty();
        match retry_on_intr(|| fallocate(backing.file(), none, offset, step)) {
            // As the C library does.
            Err(Errno::OPNOTSUPP) => {
                ftruncate(backing.file(), bytes)?;
                return backing.write_zeros(0, bytes);
            }
            allocated => allocated?,
        }
    }
    Ok(())
}

/// Flushes the directory entry of the file to the medium.
fn sync_folder_of(path: &Path) -> rustix::io::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(CWD, folder.unwrap_or(Path::new(".")), flags, Mode::empty())?;
    match fsync(folder) {
        // Some file systems have nothing to flush here, and return `EINVAL`.
        Err(Errno::INVAL) => Ok(()),
        synced => synced,
    }
}
