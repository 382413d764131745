//! The server of Millrace as a library: network, memory budget, journal, commands, settings.
//!
//! The binary is a thin shell around it; benchmarks and tests use the parts by themselves. This is the
//! one crate that owns threads, the clock and the memory budget: all others are given them.

#![forbid(unsafe_code)]

pub mod journal;
pub mod memory;
pub mod network;
