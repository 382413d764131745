//! A handle to an open file.

use std::fmt;
use std::sync::Arc;

use millrace_memory::Buffer;

use crate::inode::Inode;
use crate::lanes::no_buffer;
use crate::permits::Permit;
use crate::shared::Shared;
use crate::volume::Status;
use crate::{Error, ErrorKind, Result};

/// A part of [`File::read_many`].
#[derive(Debug)]
pub struct ReadPart<'a> {
    /// Where to begin.
    pub offset: u64,
    /// Where to put the bytes.
    pub out: &'a mut [u8],
    /// How many there were, less than asked for only at the end; or what went wrong.
    pub result: Result<usize>,
}

/// An open file. Clones are handles to the same; with the last one the file is closed.
///
/// Bytes that were appended can be read at once by everybody, and are on the medium after [`File::sync`].
pub struct File {
    shared: Arc<Shared>,
    inode: Arc<Inode>,
}

impl File {
    /// A handle that the state has counted.
    pub(crate) const fn new(shared: Arc<Shared>, inode: Arc<Inode>) -> Self {
        Self { shared, inode }
    }

    pub(crate) const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Reads from `offset` on; returns how many bytes, fewer than asked for only at the end of the file.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the device cannot read them, [`ErrorKind::Corruption`] if they do not match their checksums.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<usize> {
        self.inode.read_at(&self.shared, offset, out)
    }

    /// Reads several parts, all in flight at once. Each has a result of its own.
    pub fn read_many(&self, parts: &mut [ReadPart<'_>]) {
        self.inode.read_many(&self.shared, parts);
    }

    /// Begins to read `len` bytes from `offset` on.
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
        Ok(PendingRead::new(self, Progress::Copied(bytes)))
    }

    /// Begins to read from `offset` on at most `most` bytes, as many as one request can; and how many. Nothing if
    /// that cannot be done without waiting.
    pub(crate) fn try_start(&self, offset: u64, most: u64) -> Result<Option<(PendingRead, u64)>> {
        let Some((lba, skip, run)) = self.inode.run_at(&self.shared, offset) else {
            return Ok(None);
        };
        let shared = &self.shared;
        let piece = shared.data.payload_of(shared.lanes.piece_bytes()) - skip;
        let len = most.min(run).min(piece as u64);
        let wanted = usize::try_from(len).expect("no more than a piece");
        let started = self.start_at(lba, skip, offset, wanted)?;
        Ok(started.map(|read| (read, len)))
    }

    /// Begins to read bytes that lie in one run of blocks, if they are there and there is a buffer.
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
            && self.inode.is_home(offset + len as u64)
            && bytes <= shared.lanes.piece_bytes()
            && !shared.read_only;
        if !is_possible {
            return Ok(None);
        }
        let started = shared
            .lanes
            .with_index(|index, lane| Ok((index, lane.start_read(lba, bytes)?)))?;
        let (lane, Some((token, permit))) = started else {
            return Ok(None);
        };
        shared.counters.reads.add(1);
        shared.counters.read_bytes.add(len as u64);
        let under_way = UnderWay {
            lane,
            token,
            permit,
            offset,
            lba,
            skip,
            len,
        };
        Ok(Some(PendingRead::new(self, Progress::UnderWay(under_way))))
    }

    /// Appends. The bytes are in memory until enough are together.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`], of which nothing was appended; [`ErrorKind::Poisoned`], [`ErrorKind::ReadOnly`],
    /// [`ErrorKind::Io`].
    pub fn append(&self, data: &[u8]) -> Result<()> {
        self.shared.counters.writes.add(1);
        self.inode.append(&self.shared, data)
    }

    /// Writes at an offset, also beyond the end: a gap becomes zeros.
    ///
    /// # Errors
    /// As [`File::append`].
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.shared.counters.writes.add(1);
        self.inode.write_at(&self.shared, offset, data)
    }

    /// Makes the file so long: cuts it, or adds zeros.
    ///
    /// # Errors
    /// As [`File::append`].
    pub fn truncate(&self, size: u64) -> Result<()> {
        self.inode.truncate(&self.shared, size)
    }

    /// Holds space for a file of so many bytes, for as long as it is open.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] and as [`File::append`].
    pub fn reserve(&self, bytes: u64) -> Result<()> {
        self.inode.reserve(&self.shared, bytes)
    }

    /// Begins to write what was appended, without waiting and without promising anything.
    ///
    /// # Errors
    /// As [`File::append`].
    pub fn write_behind(&self) -> Result<()> {
        self.inode.write_behind(&self.shared)
    }

    /// Returns when all bytes and the size are on the medium, and every change of names before.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] the first time that something cannot be written, [`ErrorKind::Poisoned`] from then on.
    pub fn sync(&self) -> Result<()> {
        self.shared.counters.syncs.add(1);
        let sequence = self.inode.prepare_sync(&self.shared)?;
        self.shared.commit(sequence)
    }

    /// Bytes of the file.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.inode.size()
    }

    /// What is known of it.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it has no name any more.
    pub fn status(&self) -> Result<Status> {
        Status::of(&self.shared, self.inode.id)
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
        // The last handle counts until the file is closed.
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

/// A read that the device is doing.
#[derive(Debug)]
struct UnderWay {
    /// The lane it is in flight on.
    lane: usize,
    token: u64,
    permit: Permit,
    /// In the file.
    offset: u64,
    lba: u64,
    skip: usize,
    len: usize,
}

/// A buffer that may be kept; it goes before the permit does.
#[derive(Debug)]
struct Kept {
    buffer: Buffer,
    _permit: Permit,
}

#[derive(Debug)]
enum Progress {
    UnderWay(UnderWay),
    /// In the device's buffer: from the first number on, so many.
    Done(Kept, usize, usize),
    Copied(Vec<u8>),
    Failed,
}

/// A read that was begun. Dropping it gives it up.
#[derive(Debug)]
pub struct PendingRead {
    // Kept open so that the blocks are not given to another file.
    file: File,
    progress: Progress,
}

impl PendingRead {
    fn new(file: &File, progress: Progress) -> Self {
        Self {
            file: file.clone(),
            progress,
        }
    }

    /// The bytes, if the read is done.
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

    /// The bytes, as soon as the read is done.
    ///
    /// # Errors
    /// [`ErrorKind::Io`].
    pub fn wait(&mut self) -> Result<&[u8]> {
        self.advance(true)?;
        Ok(self.bytes())
    }

    fn advance(&mut self, wait: bool) -> Result<bool> {
        let (lane, token) = match &self.progress {
            Progress::UnderWay(UnderWay { lane, token, .. }) => (*lane, *token),
            Progress::Failed => return Err(Error::new(ErrorKind::Io, "the read failed before")),
            Progress::Done(..) | Progress::Copied(_) => return Ok(true),
        };
        let lanes = &self.file.shared.lanes;
        let finished = lanes.at_index(lane, |lane| Ok(lane.finish(token, wait)))?;
        let Some(result) = finished else {
            return Ok(false);
        };
        let progress = std::mem::replace(&mut self.progress, Progress::Failed);
        if let Progress::UnderWay(under_way) = progress {
            self.progress = self.taken(under_way, result?)?;
        }
        Ok(true)
    }

    /// What the device has read, if it still is the file's.
    fn taken(&self, under_way: UnderWay, mut buffer: Buffer) -> Result<Progress> {
        let UnderWay {
            permit,
            offset,
            lba,
            skip,
            len,
            ..
        } = under_way;
        if buffer.len() < skip + len {
            return Err(no_buffer());
        }
        let File { shared, inode } = &self.file;
        let whole = shared.data.transfer_bytes(skip + len);
        let is_there = inode.is_home(offset + len as u64)
            && inode.locate(shared, offset, len) == Some((lba, skip))
            && buffer.len() >= whole
            && inode.open_blocks(shared, offset, &mut buffer[..whole]);
        if is_there {
            let kept = Kept {
                buffer,
                _permit: permit,
            };
            return Ok(Progress::Done(kept, skip, len));
        }
        // The file was cut meanwhile, and others may have written there; or it was written while it was read.
        drop(buffer);
        let mut bytes = vec![0; len];
        let read = self.file.read_at(offset, &mut bytes)?;
        bytes.truncate(read);
        Ok(Progress::Copied(bytes))
    }

    fn bytes(&self) -> &[u8] {
        match &self.progress {
            Progress::Done(kept, skip, len) => &kept.buffer[*skip..skip + len],
            Progress::Copied(bytes) => bytes,
            Progress::UnderWay(_) | Progress::Failed => &[],
        }
    }
}

impl Drop for PendingRead {
    fn drop(&mut self) {
        // The buffer is the device's until then.
        let _ = self.advance(true);
    }
}
