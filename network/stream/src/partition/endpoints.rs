//! Who uses connections.

use std::fmt;

use super::bucket::Rate;

/// The number of a connection, which the peer's frames carry.
///
/// The low 20 bits are its place in this side's table, the high 12 tell users of the place apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectionId(pub(super) u32);

/// How urgent a connection is: 0 to 7, of which the higher are served more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Class(u8);

/// How many classes there are.
pub const CLASSES: usize = 8;

/// A connection to be opened.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// How [`Endpoints`] shall call it.
    pub key: u32,
    /// Its class.
    pub class: Class,
    /// How fast it may send, if there is a limit.
    pub rate: Option<Rate>,
    /// How many bytes that come in the endpoint can keep: 64 B to 16 MiB, counted in whole 64 B. All of it can be
    /// under way at once.
    pub room: u64,
}

/// What the peer must be told of a connection that was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Its number.
    pub id: ConnectionId,
    /// Up to where the peer may send, in units of 64 bytes.
    pub credit: u32,
}

/// Bytes to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// How many were put at the front of what was given.
    pub bytes: usize,
    /// Whether there are more at once. If not, [`Partition::ready`](super::Partition::ready) tells of new ones.
    pub has_more: bool,
    /// Whether the first of them is urgent.
    pub is_urgent: bool,
}

/// Why a connection is broken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reset {
    /// The peer did it, with this errno, 1 to 4095.
    Peer(u16),
    /// The peer broke the protocol in this connection.
    Breach(Breach),
    /// The partition is lost.
    Lost(Loss),
}

/// How a peer broke the protocol in one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Breach {
    /// It granted less than before, or more than can be.
    Credit,
    /// It sent more than it was granted.
    Room,
    /// The end does not lie where it says.
    Total,
    /// A frame came behind the one that was to be the last of its kind.
    Order,
}

/// Why a partition is lost, and all its connections with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// This side closed it.
    Closed,
    /// The peer has another layout, another version, or does not agree about checks.
    Greeting,
    /// The peer is another incarnation than before, or none.
    Incarnation,
    /// The peer's heart has stopped.
    Silence,
    /// A slot that cannot be.
    Slot,
    /// A frame whose check does not fit.
    Check,
    /// A frame of a connection that there is not.
    Connection,
    /// Lines were given back that were not out.
    Returned,
    /// The window refused.
    Window,
}

/// Who has the bytes that go out and takes those that come in.
///
/// Called by [`Partition::poll`](super::Partition::poll) alone. Keys are those of [`Opening::key`]; a key is free for
/// another connection after [`Endpoints::closed`].
pub trait Endpoints {
    /// Puts bytes to send to the front of `into`, as many as there are.
    fn fetch(&mut self, key: u32, into: &mut [u8]) -> Fetched;

    /// Takes bytes that came: all of them, as the room was set aside.
    /// [`Partition::consumed`](super::Partition::consumed) tells when there is room again.
    fn deliver(&mut self, key: u32, bytes: &[u8]);

    /// The same with bytes of which the first is urgent. Unless this is given, it is one as others.
    fn deliver_urgent(&mut self, key: u32, bytes: &[u8]) {
        self.deliver(key, bytes);
    }

    /// There will be no more bytes: all came.
    fn finished(&mut self, key: u32);

    /// The connection is broken off: nothing more comes or goes.
    fn reset(&mut self, key: u32, reason: Reset);

    /// The connection is over and its number free. Comes last, for every connection.
    fn closed(&mut self, key: u32);
}

impl ConnectionId {
    /// As a number, for a monitor's message.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// From a monitor's message.
    #[must_use]
    pub const fn from_number(number: u32) -> Self {
        Self(number)
    }
}

impl Class {
    /// That of connections that nobody said anything about.
    pub const DEFAULT: Self = Self(3);

    /// The class of this number, of which there are [`CLASSES`].
    #[must_use]
    pub const fn new(number: u8) -> Option<Self> {
        if (number as usize) < CLASSES {
            Some(Self(number))
        } else {
            None
        }
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }
}

impl Default for Class {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Reset {
    /// What a program is told.
    #[must_use]
    pub const fn errno(self) -> u16 {
        const CONNECTION_RESET: u16 = 104;
        match self {
            Self::Peer(errno) => errno,
            Self::Breach(_) | Self::Lost(_) => CONNECTION_RESET,
        }
    }
}

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 & 0xf_ffff, self.0 >> 20)
    }
}
