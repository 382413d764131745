//! Whether a request can be served, before anything is done for it.

use crate::request::{Operation, Refusal};
use crate::transfer::{Limits, Lists, has_page_borders};
use crate::{Condition, Controller, Data, Namespace, Request, ScatterGather};

/// The most blocks of one command (a field of 16 bits that counts from zero).
const BLOCKS_MAX: u32 = 1 << 16;

/// What a request comes to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Its blocks; one for a flush.
    pub(crate) blocks: u64,
    /// How its commands are cut.
    pub(crate) limits: Limits,
    /// Whether they are described by scatter-gather lists.
    pub(crate) scatter_gather: bool,
}

impl Controller {
    /// What the request comes to, or why it cannot be served.
    pub(crate) fn check(&self, namespace: &Namespace, request: &Request) -> Result<Shape, Refusal> {
        if matches!(self.condition(), Condition::Failed | Condition::Gone) {
            return Err(Refusal::Dead);
        }
        if namespace.controller() != self.number() {
            return Err(Refusal::ForeignNamespace);
        }
        let operation = request.operation;
        let own = self.data();
        let supported = match operation {
            Operation::Read | Operation::Write { .. } | Operation::Flush => true,
            Operation::Compare => own.has_compare(),
            Operation::WriteZeroes { .. } => own.has_write_zeroes(),
            Operation::Deallocate => own.has_dataset_management(),
        };
        if !supported {
            return Err(Refusal::Unsupported);
        }
        let mut scatter_gather = false;
        let blocks = match (&request.data, operation.has_data()) {
            (Some(data), true) => {
                scatter_gather = self.check_data(data)?;
                let bytes = data.len() as u64;
                if bytes % u64::from(namespace.block_size()) != 0 {
                    return Err(Refusal::Length);
                }
                bytes >> namespace.block_shift()
            }
            (None, false) if operation == Operation::Flush => 1,
            (None, false) => request.blocks,
            _ => return Err(Refusal::Data),
        };
        if blocks == 0 {
            return Err(Refusal::Length);
        }
        let end = request.lba.0.checked_add(blocks);
        if operation != Operation::Flush && end.is_none_or(|end| end > namespace.blocks()) {
            return Err(Refusal::OutOfRange);
        }
        Ok(Shape {
            blocks,
            limits: self.limits(namespace, operation, blocks),
            scatter_gather,
        })
    }

    /// Whether the data can be described, and whether that needs scatter-gather lists.
    fn check_data(&self, data: &Data) -> Result<bool, Refusal> {
        for buffer in data.buffers() {
            if !buffer.is_of(self.domain()) {
                return Err(Refusal::ForeignMemory);
            }
            // Only whole dwords can be described; buffers begin at one.
            if buffer.is_empty() || buffer.len() % 4 != 0 {
                return Err(Refusal::Length);
            }
        }
        let wish = self.control().options.scatter_gather;
        let pieces_max = Lists::pieces_max_for(self.transfer_max(), self.page_size());
        let possible = self.data().has_sgl()
            && wish != ScatterGather::Never
            && data.buffers().len() <= pieces_max;
        if possible && wish == ScatterGather::Always {
            return Ok(true);
        }
        if has_page_borders(data, self.page_size()) {
            return Ok(false);
        }
        if possible {
            Ok(true)
        } else {
            Err(Refusal::Alignment)
        }
    }

    fn limits(&self, namespace: &Namespace, operation: Operation, blocks: u64) -> Limits {
        let (most, boundary) = match operation {
            Operation::Flush => (1, None),
            Operation::Deallocate => (u32::MAX, None),
            Operation::WriteZeroes { .. } => (BLOCKS_MAX, None),
            Operation::Read | Operation::Write { .. } | Operation::Compare => {
                let blocks = self.transfer_max() >> namespace.block_shift();
                let most = u32::try_from(blocks).unwrap_or(BLOCKS_MAX).min(BLOCKS_MAX);
                (most, namespace.optimal_boundary())
            }
        };
        // A write that is atomic as one command stays one.
        let atomic = matches!(operation, Operation::Write { .. })
            && blocks <= u64::from(namespace.atomic_write());
        Limits {
            blocks_max: most,
            boundary: boundary.filter(|_| !atomic).unwrap_or(0),
        }
    }
}
