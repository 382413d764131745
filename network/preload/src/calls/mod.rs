//! The C library's names, before which this library stands.
//!
//! Each function looks its descriptor up, a load and a branch, and calls the next definition if it is not user-level.

mod aliases;
mod bytes;
pub(crate) mod cancel;
mod copying;
mod descriptors;
mod messages;
mod options;
mod prints;
mod processes;
mod raw;
mod rights;
pub(crate) mod sockets;
pub(crate) mod streams;
mod zero_copy;
