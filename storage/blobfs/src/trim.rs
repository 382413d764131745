//! Deallocation (TRIM) of all free units.

use std::ops::ControlFlow;

use millrace_block::Deallocation;

use crate::shared::Shared;
use crate::{Error, ErrorKind, Result};

/// Bytes of one deallocation, at most.
const STEP_BYTES: u64 = 256 << 20;
/// Divisor of the free units that one deallocation may take: the rest stays allocatable meanwhile.
const PART: u64 = 16;

impl Shared {
    /// Implementation of [`Volume::trim`](crate::Volume::trim).
    pub(crate) fn trim(
        &self,
        progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<u64> {
        let device = self.io_contexts.device();
        if device.geometry().deallocation == Deallocation::None {
            let context = format!("{} does not support TRIM", device.name());
            return Err(Error::new(ErrorKind::Unsupported, context));
        }
        // The checkpoint frees deleted units, and nothing that a mount would read names them.
        self.checkpoint_now(false)?;
        let total = self.allocator.free_units();
        let mut done = 0;
        let mut from = 0;
        loop {
            let bytes = self.unit_bytes();
            if progress(done * bytes, total.max(done) * bytes).is_break() {
                return Ok(done * bytes);
            }
            // After an unmount, units that are free here may be in use by the next mount.
            let step = self.trim_step.lock().expect("no holder of the lock panics");
            self.check_writable()?;
            let most = (STEP_BYTES / bytes).min(self.allocator.free_units() / PART);
            // Units under deallocation are not allocatable.
            let Some(extent) = self.allocator.take_next(from, most.max(1)) else {
                return Ok(done * bytes);
            };
            from = extent.end();
            let first = self.layout.block_of(extent.start);
            let blocks = self.layout.block_of(extent.end()) - first;
            let result = self.io_contexts.with(|io| io.deallocate(first, blocks));
            self.allocator.free_reclaimed(&[extent]);
            drop(step);
            result?;
            done += u64::from(extent.units);
            self.counters.discarded_units.add(extent.units.into());
        }
    }
}
