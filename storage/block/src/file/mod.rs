//! A file or block special as a device.

mod backing;
mod create;
mod errno;
mod exclusive_file;
mod probe;
mod queue;
#[expect(unsafe_code, reason = "the kernel receives buffer addresses")]
mod ring;

use std::path::Path;
use std::sync::Arc;

use millrace_memory::{Domain, DomainId, NoDevice};

use self::backing::Backing;
use self::exclusive_file::ExclusiveFile;
use self::queue::FileQueue;
use self::ring::Ring;
use crate::{Device, Geometry, Queue, Result};

/// Options of [`FileDevice::open`]: direct I/O and io_uring, both on by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOptions {
    /// Whether transfers bypass the page cache (`O_DIRECT`) where the file system supports that.
    pub direct: bool,
    /// Whether submitted requests go through an io_uring where one is available.
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

/// A file or a block special, opened exclusively.
///
/// A file is locked (`flock`), a block special opened exclusively, so that it cannot be mounted meanwhile.
///
/// # System calls
/// [`Queue::run`] is a plain call in the calling thread: `pread`, `pwrite`, `fdatasync`, `pwritev2` with
/// `RWF_DSYNC`. It is the faster way for one request: a flush in an io_uring goes to another thread of the
/// kernel. [`Queue::submit`] adds a request to the queue's own io_uring, and the next [`Queue::poll`]
/// or [`Queue::wait`] submits all of them to the kernel in one call. The rings do not poll for completions of the
/// disk, because such a ring supports no flush. They have no registered buffers: those would save about a tenth of
/// the processor's time for a read, and would be pinned, which counts against `RLIMIT_MEMLOCK`. Without io_uring
/// each poll executes one request by a system call.
///
/// # Durability
/// A file's writes are on the medium after a flush: the disk may cache them, and the file system may cache the file's
/// metadata. Allocate files beforehand ([`FileDevice::create`]); otherwise a flush writes the metadata too. On
/// journalling file systems the flush after the first write of each block, also of one that was zeroed or
/// deallocated, takes nearly twice as long as later ones. Deallocation makes holes; a later write to a hole fails if
/// the file system is full. Deallocation fails with [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) where the
/// file system has no holes: opening a file does not probe for it, because that would change the file's time of
/// modification.
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
    /// Opens a file or block special exclusively.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound),
    /// [`ErrorKind::Permission`](crate::ErrorKind::Permission), [`ErrorKind::InUse`](crate::ErrorKind::InUse)
    /// if it is mounted or another holder has it open as a device, [`ErrorKind::Invalid`](crate::ErrorKind::Invalid)
    /// if it is neither a file nor a block special, or is shorter than a block.
    pub fn open(path: &Path, options: FileOptions) -> Result<Self> {
        let ExclusiveFile {
            file,
            geometry,
            mut notes,
        } = ExclusiveFile::open(path, options)?;
        let backing = Arc::new(Backing::new(file, geometry.block_shift()));
        let mut io_uring = options.io_uring;
        if io_uring {
            if let Err(error) = Ring::new(Arc::clone(&backing), 1) {
                notes.push(format!(
                    "io_uring is not available, so each request is one system call: {error}"
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

    /// Creates a file of `bytes` bytes, a multiple of 4 KiB, with mode 0600 and with its space allocated. The file is
    /// durable when this returns.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the name exists or the size is not a multiple of 4 KiB,
    /// [`ErrorKind::NoSpace`](crate::ErrorKind::NoSpace), and other errors of the file system. A failed call leaves no
    /// file.
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
