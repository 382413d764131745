//! Exclusive opening of a file or block special.

use std::os::fd::OwnedFd;
use std::path::Path;

use std::thread;
use std::time::Duration;

use rustix::fs::{FileType, FlockOperation, Mode, OFlags, flock, open, stat};
use rustix::io::Errno;

use super::FileOptions;
use super::errno::kind_of;
use super::probe::Probe;
use crate::{Error, ErrorKind, Geometry, Result, Size};

/// An open file or block special, its properties and the notes on it.
#[derive(Debug)]
pub(super) struct ExclusiveFile {
    pub(super) file: OwnedFd,
    pub(super) geometry: Geometry,
    pub(super) notes: Vec<String>,
}

impl ExclusiveFile {
    /// Opens a path exclusively.
    pub(super) fn open(path: &Path, options: FileOptions) -> Result<Self> {
        let shown = path.display();
        let refused = |what: &str, errno: Errno| {
            let context = format!("{what} {shown}");
            Error::new(kind_of(errno), context).caused_by(errno)
        };
        let found = stat(path).map_err(|errno| refused("opening", errno))?;
        let kind = FileType::from_raw_mode(found.st_mode);
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY;
        let flags = match kind {
            FileType::RegularFile => flags,
            // The kernel allows one exclusive opening of a block special.
            FileType::BlockDevice => flags | OFlags::EXCL,
            _ => {
                let context = format!("{shown} is neither a file nor a block special");
                return Err(Error::new(ErrorKind::Invalid, context));
            }
        };
        let in_use = |errno: Errno| {
            let context = format!("{shown} is in use: by this process, by another, or mounted");
            Error::new(ErrorKind::InUse, context).caused_by(errno)
        };
        let opened = retry_while_busy(Errno::BUSY, || open_as(path, flags, options.direct));
        let (file, direct) = opened.map_err(|errno| match errno {
            Errno::BUSY => in_use(errno),
            errno => refused("opening", errno),
        })?;
        if kind == FileType::RegularFile {
            // The lock ends with the last descriptor of this opening, which the queues share.
            let lock = || flock(&file, FlockOperation::NonBlockingLockExclusive);
            retry_while_busy(Errno::WOULDBLOCK, lock).map_err(|errno| match errno {
                Errno::WOULDBLOCK => in_use(errno),
                errno => refused("locking", errno),
            })?;
        }
        let probe = Probe::new(&file).map_err(|errno| refused("asking about", errno))?;
        // The kernel accepts `O_DIRECT` on some file systems that do not support it.
        let direct = direct && probe.can_direct();
        let (file, direct) = match direct || !options.direct {
            true => (file, direct),
            false => (
                buffered(file).map_err(|errno| refused("opening", errno))?,
                false,
            ),
        };
        let mut notes = Vec::new();
        if options.direct && !direct {
            notes.push(
                "direct I/O is not supported here: all transfers go through the page cache"
                    .to_owned(),
            );
        }
        let geometry = probe.geometry(direct);
        geometry.check().map_err(|error| {
            let context = format!(
                "{shown} has {} bytes: too small for a device",
                Size(probe.bytes())
            );
            Error::new(ErrorKind::Invalid, context).caused_by(error)
        })?;
        Ok(Self {
            file,
            geometry,
            notes,
        })
    }
}

/// Opens with `O_DIRECT` if it is wanted and supported; whether it is in effect.
fn open_as(path: &Path, flags: OFlags, direct: bool) -> rustix::io::Result<(OwnedFd, bool)> {
    if direct {
        match open(path, flags | OFlags::DIRECT, Mode::empty()) {
            Err(Errno::INVAL) => {}
            other => return Ok((other?, true)),
        }
    }
    Ok((open(path, flags, Mode::empty())?, false))
}

/// Turns `O_DIRECT` off for this opening.
fn buffered(file: OwnedFd) -> rustix::io::Result<OwnedFd> {
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags - OFlags::DIRECT)?;
    Ok(file)
}

/// Retries for half a second while the error is `busy`. The kernel closes the files of a killed process's rings some
/// milliseconds after its exit, and an immediate restart must not fail for that.
fn retry_while_busy<T>(
    busy: Errno,
    mut attempt: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    for _ in 0..50 {
        match attempt() {
            Err(errno) if errno == busy => thread::sleep(Duration::from_millis(10)),
            result => return result,
        }
    }
    attempt()
}
