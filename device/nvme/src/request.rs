//! What is asked of a queue pair, and what comes back.

use std::fmt;

use millrace_memory::{Buffer, Iova};

use crate::CommandError;

/// The number of a logical block, from zero on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lba(pub u64);

impl fmt::Display for Lba {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Operation of a request on the blocks of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read blocks into the data buffers.
    Read,
    /// Write the data buffers to blocks.
    Write {
        /// Whether it completes only when they are on media (force unit access).
        fua: bool,
    },
    /// Compare blocks with the data; differing ones are the status "compare failure".
    Compare,
    /// Put everything that was written, and has completed, on media.
    Flush,
    /// Zero blocks without a transfer of data.
    WriteZeroes {
        /// Whether it completes only when that is on media.
        fua: bool,
        /// Whether the controller may deallocate them, if they then read as zero; it is asked to only where
        /// the namespace can.
        deallocate: bool,
    },
    /// Deallocate blocks (Dataset Management): their content is not needed any more.
    Deallocate,
}

/// The memory of a request, behind each other in order: it moves to the driver and back.
#[derive(Debug)]
pub enum Data {
    /// A single contiguous buffer.
    One(Buffer),
    /// Several. Without scatter-gather lists all but the first begin, and all but the last end, on a border
    /// of the controller's pages.
    Many(Vec<Buffer>),
}

impl From<Buffer> for Data {
    fn from(buffer: Buffer) -> Self {
        Self::One(buffer)
    }
}

impl From<Vec<Buffer>> for Data {
    fn from(buffers: Vec<Buffer>) -> Self {
        Self::Many(buffers)
    }
}

impl Data {
    /// Length of all buffers in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buffers().iter().map(Buffer::len).sum()
    }

    /// Whether the buffers have no bytes in all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The buffers, in the order of the blocks.
    #[must_use]
    pub fn buffers(&self) -> &[Buffer] {
        match self {
            Self::One(buffer) => std::slice::from_ref(buffer),
            Self::Many(buffers) => buffers,
        }
    }

    /// The single buffer, or the first of several.
    #[must_use]
    pub fn into_buffer(self) -> Option<Buffer> {
        match self {
            Self::One(buffer) => Some(buffer),
            Self::Many(buffers) => buffers.into_iter().next(),
        }
    }

    /// The pieces of memory behind `length` bytes from `offset` on.
    pub(crate) fn pieces(&self, offset: u64, length: u64) -> Pieces<'_> {
        Pieces {
            buffers: self.buffers(),
            skip: offset,
            left: length,
        }
    }
}

/// Pieces of memory, each contiguous for the device: where it begins and its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Pieces<'a> {
    buffers: &'a [Buffer],
    skip: u64,
    left: u64,
}

impl Iterator for Pieces<'_> {
    type Item = (Iova, u64);

    fn next(&mut self) -> Option<(Iova, u64)> {
        while self.left > 0 {
            let (first, rest) = self.buffers.split_first()?;
            self.buffers = rest;
            let size = first.len() as u64;
            if self.skip >= size {
                self.skip -= size;
                continue;
            }
            let begin = Iova(first.iova().0 + self.skip);
            let length = (size - self.skip).min(self.left);
            self.skip = 0;
            self.left -= length;
            return Some((begin, length));
        }
        None
    }
}

/// Something for a queue pair to do.
#[derive(Debug)]
pub struct Request {
    /// Operation to execute on the blocks.
    pub operation: Operation,
    /// The first block; of no meaning for a flush.
    pub lba: Lba,
    /// Number of blocks, for an operation without data; otherwise the data's length determines it.
    pub blocks: u64,
    /// The memory to read into, or to write or compare from.
    pub data: Option<Data>,
    /// Comes back with the completion; of no meaning to the driver.
    pub token: u64,
}

impl Request {
    /// Reads blocks from `lba` on, as many as fill `data`.
    #[must_use]
    pub fn read(lba: Lba, data: impl Into<Data>, token: u64) -> Self {
        Self::with_data(Operation::Read, lba, data.into(), token)
    }

    /// Writes `data` to blocks from `lba` on. It is on media after a later flush.
    #[must_use]
    pub fn write(lba: Lba, data: impl Into<Data>, token: u64) -> Self {
        Self::with_data(Operation::Write { fua: false }, lba, data.into(), token)
    }

    /// Writes `data` to blocks from `lba` on; it is on media when that completes.
    #[must_use]
    pub fn write_through(lba: Lba, data: impl Into<Data>, token: u64) -> Self {
        Self::with_data(Operation::Write { fua: true }, lba, data.into(), token)
    }

    /// Compares `data` with blocks from `lba` on.
    #[must_use]
    pub fn compare(lba: Lba, data: impl Into<Data>, token: u64) -> Self {
        Self::with_data(Operation::Compare, lba, data.into(), token)
    }

    /// Puts on media what has completed before.
    #[must_use]
    pub const fn flush(token: u64) -> Self {
        Self::without_data(Operation::Flush, Lba(0), 0, token)
    }

    /// Makes `blocks` blocks from `lba` on read as zero; the controller may deallocate them.
    #[must_use]
    pub const fn write_zeroes(lba: Lba, blocks: u64, token: u64) -> Self {
        let operation = Operation::WriteZeroes {
            fua: false,
            deallocate: true,
        };
        Self::without_data(operation, lba, blocks, token)
    }

    /// A request to deallocate `blocks` blocks from `lba` on.
    #[must_use]
    pub const fn deallocate(lba: Lba, blocks: u64, token: u64) -> Self {
        Self::without_data(Operation::Deallocate, lba, blocks, token)
    }

    const fn with_data(operation: Operation, lba: Lba, data: Data, token: u64) -> Self {
        Self {
            operation,
            lba,
            blocks: 0,
            data: Some(data),
            token,
        }
    }

    const fn without_data(operation: Operation, lba: Lba, blocks: u64, token: u64) -> Self {
        Self {
            operation,
            lba,
            blocks,
            data: None,
            token,
        }
    }
}

/// Why a request was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// As many requests as the queue pair takes are under way: poll first.
    QueueFull,
    /// Blocks beyond the end of the namespace.
    OutOfRange,
    /// No blocks at all, or data that is not whole blocks.
    Length,
    /// Data missing where there must be some, or given where there must be none.
    Data,
    /// The buffer's address is not a multiple of 4, or borders between buffers are not borders of pages and
    /// the controller takes no scatter-gather lists.
    Alignment,
    /// The buffers are of another device's address space.
    ForeignMemory,
    /// The namespace is another controller's, or was identified before a format.
    ForeignNamespace,
    /// The controller does not have this command.
    Unsupported,
    /// The controller has failed or was removed.
    ControllerFailed,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::QueueFull => "the queue is full: poll for completions first",
            Self::OutOfRange => "blocks beyond the end of the namespace",
            Self::Length => "the length is not a positive number of whole blocks",
            Self::Data => "missing data, or data for an operation without data",
            Self::Alignment => {
                "buffers that this controller cannot reach: their borders are not borders of pages"
            }
            Self::ForeignMemory => "buffers that are not mapped for this controller",
            Self::ForeignNamespace => "a namespace of another controller, or from before a format",
            Self::Unsupported => "the controller does not have this command",
            Self::ControllerFailed => "the controller has failed or was removed",
        })
    }
}

/// A request that was not accepted, unchanged, and why.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Refused {
    /// The refused request, with its data.
    pub request: Request,
    /// Reason for which the queue pair did not accept it.
    pub reason: Refusal,
}

/// Completion of a request, with its data.
#[derive(Debug)]
pub struct Completion {
    /// Token of the request, as submitted.
    pub token: u64,
    /// How it ended. Of a request that was split, the first error; other parts of it may have been done.
    pub result: Result<(), CommandError>,
    /// Data of the request. None if it had none, or if the memory was leaked because the controller may still access
    /// it.
    pub data: Option<Data>,
}
