//! The commands from a broker to a forwarder, and the events in return.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use millrace_stream::Side;
use millrace_stream::partition::{
    Class, OpenReply, PartitionGeometry, PartitionSettings, Rate, SessionError,
};
use millrace_window::Window;

use super::{Endpoint, ForwarderTotals};

/// The broker's number of a connection.
pub type Token = u64;

/// A command for a forwarder: numbers and descriptors, so that it can also be sent over a socket.
#[derive(Debug)]
pub enum Command {
    /// Joins a partition of a window. [`Event::Joined`] follows when the peer answers, [`Event::Lost`] when the
    /// partition is over.
    Join(Box<Join>),
    /// Joins a partition of a window that the forwarder maps by its path.
    JoinAt(Box<JoinAt>),
    /// Leaves a partition and resets its connections.
    Leave {
        /// The partition's number at this forwarder.
        link: u32,
    },
    /// Opens an endpoint of a connection with another host. [`Event::Opened`] or [`Event::Refused`] follows.
    Open(Box<Open>),
    /// Starts the transfer: the peer's broker has sent its number.
    Establish {
        /// The broker's number of the connection.
        token: Token,
        /// The number and credit that the peer's forwarder opened.
        peer: OpenReply,
    },
    /// Forwards a connection between two applications of this host. [`Event::Refused`] follows if that fails.
    Loop {
        /// The broker's number of the connection.
        token: Token,
        /// The connecting and the accepting application's endpoints.
        ends: Box<[Endpoint; 2]>,
    },
    /// Resets a connection; or cancels one that was not established, when the peer's broker does not know its number or
    /// has cancelled it as well.
    Close {
        /// The broker's number of the connection.
        token: Token,
        /// The errno that the applications get.
        errno: u16,
    },
    /// Requests the totals, which [`Event::Report`] returns.
    Report,
    /// Ends [`Forwarder::run`](super::Forwarder::run). Partitions and connections are dropped as they are.
    Stop,
}

/// A partition to join, with its mapped window.
#[derive(Debug)]
pub struct Join {
    /// The partition's number at this forwarder; not in use.
    pub link: u32,
    /// The window, with a doorbell if the peer can be woken.
    pub window: Window,
    /// The partition geometry of the window.
    pub geometry: PartitionGeometry,
    /// The index of the partition in the window.
    pub index: u16,
    /// The side that this host has.
    pub side: Side,
    /// The settings of this side of the partition.
    pub settings: PartitionSettings,
    /// The eventfd that becomes readable when the peer notifies this side.
    pub wakeup: Option<OwnedFd>,
}

/// A partition to join, with the path of its window.
#[derive(Debug)]
pub struct JoinAt {
    /// The partition's number at this forwarder; not in use.
    pub link: u32,
    /// The path of the window's file or device.
    pub path: PathBuf,
    /// The partition geometry of the window.
    pub geometry: PartitionGeometry,
    /// The index of the partition in the window.
    pub index: u16,
    /// The side that this host has.
    pub side: Side,
    /// This host's incarnation: a number that differs at each start, not 0.
    pub incarnation: u64,
    /// The time without a heartbeat after which the peer is lost, in nanoseconds.
    pub lost_after_ns: u64,
}

/// An endpoint of a connection with another host.
#[derive(Debug)]
pub struct Open {
    /// The broker's number of the connection; not in use.
    pub token: Token,
    /// The number of the partition at this forwarder.
    pub link: u32,
    /// The application's side of the connection.
    pub endpoint: Endpoint,
    /// The service class of the connection.
    pub class: Class,
    /// The rate limit of the application; `None` for no limit.
    pub rate: Option<Rate>,
    /// Bytes that are buffered for an application that does not read.
    pub room: u64,
}

/// An event from a forwarder to its broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer of a partition has answered.
    Joined {
        /// The partition's number at this forwarder.
        link: u32,
    },
    /// A partition is lost and its connections are reset. It can be joined again, with another incarnation.
    Lost {
        /// The partition's number at this forwarder.
        link: u32,
        /// The reason of the loss.
        loss: SessionError,
    },
    /// An endpoint is open; its number is for the peer's broker.
    Opened {
        /// The broker's number of the connection.
        token: Token,
        /// The endpoint's number and first credit.
        opened: OpenReply,
    },
    /// The connection could not be opened.
    Refused {
        /// The broker's number of the connection.
        token: Token,
    },
    /// A connection is over; its token and memory are free.
    Ended {
        /// The broker's number of the connection.
        token: Token,
        /// Bytes from this host's applications, and bytes to them.
        bytes: (u64, u64),
    },
    /// The forwarder's totals, requested by [`Command::Report`].
    Report(ForwarderTotals),
}
