//! Unmodified programs under the library, beside the same programs on kernel sockets.

mod counted;
mod fixture;
mod mixed;
mod multiplex;
mod programs;
