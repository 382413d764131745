//! Byte streams through a window, and what programs and their monitor say to each other about them.
//!
//! # Purpose
//! A [`Lane`] is one side of one connection: bytes go in at one end and come out at the other, in order and each
//! once, without the kernel. Both sides drive it themselves, by stores and loads, in memory that only they share.
//! Whoever uses it decides how to wait; the lane says when a peer that sleeps must be woken.
//!
//! # Limits
//! A lane's ring has 64 to 65,536 lines of 64 bytes, a power of two. A slot carries at most 8,192 bytes.
//!
//! # Threads, clock, memory
//! No thread is spawned, no clock is read, nothing is allocated after a lane was made. One thread at a time sends,
//! one receives; anyone may look ([`Sight`]). Where a side has got to is kept in cursors, plain words that the
//! caller stores: they may lie in memory that several processes share.
//!
//! # Trust
//! The peer may store anything, at any time. What is looked at is copied and checked; a peer that breaks the
//! protocol gets an error here, and ends only its own connection.
//!
//! # Copies
//! [`Sender::send`] copies into the ring that the peer reads, and [`Receiver::receive`] out of it. Without copies,
//! [`Sender::reserve`] gives places in the ring, and [`Receiver::borrow`] shows where the peer's bytes are. The slots are
//! the same.
//!
//! # Cost
//! A message of up to 56 bytes moves one cache line. A publication clears the word behind it: that line is the next
//! message's. Sending and then asking whether to wake is one full fence; the ring's lines are given back when half
//! of what large slots may take up is pending, or when there is nothing left to receive.
//!
//! # Example
//! ```
//! use millrace_memory::{Pages, RegionOptions};
//! use millrace_stream::{Geometry, Lane, ReceiveCursor, SendCursor, Side};
//! use millrace_window::Window;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let geometry = Geometry::DEFAULT;
//! let options = RegionOptions { pages: Pages::Base, node: None, locked: false };
//! let (window, file) = Window::create(geometry.size(), &options)?;
//! let mut ours = Lane::new(&window, geometry, Side::Connecting)?;
//! let mut theirs = Lane::new(&Window::attach(&file)?, geometry, Side::Accepting)?;
//! let (mut sent, mut received) = (SendCursor::default(), ReceiveCursor::default());
//!
//! assert_eq!(ours.sender.send(&ours.sight, &mut sent, b"some bytes")?, 10);
//! // The peer does not sleep.
//! assert!(!ours.sender.wake(&ours.sight, &mut sent));
//!
//! let mut bytes = [0; 64];
//! let taken = theirs.receiver.receive(&theirs.sight, &mut received, &mut bytes)?;
//! assert_eq!(&bytes[..taken.bytes], b"some bytes");
//! # Ok(())
//! # }
//! ```

#![deny(unsafe_code)]

pub mod address;
mod borrow;
pub mod control;
mod error;
mod lane;
pub mod partition;
mod receiver;
mod reserve;
mod ring;
mod sender;
mod service;
mod sight;
pub mod slab;
mod slot;
pub mod sockets;
mod step;

pub use address::Address;
pub use borrow::Piece;
pub use error::{Error, ErrorKind, Result};
pub use lane::{Geometry, Lane, Side};
pub use receiver::{End, ReceiveCursor, Received, Receiver, Urgent};
pub use reserve::Reserved;
pub use sender::{SendCursor, Sender};
pub use service::Service;
pub use sight::{Closing, Sight};
pub use step::Step;
#[cfg(all(feature = "mutation", debug_assertions))]
pub use step::mutation;
