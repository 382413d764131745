//! User-level sockets under the C library's names.

#[macro_use]
mod macros;

mod calls;
mod connection;
mod entry;
mod errno;
mod hidden;
mod inherit;
mod lock;
mod monitor;
mod multiplex;
mod names;
mod pieces;
mod process;
mod real;
mod receive;
mod send;
mod settings;
mod slab;
mod source;
mod table;
mod thread;
mod wait;
