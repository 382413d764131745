//! What a device is like, and what may be asked of it.

use millrace_memory::{Buffer, DomainId};

use crate::{Error, ErrorKind, Operation, Refused, Request, Result};

/// Buffers begin at a multiple of a block or of so many bytes, whichever is less.
const ALIGNMENT_MAX: u32 = 4096;

/// Whether and how a device forgets blocks that nobody needs any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deallocation {
    /// It does not.
    None,
    /// It does, at a price for the next write (a file, of which a hole is made).
    Costly,
    /// It does, and later writes gain by it (flash).
    Cheap,
}

/// What a device is like. All sizes are fixed while it is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a logical block: a power of two from 512 to 65,536.
    pub block_bytes: u32,
    /// Blocks it has.
    pub blocks: u64,
    /// So many blocks, written by one request and beginning at a multiple of as many, are after a power cut
    /// all written or all not. At least one.
    pub atomic_blocks: u32,
    /// Requests do best when they begin at a multiple of so many bytes. At least a block.
    pub optimal_bytes: u32,
    /// The longest buffer of one request, in bytes: a multiple of a block.
    pub transfer_bytes_max: usize,
    /// Whether completed writes may be lost with the power until a flush.
    pub volatile_cache: bool,
    /// Whether a write-through costs less than a write and a flush.
    pub write_through: bool,
    /// What deallocation does.
    pub deallocation: Deallocation,
    /// Whether deallocated blocks read as zeros.
    pub deallocated_reads_zero: bool,
    /// Queues that do not share anything with each other; more than these are served, but meet.
    pub queues_max: usize,
    /// Requests that one queue takes at once, at least.
    pub queue_depth: usize,
}

impl Geometry {
    /// Bytes of the device.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.blocks * self.block_bytes as u64
    }

    /// log2 of the bytes of a block.
    #[must_use]
    pub const fn block_shift(&self) -> u32 {
        self.block_bytes.trailing_zeros()
    }

    /// Whether this describes a device.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if a field is not what its description says.
    pub fn check(&self) -> Result<()> {
        let block = self.block_bytes;
        let sound = [
            (
                block.is_power_of_two() && (512..=65_536).contains(&block),
                "block_bytes",
            ),
            (
                self.blocks > 0 && self.blocks.checked_mul(u64::from(block)).is_some(),
                "blocks",
            ),
            (self.atomic_blocks > 0, "atomic_blocks"),
            (self.optimal_bytes >= block, "optimal_bytes"),
            (
                self.transfer_bytes_max > 0 && self.transfer_bytes_max % block as usize == 0,
                "transfer_bytes_max",
            ),
            (self.queues_max > 0, "queues_max"),
            (self.queue_depth > 0, "queue_depth"),
        ];
        match sound.iter().find(|(sound, _)| !sound) {
            None => Ok(()),
            Some((_, field)) => {
                let context = format!("no device has such {field}: {self:?}");
                Err(Error::new(ErrorKind::Invalid, context))
            }
        }
    }

    /// Gives a request back if a device of this kind, with buffers of `domain`, may be asked for it: what
    /// every queue does first.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] and [`ErrorKind::Unsupported`] as [`Queue::submit`](crate::Queue::submit) says.
    pub fn check_request(&self, domain: DomainId, request: Request) -> Result<Request, Refused> {
        match self.fault(domain, &request) {
            None => Ok(request),
            Some((kind, what)) => Err(self.refused(kind, what, request)),
        }
    }

    #[cold]
    fn refused(&self, kind: ErrorKind, what: &str, request: Request) -> Refused {
        let context = format!(
            "{what}: {:?} from block {} on, of {} blocks of {} bytes, buffer {:?}",
            request.operation, request.lba.0, self.blocks, self.block_bytes, request.buffer
        );
        Refused {
            request,
            error: Error::new(kind, context),
        }
    }

    /// Why a request cannot be served.
    #[inline]
    fn fault(&self, domain: DomainId, request: &Request) -> Option<(ErrorKind, &'static str)> {
        let invalid = |what| Some((ErrorKind::Invalid, what));
        let blocks = match (request.operation, &request.buffer) {
            (Operation::Read | Operation::Write | Operation::WriteThrough, Some(buffer)) => {
                if let Some(what) = self.buffer_fault(domain, buffer) {
                    return invalid(what);
                }
                buffer.len() as u64 >> self.block_shift()
            }
            (Operation::Read | Operation::Write | Operation::WriteThrough, None) => {
                return invalid("no buffer");
            }
            (_, Some(_)) => return invalid("a buffer for an operation that moves none"),
            (Operation::Flush, None) => return None,
            (Operation::Deallocate(_), None) if self.deallocation == Deallocation::None => {
                return Some((ErrorKind::Unsupported, "this device forgets no blocks"));
            }
            (Operation::Deallocate(blocks) | Operation::WriteZeroes(blocks), None) => blocks,
        };
        if blocks == 0 {
            return invalid("no blocks");
        }
        let end = request.lba.0.checked_add(blocks);
        if end.is_none_or(|end| end > self.blocks) {
            return invalid("blocks beyond the end of the device");
        }
        None
    }

    #[inline]
    fn buffer_fault(&self, domain: DomainId, buffer: &Buffer) -> Option<&'static str> {
        let aligned = u64::from(self.block_bytes.min(ALIGNMENT_MAX)) - 1;
        if buffer.domain() != domain {
            Some("a buffer of another domain")
        } else if buffer.len() & (self.block_bytes as usize - 1) != 0 {
            Some("not whole blocks")
        } else if buffer.len() > self.transfer_bytes_max {
            Some("too long for one request")
        } else if buffer.iova().0 & aligned != 0 {
            Some("a buffer that begins within a block")
        } else {
            None
        }
    }
}
