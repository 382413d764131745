//! What a monitor says to a plane, and hears from it.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use millrace_stream::Side;
use millrace_stream::partition::{Class, Loss, Opened, PartitionGeometry, PartitionSettings, Rate};
use millrace_window::Window;

use super::{Endpoint, PlaneTotals};

/// A connection, as the monitor calls it.
pub type Token = u64;

/// What a plane shall do. Each is a value that could as well come over a socket: numbers and descriptors.
#[derive(Debug)]
pub enum Command {
    /// Serve a partition of a window. Answered by [`Event::Joined`] when the peer answers, by [`Event::Lost`] when it
    /// is over.
    Join(Box<Join>),
    /// The same with a window that the plane maps by itself.
    JoinAt(Box<JoinAt>),
    /// Leave a partition: its connections are reset.
    Leave {
        /// Which one.
        link: u32,
    },
    /// Open an end of a connection with another host. Answered by [`Event::Opened`] or [`Event::Refused`].
    Open(Box<Open>),
    /// The peer's monitor has told its number: bytes may go.
    Establish {
        /// Which connection.
        token: Token,
        /// What the peer's plane has opened.
        peer: Opened,
    },
    /// Carry a connection between two applications of this host. Answered by [`Event::Refused`] if that cannot be.
    Loop {
        /// How to call it.
        token: Token,
        /// Who connects, and who accepts.
        ends: Box<[Endpoint; 2]>,
    },
    /// Break a connection off; or give one up that was never established, when the peer's monitor does not know its
    /// number or has given it up, too.
    Close {
        /// Which one.
        token: Token,
        /// What its applications are told.
        errno: u16,
    },
    /// Tell what was done. Answered by [`Event::Report`].
    Report,
    /// End [`Plane::run`](super::Plane::run). Partitions and connections are dropped as they are.
    Stop,
}

/// A partition to be served.
#[derive(Debug)]
pub struct Join {
    /// How to call it; free at this plane.
    pub link: u32,
    /// The window, with a doorbell if the peer can be woken.
    pub window: Window,
    /// Its geometry.
    pub geometry: PartitionGeometry,
    /// Which partition of it.
    pub index: u16,
    /// Which side this host has.
    pub side: Side,
    /// How to serve it.
    pub settings: PartitionSettings,
    /// What becomes readable when the peer rings: an eventfd.
    pub bell: Option<OwnedFd>,
}

/// A partition to be served, of a window that a path names.
#[derive(Debug)]
pub struct JoinAt {
    /// How to call it; free at this plane.
    pub link: u32,
    /// The window.
    pub path: PathBuf,
    /// Its geometry.
    pub geometry: PartitionGeometry,
    /// Which partition of it.
    pub index: u16,
    /// Which side this host has.
    pub side: Side,
    /// This host's number in it, another one at each start.
    pub incarnation: u64,
    /// After how long without a beat the peer is lost.
    pub lost_after_ns: u64,
}

/// An end of a connection with another host.
#[derive(Debug)]
pub struct Open {
    /// How to call it; free at this plane.
    pub token: Token,
    /// By which partition.
    pub link: u32,
    /// The application's end.
    pub endpoint: Endpoint,
    /// How urgent it is.
    pub class: Class,
    /// How fast it may send.
    pub rate: Option<Rate>,
    /// How many bytes are kept for an application that does not read.
    pub room: u64,
}

/// What a plane has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer of a partition has answered.
    Joined {
        /// Which one.
        link: u32,
    },
    /// A partition is over, and all its connections are reset. It may be joined again, with another incarnation.
    Lost {
        /// Which one.
        link: u32,
        /// Why.
        loss: Loss,
    },
    /// A connection has a number, to be told to the peer's monitor.
    Opened {
        /// Which one.
        token: Token,
        /// Its number, and its first credit.
        opened: Opened,
    },
    /// There will be no such connection.
    Refused {
        /// Which one.
        token: Token,
    },
    /// A connection is over; its token and its memory are free.
    Ended {
        /// Which one.
        token: Token,
        /// Bytes from this host's applications, and to them.
        bytes: (u64, u64),
    },
    /// What the plane has done.
    Report(PlaneTotals),
}
