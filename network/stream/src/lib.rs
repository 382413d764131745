//! Byte streams through a window, and the control protocol between programs and their broker.
//!
//! # Purpose
//! A [`RingPair`] is one side of one connection: bytes are delivered in order and exactly once, without the kernel.
//! Both sides use loads and stores alone, in memory that they share with no one else. The caller decides how to wait;
//! the ring pair reports when a sleeping peer must be woken.
//!
//! # Limits
//! A ring has 64 to 65,536 lines of 64 bytes, a power of two. A slot carries at most 8,192 bytes.
//!
//! # Threads, clock, memory
//! The crate spawns no thread and reads no clock; it allocates nothing after a ring pair was made. One thread at a time
//! sends and one receives; any thread may read the [`PeerState`]. Progress is kept in cursors: plain words that the
//! caller stores, also in memory that several processes share.
//!
//! # Trust
//! The peer may store anything at any time. Every value is copied before it is checked; a peer that breaks the protocol
//! causes an error, and ends only its own connection.
//!
//! # Copies
//! [`Sender::send`] copies into the ring that the peer reads, and [`Receiver::receive`] copies out of it. Without
//! copies, [`Sender::reserve`] gives regions of the ring, and [`Receiver::borrow`] shows the peer's bytes in place. The
//! slots are the same.
//!
//! # Cost
//! A message of up to 56 bytes moves one cache line. A publication clears the word behind it: that line is the next
//! message's. A send with [`Sender::wake`] costs one full fence; the receiver returns lines when half of
//! the in-flight limit is pending, or when nothing is left to receive.
//!
//! # Example
//! ```
//! use millrace_memory::{Pages, RegionOptions};
//! use millrace_stream::{Geometry, ReceiveCursor, RingPair, SendCursor, Side};
//! use millrace_window::Window;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let geometry = Geometry::DEFAULT;
//! let options = RegionOptions { pages: Pages::Base, node: None, locked: false };
//! let (window, file) = Window::create(geometry.size(), &options)?;
//! let mut ours = RingPair::new(&window, geometry, Side::Connecting)?;
//! let mut theirs = RingPair::new(&Window::attach(&file)?, geometry, Side::Accepting)?;
//! let (mut sent, mut received) = (SendCursor::default(), ReceiveCursor::default());
//!
//! assert_eq!(ours.sender.send(&ours.peer_state, &mut sent, b"some bytes")?, 10);
//! // The peer does not sleep.
//! assert!(!ours.sender.wake(&ours.peer_state, &mut sent));
//!
//! let mut bytes = [0; 64];
//! let taken = theirs.receiver.receive(&theirs.peer_state, &mut received, &mut bytes)?;
//! assert_eq!(&bytes[..taken.bytes], b"some bytes");
//! # Ok(())
//! # }
//! ```

#![deny(unsafe_code)]

pub mod address;
mod borrow;
pub mod control;
mod cursor;
mod error;
mod layout;
mod mutation_point;
pub mod partition;
mod peer_state;
mod receiver;
mod reserve;
mod ring;
mod ring_pair;
mod sender;
mod service;
pub mod slab;
mod slot;
pub mod sockets;

pub use address::Address;
pub use borrow::Piece;
pub use cursor::{ReceiveCursor, SendCursor};
pub use error::{Error, ErrorKind, Result};
pub use layout::{Geometry, Side};
pub use mutation_point::MutationPoint;
#[cfg(all(feature = "mutation", debug_assertions))]
pub use mutation_point::mutation;
pub use peer_state::{Closing, PeerState};
pub use receiver::{End, Received, Receiver, Urgent};
pub use reserve::Reserved;
pub use ring_pair::RingPair;
pub use sender::Sender;
pub use service::Service;
