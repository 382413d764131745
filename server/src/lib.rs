//! The server of Millrace as a library: network, memory budget, journal, commands, settings.
//!
//! ```text
//!   main -> settings -> serve -> state, of engine, document layer, journal, sessions, counters
//!
//!   network/   connections and buffers -> Service
//!   dispatch   Service: message -> command -> reply
//!   commands/  the server's own commands: each gets the parts of the state that it needs
//!   metrics/   counters, and the endpoint that shows those of all parts
//!   journal    group commit for parked replies
//!
//!   main -> millrace_tools   the subcommands for devices, volumes and sockets: a crate of its own
//! ```
//!
//! # Features
//! | feature | what it adds |
//! |---|---|
//! | `device` | `serve --device`: the data on a volume of a device |
//! | `sockets` | `serve --sockets`: clients by user-level sockets |
//! | `tools` | the subcommands `nvme`, `blobfs` and `sockets`; implies the other two |
//!
//! All are on by default. A build without one knows its options and refuses them.
//!
//! The binary is a thin shell around it; benchmarks and tests use the parts by themselves. This is the
//! one crate that owns threads, the clock and the memory budget: all others are given them.

#![forbid(unsafe_code)]

pub mod acknowledgement;
mod arguments;
pub mod clock;
pub mod commands;
pub mod database_hooks;
pub mod dispatch;
pub mod echo;
pub mod environment;
pub mod error_names;
pub mod fail_points;
pub mod journal;
pub mod log;
pub mod logical_sessions;
pub mod machine;
pub mod maintenance;
pub mod memory;
pub mod metrics;
pub mod network;
pub mod operations;
pub mod parameters;
pub mod serve;
pub mod session;
pub mod settings;
#[cfg(test)]
mod simulation;
pub mod state;
#[cfg(feature = "device")]
pub mod volume;
pub mod waiters;
pub mod write_concern;
