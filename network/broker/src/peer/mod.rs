//! The protocol between the brokers of two hosts, without any I/O.
//!
//! ```text
//! broker ==TCP== broker            addresses, connect requests, numbers of connections in a partition
//! forwarder ==window== forwarder   the bytes
//! ```
//! # Format
//! Version 1, little-endian, over a byte stream:
//!
//! ```text
//! frame      length u16 of the body, at most 8,192 | body | mac 32 bytes, absent in the first frame
//! first      "MRPEER" | version u16 | role u8: 0 = initiator, 1 = responder
//!            | nonce 32 bytes | length u8 of the name | name, 1 to 64 bytes
//! others     kind u8 | fields of the kind
//!
//! 1 NAMES    partitions u16 | bytes of the window u64 | count u16 | count times an address: 4 or 6 u8 | 16 bytes
//! 2 BEAT
//! 3 CONNECT  token u64 | partition u16 | user u32 | process u32 | number u32 | credit u32 | name 80 bytes
//! 4 ACCEPT   token u64 | number u32 | credit u32
//! 5 REFUSE   token u64 | errno u32; 0 = the kernel's TCP may try
//! ```
//! A host's number is the first half of SHA-256 over `millrace host` and its name.
//!
//! # Trust
//! Both sides have a shared secret. The secret and both first frames determine two keys, one for each direction; each
//! later frame has HMAC-SHA256 over its sequence number and itself. So without the secret no later frame can be forged,
//! replayed or reflected. The first valid frame authenticates the peer. The frames are not encrypted: they contain
//! names and numbers, no bytes of connections.
//!
//! An authenticated peer is still untrusted: its messages are bounded and checked here, and by the code that acts on
//! them. Any invalid frame ends the session ([`ProtocolViolation`]).
//!
//! # Memory
//! A session keeps one incomplete frame, and at most [`OUTPUT_MAX`] bytes of output.

mod message;
mod session;

pub use message::{ADDRESSES_MAX, PeerMessage};
pub use session::{OUTPUT_MAX, ProtocolViolation, Role, Secret, Session, host_number};

/// The most bytes of a frame's body.
const BODY_MAX: usize = 8192;
