//! Geometry of a device, and the validation of requests.

use millrace_memory::{Buffer, DomainId};

use crate::{Error, ErrorKind, Operation, Refused, Request, Result};

/// Largest alignment required of buffers, in bytes; smaller blocks need only their own size.
const ALIGNMENT_MAX: u32 = 4096;

/// Support of a device for deallocation (TRIM).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deallocation {
    /// Deallocation is not supported.
    None,
    /// Deallocation is supported and makes the next write slower (a file, in which it makes a hole).
    Costly,
    /// Deallocation is supported and makes later writes faster (flash).
    Cheap,
}

/// Geometry and capabilities of a device, constant while it is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a logical block: a power of two from 512 to 65,536.
    pub block_bytes: u32,
    /// Number of logical blocks of the device.
    pub blocks: u64,
    /// Blocks that a power cut never tears, if one request writes them and they begin at a multiple of their number. At
    /// least 1.
    pub atomic_blocks: u32,
    /// Preferred alignment of requests, in bytes. At least a block.
    pub optimal_bytes: u32,
    /// The longest buffer of one request, in bytes: a multiple of a block.
    pub transfer_bytes_max: usize,
    /// Whether a power cut may lose completed writes before a flush.
    pub volatile_cache: bool,
    /// Whether a write-through costs less than a write and a flush.
    pub write_through: bool,
    /// Support for deallocation, and its effect on later writes.
    pub deallocation: Deallocation,
    /// Whether deallocated blocks read as zeros.
    pub deallocated_reads_zero: bool,
    /// Number of independent queues; further queues share one.
    pub queues_max: usize,
    /// Least number of requests that one queue accepts at once.
    pub queue_depth: usize,
}

impl Geometry {
    /// Size of the device in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.blocks * self.block_bytes as u64
    }

    /// log2 of the bytes of a block.
    #[must_use]
    pub const fn block_shift(&self) -> u32 {
        self.block_bytes.trailing_zeros()
    }

    /// Checks that all fields are consistent.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if a field violates its description.
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
                let context = format!("invalid geometry, field {field}: {self:?}");
                Err(Error::new(ErrorKind::Invalid, context))
            }
        }
    }

    /// Validates a request for a device of this geometry and `domain`, and returns it: the first step of every queue.
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

    /// Reason for which a request is invalid.
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
            (_, Some(_)) => return invalid("a buffer for an operation without data"),
            (Operation::Flush, None) => return None,
            (Operation::Deallocate(_), None) if self.deallocation == Deallocation::None => {
                return Some((ErrorKind::Unsupported, "device does not support TRIM"));
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
