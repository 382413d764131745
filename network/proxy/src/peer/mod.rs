//! What the monitors of two hosts say to each other, without any I/O.
//!
//! ```text
//! monitor ==TCP== monitor      who has which address, who wants a connection, its number in a partition
//! plane ==window== plane       the bytes
//! ```
//! # Format
//! Version 1, little-endian, over a byte stream:
//!
//! ```text
//! frame      length u16 of the body, at most 8,192 | body | mac 32 bytes, but for the first frame
//! first      "MRPEER" | version u16 | role u8: 0 = who has dialled, 1 = who was dialled
//!            | nonce 32 bytes | length u8 of the name | name, 1 to 64 bytes
//! others     kind u8 | what the kind has
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
//! Both know a secret. From it and both first frames follow two keys, one for each direction; each later frame has
//! HMAC-SHA256 over its place in the stream and itself. So nobody without the secret can say anything after the first
//! frame, say it again, or send a frame back to where it came from. The first frame that fits proves the secret. What
//! is said is not encrypted: names and numbers, no bytes of connections.
//!
//! A peer that has the secret may still say anything: what it says is bounded and checked here, and by whoever acts on
//! it. Any frame that cannot be ends the session ([`Breach`]).
//!
//! # Memory
//! A session keeps a frame that is not whole yet, and at most [`OUTPUT_MAX`] bytes that have not gone out.

mod message;
mod session;

pub use message::{ADDRESSES_MAX, PeerMessage};
pub use session::{Breach, OUTPUT_MAX, Role, Secret, Session, host_number};

/// The longest body of a frame.
const BODY_MAX: usize = 8192;
