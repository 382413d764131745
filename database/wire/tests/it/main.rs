//! Messages of the wire protocol, and bytes that are none.

mod exercise;
mod hostile_bytes;
mod messages;
