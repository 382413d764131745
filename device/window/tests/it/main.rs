//! Windows: both directions beside a model, in the interleavings of loom, and over each source of memory.

mod fixture;
mod halves;
mod loom;
mod sources;
