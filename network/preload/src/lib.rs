//! User-level sockets under the C library's names.

#[macro_use]
mod macros;

mod entry;
mod errno;
mod hidden;
mod lock;
mod real;
mod slab;
mod source;
mod table;
mod thread;
