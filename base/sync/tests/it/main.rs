//! Rings and events beside models, under real threads, and in the interleavings of loom and of shuttle.

mod event;
mod loom;
mod ring;
mod shuttle;
