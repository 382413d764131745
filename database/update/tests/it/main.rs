//! Updates of unknown origin.

mod exercise;
mod hostile_updates;
