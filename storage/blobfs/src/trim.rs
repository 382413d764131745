//! Telling the device of all that is free.

use std::ops::ControlFlow;

use millrace_block::Deallocation;

use crate::shared::Shared;
use crate::{Error, ErrorKind, Result};

/// So many bytes are deallocated at once.
const STEP_BYTES: u64 = 256 << 20;
/// What is deallocated at once is no more than such a part of what is free: others may need some.
const PART: u64 = 16;

impl Shared {
    /// See [`Volume::trim`](crate::Volume::trim).
    pub(crate) fn trim(
        &self,
        progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<u64> {
        let device = self.lanes.device();
        if device.geometry().deallocation == Deallocation::None {
            let context = format!("{} forgets no blocks", device.name());
            return Err(Error::new(ErrorKind::Unsupported, context));
        }
        // What was deleted is free then, and nothing that a mount would read names any of it.
        self.checkpoint_now(false)?;
        let total = self.allocator.free_units();
        let mut done = 0;
        let mut from = 0;
        loop {
            let bytes = self.unit_bytes();
            if progress(done * bytes, total.max(done) * bytes).is_break() {
                return Ok(done * bytes);
            }
            // Once the volume is unmounted, what is free here may be in use by the next mount.
            let step = self.trim_step.lock().expect("no holder of the lock panics");
            self.check_writable()?;
            let most = (STEP_BYTES / bytes).min(self.allocator.free_units() / PART);
            // While the device is told of it nobody gets it.
            let Some(extent) = self.allocator.take_next(from, most.max(1)) else {
                return Ok(done * bytes);
            };
            from = extent.end();
            let first = self.layout.block_of(extent.start);
            let blocks = self.layout.block_of(extent.end()) - first;
            let told = self.lanes.with(|lane| lane.deallocate(first, blocks));
            self.allocator.give_back_settled(&[extent]);
            drop(step);
            told?;
            done += u64::from(extent.units);
            self.counters.discarded_units.add(extent.units.into());
        }
    }
}
