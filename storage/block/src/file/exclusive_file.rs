//! Opening a file or block special for one alone.

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

/// An opened place: what it is like, and what is to be said about it.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) file: OwnedFd,
    pub(super) geometry: Geometry,
    pub(super) notes: Vec<String>,
}

impl Place {
    /// Opens it, for this opening alone.
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
            // Of a block special the kernel gives one such opening.
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
        let opened = patiently(Errno::BUSY, || open_as(path, flags, options.direct));
        let (file, direct) = opened.map_err(|errno| match errno {
            Errno::BUSY => in_use(errno),
            errno => refused("opening", errno),
        })?;
        if kind == FileType::RegularFile {
            // Ends with the last descriptor of this opening, which the queues share.
            let lock = || flock(&file, FlockOperation::NonBlockingLockExclusive);
            patiently(Errno::WOULDBLOCK, lock).map_err(|errno| match errno {
                Errno::WOULDBLOCK => in_use(errno),
                errno => refused("locking", errno),
            })?;
        }
        let probe = Probe::new(&file).map_err(|errno| refused("asking about", errno))?;
        // The kernel takes the flag on some file systems that cannot do it.
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
            notes.push("no direct transfers here: all goes through the page cache".to_owned());
        }
        let geometry = probe.geometry(direct);
        geometry.check().map_err(|error| {
            let context = format!("{shown} has {} bytes: no device", Size(probe.bytes()));
            Error::new(ErrorKind::Invalid, context).caused_by(error)
        })?;
        Ok(Self {
            file,
            geometry,
            notes,
        })
    }
}

/// Opens it without the page cache if that is wished and can be; whether it is so.
fn open_as(path: &Path, flags: OFlags, direct: bool) -> rustix::io::Result<(OwnedFd, bool)> {
    if direct {
        match open(path, flags | OFlags::DIRECT, Mode::empty()) {
            Err(Errno::INVAL) => {}
            other => return Ok((other?, true)),
        }
    }
    Ok((open(path, flags, Mode::empty())?, false))
}

/// The same opening, with the page cache.
fn buffered(file: OwnedFd) -> rustix::io::Result<OwnedFd> {
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags - OFlags::DIRECT)?;
    Ok(file)
}

/// Tries again for half a second while the answer is `busy`. The kernel closes what the rings of a killed process
/// held some milliseconds after the process is gone, and whoever starts it anew should not have to know.
fn patiently<T>(busy: Errno, mut attempt: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    for _ in 0..50 {
        match attempt() {
            Err(errno) if errno == busy => thread::sleep(Duration::from_millis(10)),
            result => return result,
        }
    }
    attempt()
}
