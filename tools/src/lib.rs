//! The subcommands of `millrace` that look after devices, volumes and user-level sockets.
//!
//! # Purpose
//! - [`nvme`]: lists, binds, identifies, measures and formats NVMe devices (`millrace nvme`).
//! - [`blobfs`]: makes, checks and repairs volumes, and copies files in and out (`millrace blobfs`).
//! - [`sockets`]: runs programs over user-level sockets, and the processes that serve them (`millrace sockets`).
//!
//! Each has its options for `clap`, and a function `run` that writes what the command has to say to an output, as text for
//! people or as JSON for machines. The server's binary takes them in as one [`Subcommand`]; the server itself uses nothing of this crate.
//!
//! # Shape
//! ```text
//!   options -> nvme | blobfs | sockets -> report -> terminal (tables, quantities, plots, bars) -> output
//!                       \-> ToolError (kind, context, cause, advice, exit code)
//! ```
//! All share one [`ToolError`] and one module for the terminal.
//!
//! # Threads, clock
//! The commands spawn threads and read the clock: they are programs.

#![forbid(unsafe_code)]

mod advice;
pub mod blobfs;
mod error;
pub mod nvme;
pub mod sockets;
mod subcommand;
pub mod terminal;

pub use error::{ErrorKind, ToolError};
pub use subcommand::Subcommand;
