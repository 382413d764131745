//! Handles of open files, and reads in flight.

use std::fmt;
use std::sync::Arc;

use millrace_memory::Buffer;

use crate::inode::Inode;
use crate::io_context::no_buffer;
use crate::permits::Permit;
use crate::shared::Shared;
use crate::types::{ReadPart, Status};
use crate::{Error, ErrorKind, Result};

/// Handle of an open file. Clones refer to the same file; dropping the last one closes it.
///
/// Appended bytes are readable at once from any handle, and on the medium after [`File::sync`].
pub struct File {
    shared: Arc<Shared>,
    inode: Arc<Inode>,
}

impl File {
    /// A handle that the caller has counted in [`OpenFile::handles`](crate::state::OpenFile).
    pub(crate) const fn new(shared: Arc<Shared>, inode: Arc<Inode>) -> Self {
        Self { shared, inode }
    }

    pub(crate) const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Reads at `offset`; returns the number of bytes, less than `out.len()` only at the end of the file.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the device cannot read them, [`ErrorKind::Corruption`] if they do not match their
    /// checksums.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<usize> {
        self.inode.read_at(&self.shared, offset, out)
    }

    /// Reads several ranges with all requests in flight at once. Each part has its own result.
    pub fn read_many(&self, parts: &mut [ReadPart<'_>]) {
        self.inode.read_many(&self.shared, parts);
    }

    /// Starts a read of `len` bytes at `offset`.
    ///
    /// # Errors
    /// [`ErrorKind::Io`].
    pub fn start_read(&self, offset: u64, len: usize) -> Result<PendingRead> {
        let wanted = usize::try_from(self.size().saturating_sub(offset))
            .unwrap_or(usize::MAX)
            .min(len);
        if let Some((lba, skip)) = self.inode.locate(&self.shared, offset, wanted) {
            if let Some(read) = self.start_at(lba, skip, offset, wanted)? {
                return Ok(read);
            }
        }
        let mut bytes = vec![0; wanted];
        let read = self.read_at(offset, &mut bytes)?;
        bytes.truncate(read);
        Ok(PendingRead::new(self, ReadProgress::Copied(bytes)))
    }

    /// Starts a read of as many bytes at `offset` as one request can transfer, at most `most`; returns it with its
    /// length. None if it cannot start without waiting.
    pub(crate) fn try_start(&self, offset: u64, most: u64) -> Result<Option<(PendingRead, u64)>> {
        let Some((lba, skip, run)) = self.inode.run_at(&self.shared, offset) else {
            return Ok(None);
        };
        let shared = &self.shared;
        let piece = shared.data.payload_of(shared.io_contexts.piece_bytes()) - skip;
        let len = most.min(run).min(piece as u64);
        let wanted = usize::try_from(len).expect("no more than a piece");
        let started = self.start_at(lba, skip, offset, wanted)?;
        Ok(started.map(|read| (read, len)))
    }

    /// Starts a read of bytes in one run of blocks, if they are on the device and a buffer is free.
    fn start_at(
        &self,
        lba: u64,
        skip: usize,
        offset: u64,
        len: usize,
    ) -> Result<Option<PendingRead>> {
        let shared = &self.shared;
        let bytes = shared.data.transfer_bytes(skip + len);
        let is_possible = len > 0
            && self.inode.is_on_device(offset + len as u64)
            && bytes <= shared.io_contexts.piece_bytes()
            && !shared.read_only;
        if !is_possible {
            return Ok(None);
        }
        let started = shared
            .io_contexts
            .with_index(|index, io| Ok((index, io.start_read(lba, bytes)?)))?;
        let (io_context, Some((token, permit))) = started else {
            return Ok(None);
        };
        shared.counters.reads.add(1);
        shared.counters.read_bytes.add(len as u64);
        let in_flight = ReadInFlight {
            io_context,
            token,
            permit,
            offset,
            lba,
            skip,
            len,
        };
        Ok(Some(PendingRead::new(
            self,
            ReadProgress::ReadInFlight(in_flight),
        )))
    }

    /// Appends bytes. They stay in memory until there are enough of them for a device write, or until a sync.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`], in which case nothing was appended; [`ErrorKind::Poisoned`], [`ErrorKind::ReadOnly`],
    /// [`ErrorKind::Io`].
    pub fn append(&self, data: &[u8]) -> Result<()> {
        self.shared.counters.writes.add(1);
        self.inode.append(&self.shared, data)
    }

    /// Writes at `offset`, which may lie beyond the end: the gap reads as zeros.
    ///
    /// # Errors
    /// As [`File::append`].
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.shared.counters.writes.add(1);
        self.inode.write_at(&self.shared, offset, data)
    }

    /// Sets the file's size in bytes: cuts the file, or extends it with zeros.
    ///
    /// # Errors
    /// As [`File::append`].
    pub fn truncate(&self, size: u64) -> Result<()> {
        self.inode.truncate(&self.shared, size)
    }

    /// Reserves space for a file of `bytes` bytes for as long as it is open.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] and as [`File::append`].
    pub fn reserve(&self, bytes: u64) -> Result<()> {
        self.inode.reserve(&self.shared, bytes)
    }

    /// Starts device writes of appended bytes without waiting, and without any promise of durability.
    ///
    /// # Errors
    /// As [`File::append`].
    pub fn write_behind(&self) -> Result<()> {
        self.inode.write_behind(&self.shared)
    }

    /// Makes all bytes, the size and all earlier changes of names durable, then returns.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] for the first failed write, [`ErrorKind::Poisoned`] for every call after it.
    pub fn sync(&self) -> Result<()> {
        self.shared.counters.syncs.add(1);
        let sequence = self.inode.prepare_sync(&self.shared)?;
        self.shared.commit(sequence)
    }

    /// Size of the file in bytes, including bytes not synced yet.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.inode.size()
    }

    /// Attributes of the file, as `fstat` returns them.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the file's last name was removed.
    pub fn status(&self) -> Result<Status> {
        self.shared.status(self.inode.id)
    }
}

impl Clone for File {
    fn clone(&self) -> Self {
        if let Some(opened) = self.shared.state().open.get_mut(&self.inode.id) {
            opened.handles += 1;
        }
        Self {
            shared: Arc::clone(&self.shared),
            inode: Arc::clone(&self.inode),
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let id = self.inode.id;
        // The last handle counts until the close has finished.
        if let Some(opened) = self.shared.state().open.get_mut(&id) {
            if opened.handles > 1 {
                opened.handles -= 1;
                return;
            }
        }
        if let Err(error) = self.inode.close(&self.shared) {
            tracing::error!(%error, file = %id, "cannot close a file: what was not synced is lost");
        }
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File")
            .field("id", &self.inode.id)
            .field("size", &self.size())
            .finish()
    }
}

/// A read that was submitted to the device.
#[derive(Debug)]
struct ReadInFlight {
    /// Index of the I/O context on which the read is in flight.
    io_context: usize,
    token: u64,
    permit: Permit,
    /// Offset in the file.
    offset: u64,
    lba: u64,
    skip: usize,
    len: usize,
}

/// A buffer held between calls. The fields drop in this order: the buffer before its permit.
#[derive(Debug)]
struct PermittedBuffer {
    buffer: Buffer,
    _permit: Permit,
}

#[derive(Debug)]
enum ReadProgress {
    ReadInFlight(ReadInFlight),
    /// In the device's buffer: first byte and length.
    Done(PermittedBuffer, usize, usize),
    Copied(Vec<u8>),
    Failed,
}

/// A started read. Dropping it cancels it, after the device has finished with its buffer.
#[derive(Debug)]
pub struct PendingRead {
    // Keeps the file open, so that its blocks are not given to another file.
    file: File,
    progress: ReadProgress,
}

impl PendingRead {
    fn new(file: &File, progress: ReadProgress) -> Self {
        Self {
            file: file.clone(),
            progress,
        }
    }

    /// The bytes read, or `None` while the read is in flight.
    ///
    /// # Errors
    /// [`ErrorKind::Io`].
    pub fn poll(&mut self) -> Option<Result<&[u8]>> {
        match self.advance(false) {
            Ok(true) => Some(Ok(self.bytes())),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// Blocks until the read is complete; returns the bytes read.
    ///
    /// # Errors
    /// [`ErrorKind::Io`].
    pub fn wait(&mut self) -> Result<&[u8]> {
        self.advance(true)?;
        Ok(self.bytes())
    }

    fn advance(&mut self, wait: bool) -> Result<bool> {
        let (index, token) = match &self.progress {
            ReadProgress::ReadInFlight(ReadInFlight {
                io_context, token, ..
            }) => (*io_context, *token),
            ReadProgress::Failed => {
                return Err(Error::new(ErrorKind::Io, "the read failed before"));
            }
            ReadProgress::Done(..) | ReadProgress::Copied(_) => return Ok(true),
        };
        let io_contexts = &self.file.shared.io_contexts;
        let finished = io_contexts.at_index(index, |io| Ok(io.finish(token, wait)))?;
        let Some(result) = finished else {
            return Ok(false);
        };
        let progress = std::mem::replace(&mut self.progress, ReadProgress::Failed);
        if let ReadProgress::ReadInFlight(in_flight) = progress {
            self.progress = self.verify_read(in_flight, result?)?;
        }
        Ok(true)
    }

    /// Verifies that the blocks still belong to the file after the device has read them.
    fn verify_read(&self, in_flight: ReadInFlight, mut buffer: Buffer) -> Result<ReadProgress> {
        let ReadInFlight {
            permit,
            offset,
            lba,
            skip,
            len,
            ..
        } = in_flight;
        if buffer.len() < skip + len {
            return Err(no_buffer());
        }
        let File { shared, inode } = &self.file;
        let whole = shared.data.transfer_bytes(skip + len);
        let is_there = inode.is_on_device(offset + len as u64)
            && inode.locate(shared, offset, len) == Some((lba, skip))
            && buffer.len() >= whole
            && inode.verify_blocks(shared, offset, &mut buffer[..whole]);
        if is_there {
            let kept = PermittedBuffer {
                buffer,
                _permit: permit,
            };
            return Ok(ReadProgress::Done(kept, skip, len));
        }
        // The file was truncated meanwhile and its blocks may have been reused, or it was written during the read.
        drop(buffer);
        let mut bytes = vec![0; len];
        let read = self.file.read_at(offset, &mut bytes)?;
        bytes.truncate(read);
        Ok(ReadProgress::Copied(bytes))
    }

    fn bytes(&self) -> &[u8] {
        match &self.progress {
            ReadProgress::Done(kept, skip, len) => &kept.buffer[*skip..skip + len],
            ReadProgress::Copied(bytes) => bytes,
            ReadProgress::ReadInFlight(_) | ReadProgress::Failed => &[],
        }
    }
}

impl Drop for PendingRead {
    fn drop(&mut self) {
        // The device may write into the buffer until the read completes.
        let _ = self.advance(true);
    }
}
