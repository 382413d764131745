//! A file or block special as a device.

mod backing;
mod create;
mod errno;
mod place;
mod probe;
mod queue;
#[expect(unsafe_code, reason = "the kernel is told where buffers are")]
mod ring;

use std::path::Path;
use std::sync::Arc;

use millrace_memory::{Domain, DomainId, NoDevice};

use self::backing::Backing;
use self::place::Place;
use self::queue::FileQueue;
use self::ring::Ring;
use crate::{Device, Geometry, Queue, Result};

/// How a file is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOptions {
    /// Whether the page cache is gone around where that can be.
    pub direct: bool,
    /// Whether requests that are submitted go through an io_uring where there is one.
    pub io_uring: bool,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self {
            direct: true,
            io_uring: true,
        }
    }
}

/// A file, or a block special of the kernel, opened for this process and this opening alone.
///
/// A file is locked (`flock`), a block special opened exclusively, so that it cannot be mounted meanwhile.
///
/// # How requests are done
/// [`Queue::run`] is a plain call in the calling thread: `pread`, `pwrite`, `fdatasync`, `pwritev2` with
/// `RWF_DSYNC`. It is the faster way for one request: a flush in an io_uring goes to another thread of the
/// kernel. [`Queue::submit`] puts a request into an io_uring of the queue's own, and the next [`Queue::poll`]
/// or [`Queue::wait`] tells the kernel of all of them in one call. The rings poll for no completions of the
/// disk, as flushes could not go through such a ring. They have no registered buffers: those would save about
/// a tenth of the processor's time for a read, and be pinned, which counts against `RLIMIT_MEMLOCK`. Where
/// there is no io_uring each poll does one request by a plain call.
///
/// # Durability
/// A file's writes are on the medium after a flush: the disk below may cache, and so may the file system what
/// the file consists of. Allocate files beforehand ([`FileDevice::create`]): else a flush writes that as
/// well. On journalling file systems the flush after the first write of each block, also of one that was made
/// zeros or deallocated, still takes nearly twice as long as later ones. Deallocation makes holes; whether
/// there is space to fill them again is seen when they are written. It fails with
/// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) where the file system knows no holes: nothing is
/// tried when a file is opened, which leaves it as it was, with its time of modification.
#[derive(Debug)]
pub struct FileDevice {
    name: String,
    geometry: Geometry,
    notes: Vec<String>,
    domain: Arc<dyn Domain>,
    backing: Arc<Backing>,
    io_uring: bool,
}

impl FileDevice {
    /// Opens a file or block special.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound),
    /// [`ErrorKind::Permission`](crate::ErrorKind::Permission), [`ErrorKind::InUse`](crate::ErrorKind::InUse)
    /// if anybody has it open as a device or it is mounted, [`ErrorKind::Invalid`](crate::ErrorKind::Invalid)
    /// if it is neither of both, or has not one block.
    pub fn open(path: &Path, options: FileOptions) -> Result<Self> {
        let Place {
            file,
            geometry,
            mut notes,
        } = Place::open(path, options)?;
        let backing = Arc::new(Backing::new(file, geometry.block_shift()));
        let mut io_uring = options.io_uring;
        if io_uring {
            if let Err(error) = Ring::new(Arc::clone(&backing), 1) {
                notes.push(format!(
                    "no io_uring, so that each request is a call of its own: {error}"
                ));
                io_uring = false;
            }
        }
        Ok(Self {
            name: format!("file:{}", path.display()),
            geometry,
            notes,
            domain: NoDevice::shared(),
            backing,
            io_uring,
        })
    }

    /// Makes a file for a device of so many bytes, a multiple of 4 KiB: with mode 0600, and with its space.
    /// It is on the medium when this returns.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if there is something of this name, or the number
    /// makes no sense, [`ErrorKind::NoSpace`](crate::ErrorKind::NoSpace), and what keeps it from being made
    /// otherwise. No file is there then.
    pub fn create(path: &Path, bytes: u64) -> Result<()> {
        create::create(path, bytes)
    }
}

impl Device for FileDevice {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn domain(&self) -> &Arc<dyn Domain> {
        &self.domain
    }

    fn queue(&self) -> Result<Box<dyn Queue>> {
        Ok(Box::new(FileQueue::new(
            Arc::clone(&self.backing),
            self.geometry.clone(),
            DomainId::of(&self.domain),
            self.io_uring,
        )))
    }
}
