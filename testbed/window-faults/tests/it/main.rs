//! The faulty window: what it may do, and that a ring on it needs each of its steps.

mod legal;
mod ring;
mod scene;
