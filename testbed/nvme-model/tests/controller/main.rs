//! The controller against a host that is written for these tests alone.

mod basic;
mod host;
