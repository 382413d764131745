//! Sockets of a program that knows of them: what the preload does for others, by name.
//!
//! Nothing blocks but [`Channel`]'s requests, which wait for the monitor; a program that must not wait announces its
//! sockets by an [`Announcement`]. A program that waits for several things watches the descriptor of each ([`Stream`] is
//! one: its bell) and goes to sleep so:
//!
//! 1. [`Stream::arm`] what it waits for. True: it must not sleep.
//! 2. Wait until the descriptor is readable.
//! 3. [`Stream::answer`], then look again.
//!
//! While it has not armed, the peer does not ring, and looking ([`Stream::is_ready`]) costs two loads. That the peer is
//! gone shows at the descriptor alone, armed or not: a program that looks for long watches it now and then.
//!
//! # Ends
//! A peer that finishes, lets go of its stream or is killed leaves an end behind what it sent. One that lets go of bytes it
//! did not receive, or breaks the protocol, leaves [`ConnectionReset`](std::io::ErrorKind::ConnectionReset).
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
//!     // Readable when a client is there; the kernel's listener serves those without a monitor.
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
mod stream;
mod tally;

pub use announcement::{Announced, Announcement};
pub use channel::{Channel, Listener};
pub use reservation::Reservation;
pub use stream::{Stream, Wanted};
pub use tally::Tally;

#[cfg(test)]
mod tests;
