//! Operations whose time stands still and whose randomness comes from a counter.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millrace_document::operation::Limits;
use millrace_document::{Environment, Interrupt, Operation};
use millrace_engine::{Engine, MemoryEngine};

#[derive(Debug, Default)]
struct Still {
    drawn: AtomicU64,
}

impl Environment for Still {
    fn wall_clock_ms(&self) -> i64 {
        1_700_000_000_000
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }

    fn random(&self) -> u64 {
        // SplitMix64 (Steele, Lea, Flood 2014) of a counter.
        let mut value = self.drawn.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        value = value.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        value ^ (value >> 31)
    }
}

/// An operation whose stages may hold `stage_memory_bytes`.
pub(crate) fn operation(stage_memory_bytes: usize) -> Operation {
    Operation::new(
        Arc::new(Still::default()),
        Arc::new(Interrupt::default()),
        Limits { stage_memory_bytes },
    )
}

/// Scratch space in memory.
pub(crate) fn scratch() -> millrace_document::Result<Box<dyn millrace_engine::Scratch>> {
    Ok(MemoryEngine::new().scratch()?)
}
