//! I/O contexts: a device queue and its buffers, one for each calling thread.
//!
//! A thread uses the I/O context of its number. Two threads share one only if there are more threads than contexts; the
//! second then waits for its lock. The device multiplexes requests beyond the number of its own queues.
//!
//! A read is copied once from the context's buffer to the caller's, so callers may use any memory and any alignment.
//! The copy costs about 60 ns for 4 KiB; the device takes microseconds.

use std::cell::Cell;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::{fmt, thread};

use millrace_block::{Completion, Device, Lba, Operation, Queue, Request};
use millrace_memory::{
    Arena, ArenaOptions, Buffer, DomainId, Exhausted, NoDevice, Pages, SizeClass,
};

use crate::format::BlockTrailer;
use crate::permits::{Permit, Permits, Purpose};
use crate::{Error, ErrorKind, Result};

/// Longest single request, in bytes; a longer transfer is several requests in flight at once.
pub(crate) const PIECE_BYTES: usize = 256 << 10;
/// Number of I/O contexts of a volume.
const IO_CONTEXTS: usize = 256;
/// Most requests of one call in flight at once.
const DEPTH: usize = 32;

static THREADS: AtomicUsize = AtomicUsize::new(0);
thread_local! {
    static THREAD: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Index of the calling thread's I/O context.
fn io_context_index() -> usize {
    THREAD.with(|number| {
        if number.get() == usize::MAX {
            number.set(THREADS.fetch_add(1, Ordering::Relaxed));
        }
        number.get() % IO_CONTEXTS
    })
}

/// A transfer of at most [`PIECE_BYTES`]: a run of blocks and the range of it that the caller reads.
#[derive(Debug)]
pub(crate) struct Piece<'a> {
    /// First block of the run.
    pub(crate) lba: u64,
    /// Bytes of the run before the range.
    pub(crate) skip: usize,
    /// Destination of the range.
    pub(crate) out: &'a mut [u8],
    /// Trailer of the first block, for blocks of files with checksums; trailers are not part of the range.
    pub(crate) trailer: Option<BlockTrailer>,
}

impl Piece<'_> {
    /// Bytes transferred: whole blocks.
    fn transfer_bytes(&self, block_bytes: usize) -> usize {
        let bytes = self.skip + self.out.len();
        match &self.trailer {
            None => bytes.next_multiple_of(block_bytes),
            Some(trailer) => trailer.transfer_bytes(bytes),
        }
    }
}

/// All I/O contexts of a device. Thread-safe: one lock a context.
pub(crate) struct IoContexts {
    device: Arc<dyn Device>,
    arena: Mutex<Arena>,
    io_contexts: Box<[Mutex<Option<IoContext>>]>,
    /// Unused queues for writes that stay in flight between calls.
    idle: Mutex<Vec<Box<dyn Queue>>>,
    permits: Arc<Permits>,
    blocks: Blocks,
}

/// Block size of the volume, in device blocks and bytes.
#[derive(Clone, Copy, Debug)]
struct BlockSize {
    /// log2 of the number of device blocks in a block.
    shift: u32,
    bytes: usize,
    /// Longest single request, in bytes: whole blocks.
    piece_bytes: usize,
}

/// Block size of the volume; the device's own until a superblock was read.
#[derive(Debug)]
struct Blocks {
    device_bytes: usize,
    piece_bytes_max: usize,
    shift: AtomicU32,
}

impl Blocks {
    fn size(&self) -> BlockSize {
        let shift = self.shift.load(Ordering::Relaxed);
        let bytes = self.device_bytes << shift;
        BlockSize {
            shift,
            bytes,
            piece_bytes: self.piece_bytes_max / bytes * bytes,
        }
    }
}

impl IoContexts {
    /// I/O contexts with `arena_bytes` of buffers, at least 1 MiB.
    pub(crate) fn new(device: Arc<dyn Device>, arena_bytes: usize) -> Result<Self> {
        let geometry = device.geometry();
        let blocks = Blocks {
            device_bytes: geometry.block_bytes as usize,
            piece_bytes_max: PIECE_BYTES.min(geometry.transfer_bytes_max),
            shift: AtomicU32::new(0),
        };
        let piece_bytes = blocks.size().piece_bytes;
        // A quarter for point reads, a quarter for table blocks, half for long transfers.
        let share = arena_bytes.max(1 << 20) / 4;
        let class = |size: usize, share: usize| SizeClass {
            size,
            count: u32::try_from(share / size).unwrap_or(u32::MAX).max(2),
        };
        let classes = if piece_bytes > 64 << 10 {
            let long = class(PIECE_BYTES, 2 * share);
            vec![class(8 << 10, share), class(32 << 10, share), long]
        } else {
            vec![class(8 << 10, share), class(64 << 10, 3 * share)]
        };
        let permits = Permits::new(&classes);
        let options = ArenaOptions {
            classes,
            pages: Pages::Auto,
            // Memory that no device accesses need not be locked.
            locked: DomainId::of(device.domain()) != DomainId::of(&NoDevice::shared()),
            ..ArenaOptions::default()
        };
        let arena = Arena::new(Arc::clone(device.domain()), &options).map_err(|error| {
            Error::new(ErrorKind::Memory, "cannot make buffers for the device").caused_by(error)
        })?;
        Ok(Self {
            arena: Mutex::new(arena),
            io_contexts: (0..IO_CONTEXTS).map(|_| Mutex::new(None)).collect(),
            idle: Mutex::default(),
            permits,
            blocks,
            device,
        })
    }

    /// Sets the block size of the volume, a power-of-two multiple of the device's.
    pub(crate) fn set_block_bytes(&self, block_bytes: u32) -> Result<()> {
        let device_bytes = self.blocks.device_bytes;
        let wanted = block_bytes as usize;
        if wanted < device_bytes || wanted > self.blocks.piece_bytes_max {
            let context = format!(
                "the device has blocks of {device_bytes} bytes and moves {} at once: too much or too little for a \
                 volume with blocks of {wanted}",
                self.blocks.piece_bytes_max
            );
            return Err(Error::new(ErrorKind::Unsupported, context));
        }
        let shift = (wanted / device_bytes).ilog2();
        self.blocks.shift.store(shift, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Bytes of a block of the volume.
    pub(crate) fn block_bytes(&self) -> usize {
        self.blocks.size().bytes
    }

    /// Longest single request, in bytes.
    pub(crate) fn piece_bytes(&self) -> usize {
        self.blocks.size().piece_bytes
    }

    /// Device address of block `lba` of the volume.
    pub(crate) fn address(&self, lba: u64) -> Lba {
        Lba(lba << self.blocks.size().shift)
    }

    /// Permit to hold a buffer between calls.
    pub(crate) fn permit(&self, purpose: Purpose, buffer: &Buffer) -> Option<Permit> {
        self.permits.take(purpose, buffer)
    }

    /// Runs `work` with the calling thread's I/O context.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut IoContext) -> Result<T>) -> Result<T> {
        self.at_index(io_context_index(), work)
    }

    /// Runs `work` with the calling thread's I/O context and its index.
    pub(crate) fn with_index<T>(
        &self,
        work: impl FnOnce(usize, &mut IoContext) -> Result<T>,
    ) -> Result<T> {
        let index = io_context_index();
        self.at_index(index, |io| work(index, io))
    }

    /// Runs `work` with I/O context `index`.
    pub(crate) fn at_index<T>(
        &self,
        index: usize,
        work: impl FnOnce(&mut IoContext) -> Result<T>,
    ) -> Result<T> {
        let mut slot = self.io_contexts[index]
            .lock()
            .expect("no holder of an I/O context panics");
        if slot.is_none() {
            *slot = Some(IoContext {
                queue: self.queue()?,
                arena: self.arena(),
                permits: Arc::clone(&self.permits),
                size: self.blocks.size(),
                finished: HashMap::new(),
                next_token: 0,
            });
        }
        let io = slot.as_mut().expect("the I/O context was just made");
        io.size = self.blocks.size();
        work(io)
    }

    /// A queue for writes that stay in flight between calls, and an arena handle for their buffers.
    pub(crate) fn writer(&self) -> Result<(Box<dyn Queue>, Arena)> {
        let idle = self
            .idle
            .lock()
            .expect("no holder of the lock panics")
            .pop();
        let queue = idle.map_or_else(|| self.queue(), Ok)?;
        Ok((queue, self.arena()))
    }

    /// Returns a queue that has nothing in flight.
    pub(crate) fn return_writer(&self, queue: Box<dyn Queue>) {
        debug_assert_eq!(queue.in_flight(), 0);
        self.idle
            .lock()
            .expect("no holder of the lock panics")
            .push(queue);
    }

    fn queue(&self) -> Result<Box<dyn Queue>> {
        self.device.queue().map_err(|error| {
            let context = format!("cannot have a queue of {}", self.device.name());
            Error::new(ErrorKind::Io, context).caused_by(error)
        })
    }

    fn arena(&self) -> Arena {
        self.arena
            .lock()
            .expect("no holder of the lock panics")
            .clone()
    }
}

impl fmt::Debug for IoContexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IoContexts")
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}

/// Device queue and buffers, used by one thread at a time.
pub(crate) struct IoContext {
    queue: Box<dyn Queue>,
    arena: Arena,
    permits: Arc<Permits>,
    size: BlockSize,
    /// Completions that no caller has asked for yet, by token.
    finished: HashMap<u64, Completion>,
    next_token: u64,
}

impl IoContext {
    /// Reads all pieces, several in flight at once; the first error fails the call.
    pub(crate) fn read(&mut self, pieces: &mut [Piece<'_>]) -> Result<()> {
        if let [piece] = pieces {
            let len = piece.transfer_bytes(self.size.bytes);
            let buffer = wait_for_buffer(&self.arena, len)?;
            let completion = self.run(Operation::Read, piece.lba, Some(buffer))?;
            return take_piece(piece, completion);
        }
        self.read_many(pieces).into_iter().collect()
    }

    /// Reads all pieces, several in flight at once; each has a result of its own.
    pub(crate) fn read_many(&mut self, pieces: &mut [Piece<'_>]) -> Vec<Result<()>> {
        let mut results: Vec<Result<()>> = pieces.iter().map(|_| Ok(())).collect();
        let base = self.next_token;
        self.next_token += pieces.len() as u64;
        let (mut started, mut ours) = (0, 0);
        while started < pieces.len() || ours > 0 {
            while started < pieces.len() && ours < DEPTH {
                let piece = &pieces[started];
                let len = piece.transfer_bytes(self.size.bytes);
                let buffer = match take_buffer(&self.arena, len) {
                    Ok(Some(buffer)) => buffer,
                    Ok(None) if ours > 0 => break,
                    Ok(None) => {
                        thread::yield_now();
                        continue;
                    }
                    Err(error) => {
                        results[started] = Err(error);
                        started += 1;
                        continue;
                    }
                };
                let request = Request::read(self.address(piece.lba), buffer, base + started as u64);
                match self.submit(request) {
                    Ok(()) => ours += 1,
                    Err(error) => results[started] = Err(error),
                }
                started += 1;
            }
            if ours == 0 {
                continue;
            }
            let Some(completion) = self.next_of(base..self.next_token) else {
                // The queue lost a request: an error, not an endless wait.
                results.iter_mut().for_each(|result| *result = Err(lost()));
                return results;
            };
            let index = usize::try_from(completion.token - base).expect("a token of this call");
            ours -= 1;
            results[index] = take_piece(&mut pieces[index], completion);
        }
        results
    }

    fn address(&self, lba: u64) -> Lba {
        Lba(lba << self.size.shift)
    }

    /// Starts a read of `len` bytes of whole blocks, if a buffer and a permit are free; returns the token for
    /// [`IoContext::finish`].
    pub(crate) fn start_read(&mut self, lba: u64, len: usize) -> Result<Option<(u64, Permit)>> {
        let Some(buffer) = take_buffer(&self.arena, len)? else {
            return Ok(None);
        };
        let Some(permit) = self.permits.take(Purpose::Read, &buffer) else {
            return Ok(None);
        };
        let token = self.next_token;
        self.next_token += 1;
        self.submit(Request::read(self.address(lba), buffer, token))?;
        // Polling submits the request to the device.
        while let Some(completion) = self.queue.poll() {
            self.finished.insert(completion.token, completion);
        }
        Ok(Some((token, permit)))
    }

    /// Buffer of a started read; none while the read is in flight, unless `wait`.
    pub(crate) fn finish(&mut self, token: u64, wait: bool) -> Option<Result<Buffer>> {
        loop {
            if let Some(completion) = self.finished.remove(&token) {
                let result = completion.result.map_err(read_error);
                return Some(result.and_then(|()| completion.buffer.ok_or_else(no_buffer)));
            }
            let completion = if wait {
                self.queue.wait()
            } else {
                self.queue.poll()
            };
            match completion {
                Some(completion) => _ = self.finished.insert(completion.token, completion),
                None if wait => return Some(Err(lost())),
                None => return None,
            }
        }
    }

    /// Submits a request; waits for a completion while the queue is full.
    fn submit(&mut self, mut request: Request) -> Result<()> {
        loop {
            let lba = request.lba.0 >> self.size.shift;
            match self.queue.submit(request) {
                Ok(()) => return Ok(()),
                Err(refused) if refused.error.kind() == millrace_block::ErrorKind::Full => {
                    request = refused.request;
                    let completion = self.queue.wait().ok_or_else(lost)?;
                    self.finished.insert(completion.token, completion);
                }
                Err(refused) => return Err(io_error("use", lba, refused.error)),
            }
        }
    }

    /// Next completion with a token in `tokens`.
    fn next_of(&mut self, tokens: Range<u64>) -> Option<Completion> {
        if !self.finished.is_empty() {
            let found = self
                .finished
                .keys()
                .copied()
                .find(|token| tokens.contains(token));
            if let Some(token) = found {
                return self.finished.remove(&token);
            }
        }
        loop {
            let completion = self.queue.wait()?;
            if tokens.contains(&completion.token) {
                return Some(completion);
            }
            self.finished.insert(completion.token, completion);
        }
    }

    /// Writes `bytes`, whole blocks, in requests one after the other.
    pub(crate) fn write(&mut self, lba: u64, bytes: &[u8], through: bool) -> Result<()> {
        let operation = if through {
            Operation::WriteThrough
        } else {
            Operation::Write
        };
        let mut at = lba;
        for part in bytes.chunks(self.size.piece_bytes) {
            let mut buffer = wait_for_buffer(&self.arena, part.len())?;
            buffer.copy_from_slice(part);
            self.run(operation, at, Some(buffer))?;
            at += (part.len() / self.size.bytes) as u64;
        }
        Ok(())
    }

    /// Flushes the device's volatile cache.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.run(Operation::Flush, 0, None).map(|_| ())
    }

    /// Deallocates blocks (TRIM).
    pub(crate) fn deallocate(&mut self, lba: u64, blocks: u64) -> Result<()> {
        self.run(Operation::Deallocate(blocks << self.size.shift), lba, None)
            .map(|_| ())
    }

    /// Submits one request and waits for it.
    fn run(
        &mut self,
        operation: Operation,
        lba: u64,
        buffer: Option<Buffer>,
    ) -> Result<Completion> {
        let token = self.next_token;
        self.next_token += 1;
        let request = Request {
            operation,
            lba: self.address(lba),
            buffer,
            token,
        };
        let what = match operation {
            Operation::Read => "read",
            Operation::Write | Operation::WriteThrough => "write",
            Operation::Flush => "flush",
            Operation::Deallocate(_) | Operation::WriteZeroes(_) => "erase",
        };
        let mut completion = if self.queue.in_flight() == 0 {
            self.queue
                .run(request)
                .map_err(|refused| io_error(what, lba, refused.error))?
        } else {
            self.submit(request)?;
            self.next_of(token..token + 1).ok_or_else(lost)?
        };
        match std::mem::replace(&mut completion.result, Ok(())) {
            Ok(()) => Ok(completion),
            Err(error) => Err(io_error(what, lba, error)),
        }
    }
}

/// A buffer of `len` bytes; none if all are in use.
pub(crate) fn take_buffer(arena: &Arena, len: usize) -> Result<Option<Buffer>> {
    match arena.try_buffer(len) {
        Ok(buffer) => Ok(Some(buffer)),
        Err(Exhausted::InUse) => Ok(None),
        Err(error) => {
            Err(Error::new(ErrorKind::Memory, "no buffer is long enough").caused_by(error))
        }
    }
}

/// A buffer of `len` bytes; waits while all are in use, each for the time of a request.
pub(crate) fn wait_for_buffer(arena: &Arena, len: usize) -> Result<Buffer> {
    loop {
        if let Some(buffer) = take_buffer(arena, len)? {
            return Ok(buffer);
        }
        thread::yield_now();
    }
}

fn take_piece(piece: &mut Piece<'_>, completion: Completion) -> Result<()> {
    completion
        .result
        .map_err(|error| io_error("read", piece.lba, error))?;
    let buffer = completion.buffer.ok_or_else(no_buffer)?;
    if let Some(trailer) = &piece.trailer {
        if buffer.len() < trailer.transfer_bytes(piece.skip + piece.out.len()) {
            return Err(no_buffer());
        }
        return trailer.verify_into(&buffer, piece.skip, piece.out);
    }
    let end = piece.skip + piece.out.len();
    let bytes = buffer.get(piece.skip..end).ok_or_else(no_buffer)?;
    piece.out.copy_from_slice(bytes);
    Ok(())
}

pub(crate) fn lost() -> Error {
    Error::new(ErrorKind::Io, "the device lost a request")
}

pub(crate) fn no_buffer() -> Error {
    Error::new(ErrorKind::Io, "the device gave no buffer back")
}

fn read_error(source: millrace_block::Error) -> Error {
    Error::new(ErrorKind::Io, "cannot read").caused_by(source)
}

/// Error of a device request at block `lba`.
pub(crate) fn io_error(what: &str, lba: u64, source: millrace_block::Error) -> Error {
    let kind = match source.kind() {
        millrace_block::ErrorKind::Unsupported => ErrorKind::Unsupported,
        _ => ErrorKind::Io,
    };
    Error::new(kind, format!("cannot {what} block {lba}")).caused_by(source)
}
