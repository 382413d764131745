//! The network layer: connections, their buffers, and the threads that serve them.
//!
//! ```text
//!   Listener --accept--> worker 0 --hands out--> worker 1, 2, ...      (one a core)
//!                           |
//!        readiness -> read -> frame -> Service::call -> reply -> write (one worker, no hand-over)
//!                                       |        |         |
//!                              Offload  |   Wait |         | Acknowledge
//!                                       v        v         v
//!                                 blocking    timers,    parked until the write
//!                                 pool        notifier   has come far enough
//! ```
//!
//! The poller reports the readiness of kernel sockets. That of a connection through a window
//! (`WindowListener`, with the feature `sockets`) is polled in its shared memory, or signalled by its wake-up fd: see `worker/spin_poll.rs`.
//!
//! # Ownership
//! | what | threads that use it |
//! |---|---|
//! | a connection, its transport, its buffers | the worker it was handed to, always the same |
//! | its session and the request being served | that worker; a pool thread while the request is offloaded |
//! | a worker's [`Inbox`](inbox::Inbox) | any thread pushes, the worker drains |
//! | the [`Notifier`] | any thread |
//!
//! # Invariants
//! 1. A connection serves one request at a time, in the order of arrival.
//! 2. A connection with unsent replies of more than a buffer is not read: back-pressure reaches the client.
//! 3. A worker never blocks: not on a device, not on a client, not on a pool thread.
//! 4. Every buffer is charged to [`Share::Messages`](crate::memory::Share::Messages); an idle
//!    connection holds none.
//! 5. A reply that stands for a write leaves the process only after the write has reached the level that its
//!    [`Acknowledgement`](crate::acknowledgement::Acknowledgement) names, or with an error that says otherwise.

mod acceptor;
mod blocking_pool;
mod buffer;
mod connection;
mod inbox;
mod listener;
#[cfg(test)]
pub(crate) mod loopback;
mod notifier;
pub(crate) mod parked;
mod poller;
mod requests;
mod server;
mod service;
mod slab;
mod timers;
#[cfg(feature = "sockets")]
mod windows;
mod worker;

pub use blocking_pool::BlockingPool;
pub use listener::{Listener, TcpListener, Transport, UnixListener};
pub use notifier::{Notifier, Ticket};
pub use poller::Interest;
pub use server::{Counters, Network, NetworkConfig, NetworkContext};
pub use service::{ConnectionId, ConnectionInfo, Outcome, ReplyBuffer, Request, Resumed, Service};
#[cfg(feature = "sockets")]
pub use windows::{WindowListener, WindowTotals};
