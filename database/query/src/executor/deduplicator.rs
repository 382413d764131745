//! Which records a plan has found already.

use std::collections::HashSet;

use millrace_engine::Scratch;
use millrace_value::stage_memory::StageMemory;
use millrace_value::{Operation, Result};

use super::view::PlanView;

/// What a record id costs in the set beside its bytes.
const ENTRY_OVERHEAD_BYTES: usize = 48;

/// A set of record ids. Past the operation's memory limit it goes on in scratch space.
#[derive(Debug, Default)]
pub(super) struct Deduplicator {
    seen: HashSet<Box<[u8]>>,
    bytes: usize,
    memory: StageMemory,
    overflow: Option<Box<dyn Scratch>>,
}

impl Deduplicator {
    /// Adds a record; whether it was not there yet.
    pub(super) fn insert(
        &mut self,
        record_id: &[u8],
        view: &PlanView,
        operation: &Operation,
    ) -> Result<bool> {
        if self.seen.contains(record_id) {
            return Ok(false);
        }
        let cost = record_id.len() + ENTRY_OVERHEAD_BYTES;
        if self.overflow.is_none() && self.memory.allows(operation, self.bytes + cost) {
            self.bytes += cost;
            self.seen.insert(record_id.into());
            return Ok(true);
        }
        let scratch = match &mut self.overflow {
            Some(scratch) => scratch,
            none => none.insert(view.unheld().scratch()?),
        };
        if scratch.get(record_id)?.is_some() {
            return Ok(false);
        }
        scratch.put(record_id, &[])?;
        Ok(true)
    }

    pub(super) const fn memory_bytes(&self) -> usize {
        self.bytes
    }
}
