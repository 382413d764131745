//! The interface between a partition and the users of its connections.

use std::fmt;

use super::bucket::Rate;

/// The number of a connection in the peer's frames.
///
/// The low 20 bits are its index in this side's table, the high 12 bits the generation of the entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectionId(pub(super) u32);

/// The service class of a connection, 0 to 7; a higher class gets more turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Class(u8);

/// The count of classes.
pub const CLASSES: usize = 8;

/// The parameters of a connection to be opened.
#[derive(Clone, Copy, Debug)]
pub struct OpenParams {
    /// The key by which [`Endpoints`] know it.
    pub key: u32,
    /// The service class of the connection.
    pub class: Class,
    /// The rate limit; `None` for no limit.
    pub rate: Option<Rate>,
    /// The receive room: 64 B to 16 MiB, in whole units of 64 B. All of it can be in flight at once.
    pub room: u64,
}

/// The result of an open, to be sent to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenReply {
    /// The number of the connection.
    pub id: ConnectionId,
    /// The cumulative credit of the peer, in units of 64 bytes.
    pub credit: u32,
}

/// The result of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The count of bytes stored at the front of `into`.
    pub bytes: usize,
    /// Whether more bytes are available now. If not, [`Partition::ready`](super::Partition::ready) reports new ones.
    pub has_more: bool,
    /// Whether the first byte is urgent.
    pub is_urgent: bool,
}

/// The reason of a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reset {
    /// The peer reset the connection with this errno, 1 to 4095.
    Peer(u16),
    /// The peer broke the protocol in this connection.
    ProtocolViolation(ProtocolViolation),
    /// The partition is lost for this reason.
    Lost(SessionError),
}

/// A protocol violation in one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolViolation {
    /// A credit below an earlier one, or above the limit.
    Credit,
    /// More bytes than granted.
    Room,
    /// A total that differs from the received bytes.
    Total,
    /// A frame behind the last one of its kind.
    Order,
}

/// The reason for which a partition and all its connections are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionError {
    /// This side closed the partition.
    Closed,
    /// The peer has another layout or version, or a different setting for checksums.
    Handshake,
    /// The peer has restarted or left.
    PeerRestarted,
    /// The peer's heartbeat has stopped.
    HeartbeatTimeout,
    /// An invalid slot in the ring.
    InvalidSlot,
    /// A frame with a wrong checksum.
    Checksum,
    /// A frame of an unknown connection.
    UnknownConnection,
    /// A returned position outside of the lines in flight.
    InvalidCredit,
    /// The window reported an error; the source has it.
    Window,
}

/// The source of the bytes to send, and the sink of received bytes.
///
/// Only [`Partition::poll`](super::Partition::poll) calls it. Keys are those of [`OpenParams::key`]; a key may be
/// reused after [`Endpoints::closed`].
pub trait Endpoints {
    /// Stores bytes to send at the front of `into`, as many as are available.
    fn fetch(&mut self, key: u32, into: &mut [u8]) -> Fetched;

    /// Takes received bytes: all of them, as their room was granted.
    /// [`Partition::consumed`](super::Partition::consumed) reports when there is room again.
    fn deliver(&mut self, key: u32, bytes: &[u8]);

    /// Takes received bytes of which the first is urgent. By default it is delivered as an ordinary byte.
    fn deliver_urgent(&mut self, key: u32, bytes: &[u8]) {
        self.deliver(key, bytes);
    }

    /// All bytes have arrived; none will follow.
    fn finished(&mut self, key: u32);

    /// The connection was reset: no byte follows in either direction.
    fn reset(&mut self, key: u32, reason: Reset);

    /// The connection is over and its number free. It is the last call for every connection.
    fn closed(&mut self, key: u32);
}

impl ConnectionId {
    /// The number for a broker's message.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The id of a number in a broker's message.
    #[must_use]
    pub const fn from_number(number: u32) -> Self {
        Self(number)
    }
}

impl Class {
    /// The class of connections without a setting.
    pub const DEFAULT: Self = Self(3);

    /// The class of a number below [`CLASSES`]; else `None`.
    #[must_use]
    pub const fn new(number: u8) -> Option<Self> {
        if (number as usize) < CLASSES {
            Some(Self(number))
        } else {
            None
        }
    }

    /// The number of the class, 0 to 7.
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
    /// The errno for the program.
    #[must_use]
    pub const fn errno(self) -> u16 {
        const CONNECTION_RESET: u16 = 104;
        match self {
            Self::Peer(errno) => errno,
            Self::ProtocolViolation(_) | Self::Lost(_) => CONNECTION_RESET,
        }
    }
}

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 & 0xf_ffff, self.0 >> 20)
    }
}
