//! Operations with little memory, and scratch space for what exceeds it.

use millrace_engine::{Engine, MemoryEngine};
use millrace_value::operation::Limits;
use millrace_value::testing::StillEnvironment;
use millrace_value::{Operation, Result};

/// An operation whose stages may hold `stage_memory_bytes`.
pub(crate) fn operation(stage_memory_bytes: usize) -> Operation {
    StillEnvironment::new(1_700_000_000_000).operation(Limits { stage_memory_bytes })
}

/// Scratch space in memory.
pub(crate) fn scratch() -> Result<Box<dyn millrace_engine::Scratch>> {
    Ok(MemoryEngine::new().scratch()?)
}
