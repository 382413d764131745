//! The forwarder: it moves the bytes of connections whose applications share no memory with each other.
//!
//! ```text
//! application =wake-up fd, memory= forwarder ==partition in a window== forwarder =wake-up fd, memory= application
//! application =wake-up fd, memory= forwarder =wake-up fd, memory= application
//! ```
//! To an application the forwarder is a peer: it has the other end of the wake-up socket pair and the other side of the
//! memory. No application maps the memory of another, and only forwarders map windows.
//!
//! # Parts
//! A [`Forwarder`] is what one thread serves: its partitions and its connections. A [`ForwarderPool`] sends commands to
//! several forwarders. A broker sends [`Command`]s and receives [`Event`]s: values with descriptors, so the forwarder
//! may run in the same process or at the other end of a socket.
//!
//! A connection of two hosts: the brokers negotiate over their own connection. Each has its forwarder open an endpoint
//! ([`Command::Open`]), sends the result ([`Event::Opened`]) to the other broker, and establishes the connection with
//! the other's result. The connecting broker chooses the partition ([`ForwarderPool::choose_partition`]) and sends its
//! index.
//!
//! # Order of service
//! Connections within the host have turns by class and weight, as in a partition; a turn moves one slice of at most 8
//! KiB in each direction. Between two slices of a connection there is at most one of each other active connection of
//! its class. A partition is polled after at most 128 KiB of them, and has its own order.
//!
//! A program stores its class and its rate in its memory ([`Service`](millrace_stream::Service)). The broker's values
//! are the defaults, and the broker's rate is an upper limit.
//!
//! # Waiting
//! A connection is *hot* (served in every pass) or *armed* (its applications notify). An idle hot connection is armed
//! after a while and checked once more, so the cost of a pass follows the active connections. With no hot connection
//! the forwarder sleeps in its epoll; where a window cannot notify reliably, for at most a millisecond. On a contended
//! processor the forwarder does not busy-poll: it arms idle connections and sleeps at once, and drains all pending
//! notifications together.
//!
//! # Urgent bytes
//! They stay urgent within a host and between hosts. They are forwarded behind all earlier bytes; of several that wait
//! for room the last is urgent, as with TCP.
//!
//! # End of a connection
//! | event | the other application gets |
//! |---|---|
//! | an application has finished | the end, behind all bytes |
//! | an application closed, exited or was killed | the same, as in kernel TCP |
//! | an application has reset | a reset |
//! | bytes arrive for an exited application | a reset for the sender |
//! | an application broke the protocol | a reset for both |
//! | the other host, its forwarder or the window is lost | a reset |
//! | this forwarder exits | a reset, as its wake-up sockets hang up without an end |
//!
//! # Memory
//! For each connection the forwarder maps its application's memory, and buffers up to [`Open::room`] bytes for an
//! application that does not read. [`Event::Ended`] reports that both are released.
//!
//! # Threads, clock
//! It spawns no thread and reads no clock.

mod apply;
mod command;
mod contention;
mod end;
mod flows;
#[expect(clippy::module_inception, reason = "one main type a file")]
mod forwarder;
mod ipc;
mod links;
mod parked;
mod pipe;
mod pool;
mod remote;
mod round_robin;
mod window;

pub use command::{Command, Event, Join, JoinAt, Open, Token};
pub use ipc::serve;

pub use end::Endpoint;
pub use forwarder::{Forwarder, ForwarderSettings, ForwarderTotals};
pub use pool::{ForwarderHandle, ForwarderPool};
pub(crate) use window::open_window;
