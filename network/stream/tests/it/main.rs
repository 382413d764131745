//! Streams through their public interface: rings, partitions, their formats, and the interleavings of loom.

mod addresses;
mod golden;
mod loom;
mod partition;
mod rings;
