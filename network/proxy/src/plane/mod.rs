//! The data plane: carries the bytes of connections whose applications share no memory with each other.
//!
//! ```text
//! application =bell, memory= plane ==partition in a window== plane =bell, memory= application
//! application =bell, memory= plane =bell, memory= application
//! ```
//! To an application the plane is a peer like any other: it holds the other end of the bell and the other side of the
//! memory. So one application never has another's memory, and the windows are the planes' alone.
//!
//! # Parts
//! A [`Plane`] is what one thread serves: its partitions and its connections. [`DataPlane`] gives commands to several
//! of them. A monitor says what there is to be done by [`Command`]s, and hears [`Event`]s: plain values with
//! descriptors, so it may be in the same process or at the other end of a socket.
//!
//! A connection of two hosts: both monitors agree over a connection of their own. Each has its plane open an end
//! ([`Command::Open`]), sends what it got ([`Event::Opened`]) to the other, and establishes it with what the other has
//! sent. The connecting monitor chooses the partition ([`DataPlane::place`]) and tells it.
//!
//! # Order of service
//! Connections within the host have turns by class, and by weight as a partition has them; a turn is one slice of at most
//! 8 KiB each way. Between two slices of a connection there is thus at most one of each other active connection of its
//! class. A partition is served between any 128 KiB of them, and has an order of its own.
//!
//! A program says its class and its rate in its memory ([`Service`](millrace_stream::Service)); what the monitor gives
//! is what it has otherwise, and no rate of a program's is above that of the monitor.
//!
//! # Waiting
//! A connection is *hot* (looked at in every pass) or *armed* (its applications ring). A hot one on which nothing
//! happened for a while is armed and looked at once more, so a pass costs what the active ones cost. When nothing is
//! hot, the plane sleeps on its bells; where a window cannot tell a sleeping side for certain, for a millisecond at a
//! time. A plane that was kept waiting for the processor when it gave it up does not look again and again: for a while
//! it arms whatever is idle, and sleeps at once. All bells that rang meanwhile are then answered together.
//!
//! # Urgent bytes
//! They stay urgent, within a host and between hosts. They are told of when all bytes before them were moved; of several
//! that wait for room the last is urgent, as with TCP.
//!
//! # Ends
//! | what happened | what the other application gets |
//! |---|---|
//! | an application has finished | the end, behind all bytes |
//! | it has closed, exited or was killed | the same, as kernel TCP does |
//! | it has reset | a reset |
//! | bytes come for one that is gone | the sender a reset |
//! | it broke the protocol | a reset, for both |
//! | the other host, its plane or the window is lost | a reset |
//! | this plane is lost | its bells hang up without an end: a reset |
//!
//! # Memory
//! For each connection its application's memory is mapped, and what was set aside for it ([`Open::room`]) is kept for
//! an application that does not read. Both are given back when it is over, which [`Event::Ended`] tells.
//!
//! # Threads, clock
//! No thread is spawned and no clock is read.

mod command;
mod crowd;
mod distant;
mod end;
mod flows;
mod links;
mod orders;
mod parked;
mod pipe;
#[expect(clippy::module_inception, reason = "one main type a file")]
mod plane;
mod planes;
mod remote;
mod turns;
mod window;

pub use command::{Command, Event, Join, JoinAt, Open, Token};
pub use distant::serve;

pub use end::Endpoint;
pub use plane::{Plane, PlaneSettings, PlaneTotals};
pub use planes::{DataPlane, PlaneHandle};
pub(crate) use window::open_window;
