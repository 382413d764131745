//! Index keys of unknown origin.

mod exercise;
mod hostile_keys;
