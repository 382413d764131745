//! Requests to a device, and their completions.

use millrace_memory::Buffer;

use crate::{Error, ErrorKind, Result};

/// Logical block address: index of a block of the device, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lba(pub u64);

/// Operation of a request, with the number of blocks where no buffer gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Read the blocks into the buffer.
    Read,
    /// Write the buffer to the blocks.
    Write,
    /// Write that completes when the blocks are on the medium (force unit access).
    WriteThrough,
    /// Flush the volatile cache: all completed writes reach the medium.
    Flush,
    /// Deallocate this number of blocks (TRIM).
    Deallocate(u64),
    /// Zero this number of blocks.
    WriteZeroes(u64),
}

/// One request. The device owns the buffer from [`Queue::submit`](crate::Queue::submit) to the completion.
#[derive(Debug)]
pub struct Request {
    /// Operation to execute on the blocks.
    pub operation: Operation,
    /// First block; ignored for a flush.
    pub lba: Lba,
    /// Buffer of reads and writes: its length, in whole blocks, is the length of the request.
    pub buffer: Option<Buffer>,
    /// Caller's token, returned with the completion; the device does not interpret it.
    pub token: u64,
}

impl Request {
    /// A read of the blocks from `lba` on into all of `buffer`.
    #[must_use]
    pub const fn read(lba: Lba, buffer: Buffer, token: u64) -> Self {
        Self::new(Operation::Read, lba, Some(buffer), token)
    }

    /// A write of all of `buffer` to the blocks from `lba` on.
    #[must_use]
    pub const fn write(lba: Lba, buffer: Buffer, token: u64) -> Self {
        Self::new(Operation::Write, lba, Some(buffer), token)
    }

    /// A write-through of all of `buffer` to the blocks from `lba` on.
    #[must_use]
    pub const fn write_through(lba: Lba, buffer: Buffer, token: u64) -> Self {
        Self::new(Operation::WriteThrough, lba, Some(buffer), token)
    }

    /// A flush of the device's volatile cache.
    #[must_use]
    pub const fn flush(token: u64) -> Self {
        Self::new(Operation::Flush, Lba(0), None, token)
    }

    /// The deallocation of `blocks` blocks from `lba` on.
    #[must_use]
    pub const fn deallocate(lba: Lba, blocks: u64, token: u64) -> Self {
        Self::new(Operation::Deallocate(blocks), lba, None, token)
    }

    /// A request to zero `blocks` blocks from `lba` on.
    #[must_use]
    pub const fn write_zeroes(lba: Lba, blocks: u64, token: u64) -> Self {
        Self::new(Operation::WriteZeroes(blocks), lba, None, token)
    }

    const fn new(operation: Operation, lba: Lba, buffer: Option<Buffer>, token: u64) -> Self {
        Self {
            operation,
            lba,
            buffer,
            token,
        }
    }
}

/// A rejected request, and the reason.
#[derive(Debug, thiserror::Error)]
#[error("a request was rejected")]
pub struct Refused {
    /// The rejected request, unchanged, with its buffer.
    pub request: Request,
    /// Reason for the rejection, with its [`ErrorKind`].
    #[source]
    pub error: Error,
}

impl Refused {
    /// Rejection because the queue is full.
    #[must_use]
    pub fn full(request: Request) -> Self {
        let error = Error::new(
            ErrorKind::Full,
            "the queue is full: take a completion first",
        );
        Self { request, error }
    }

    /// Rejection of a `run` while other requests are in flight.
    #[must_use]
    pub fn busy(request: Request) -> Self {
        let context = "run() needs an empty queue, and requests are in flight";
        let error = Error::new(ErrorKind::Invalid, context);
        Self { request, error }
    }
}

/// Completion of a request: token, result and buffer.
#[derive(Debug)]
pub struct Completion {
    /// Token of the request, as submitted.
    pub token: u64,
    /// Result of the request. After a failed write the contents of its blocks are undefined; after a failed flush, all
    /// writes since the last successful flush may be lost.
    pub result: Result<()>,
    /// Buffer of the request, filled by a successful read.
    pub buffer: Option<Buffer>,
}
