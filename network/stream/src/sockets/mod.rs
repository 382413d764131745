//! Sockets of a program that uses this API instead of the preload.
//!
//! Only [`Channel`]'s requests block, until the broker answers; a program that must not block announces its sockets by
//! an [`Announcement`]. A program that waits for several events polls the descriptor of each ([`Stream`]'s is its
//! wake-up fd), and sleeps in these steps:
//!
//! 1. Call [`Stream::arm`]. If it returns true, do not sleep.
//! 2. Wait until the descriptor is readable.
//! 3. Call [`Stream::drain_wakeups`], then check again.
//!
//! Without an armed interest the peer sends no notification, and [`Stream::is_ready`] costs two loads. A disconnected
//! peer shows only at the descriptor, armed or not: a program that busy-polls for long must poll it now and then.
//!
//! # Ends
//! A peer that finishes, closes its stream or is killed leaves an end behind its bytes. A peer that closes with
//! unreceived bytes, or breaks the protocol, leaves [`ConnectionReset`](std::io::ErrorKind::ConnectionReset).
//!
//! ```no_run
//! use std::net::TcpListener;
//!
//! use millrace_stream::sockets::Channel;
//!
//! # fn main() -> std::io::Result<()> {
//! let tcp = TcpListener::bind("127.0.0.1:7000")?;
//! let mut channel = Channel::open("/run/millrace/sockets".as_ref())?;
//! if let Some(listener) = channel.listen(&tcp, 128)? {
//!     // Readable when a client connects; the kernel's listener serves clients without a broker.
//!     let mut stream = listener.accept()?;
//!     stream.send(b"hello")?;
//! }
//! # Ok(())
//! # }
//! ```

#[expect(
    unsafe_code,
    reason = "the kernel makes descriptors, and tells their numbers"
)]
pub mod ancillary;
mod announcement;
mod channel;
pub mod packets;
mod reservation;
mod shared_counters;
mod stream;

pub use announcement::{Announced, Announcement};
pub use channel::{Channel, Listener};
pub use reservation::Reservation;
pub use shared_counters::SharedCounters;
pub use stream::{Interest, Stream};

#[cfg(test)]
mod tests;
