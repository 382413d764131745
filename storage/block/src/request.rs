//! What is asked of a device, and what came of it.

use millrace_memory::Buffer;

use crate::{Error, ErrorKind, Result};

/// The address of a logical block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lba(pub u64);

/// What a device is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Fill the buffer from the blocks.
    Read,
    /// Fill the blocks from the buffer.
    Write,
    /// The same, complete when the blocks are on the medium (force unit access).
    WriteThrough,
    /// Put on the medium what was written before.
    Flush,
    /// Forget so many blocks.
    Deallocate(u64),
    /// Make so many blocks zeros.
    WriteZeroes(u64),
}

/// One operation. A buffer is the device's from [`Queue::submit`](crate::Queue::submit) to the completion.
#[derive(Debug)]
pub struct Request {
    /// What to do.
    pub operation: Operation,
    /// The first block; nothing for a flush.
    pub lba: Lba,
    /// For reads and writes: its length, in whole blocks, says how many.
    pub buffer: Option<Buffer>,
    /// Comes back with the completion; the device makes no use of it.
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

    /// The same, on the medium when it is complete.
    #[must_use]
    pub const fn write_through(lba: Lba, buffer: Buffer, token: u64) -> Self {
        Self::new(Operation::WriteThrough, lba, Some(buffer), token)
    }

    /// A flush.
    #[must_use]
    pub const fn flush(token: u64) -> Self {
        Self::new(Operation::Flush, Lba(0), None, token)
    }

    /// The deallocation of `blocks` blocks from `lba` on.
    #[must_use]
    pub const fn deallocate(lba: Lba, blocks: u64, token: u64) -> Self {
        Self::new(Operation::Deallocate(blocks), lba, None, token)
    }

    /// Zeros in `blocks` blocks from `lba` on.
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

/// A request that was not taken, and why.
#[derive(Debug, thiserror::Error)]
#[error("a request was not taken")]
pub struct Refused {
    /// The request, as it was.
    pub request: Request,
    /// Why.
    #[source]
    pub error: Error,
}

impl Refused {
    /// A request that finds the queue full.
    #[must_use]
    pub fn full(request: Request) -> Self {
        let error = Error::new(
            ErrorKind::Full,
            "the queue is full: take a completion first",
        );
        Self { request, error }
    }

    /// A request that is to be run while others are in flight.
    #[must_use]
    pub fn busy(request: Request) -> Self {
        let context = "one request is to be run while others are in flight";
        let error = Error::new(ErrorKind::Invalid, context);
        Self { request, error }
    }
}

/// A request that is done.
#[derive(Debug)]
pub struct Completion {
    /// The request's.
    pub token: u64,
    /// Whether it was done. After a failed write the blocks hold anything, after a failed flush nothing that
    /// was written since the last good one may be counted on.
    pub result: Result<()>,
    /// The request's buffer, filled by a read that succeeded.
    pub buffer: Option<Buffer>,
}
