//! The plain in-memory engine: the oracle of the tests.
/// x
#[derive(Debug)]
pub struct MemoryEngine;
