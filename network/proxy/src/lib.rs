//! The monitor of user-level sockets, and their data plane.

#![forbid(unsafe_code)]

mod error;
pub mod registry;
pub mod rules;

pub use error::{Error, ErrorKind, Result};
