//! The states of a forwarded connection.

use millrace_stream::control::Link;
use millrace_stream::partition::{ConnectionName, OpenReply};

use crate::forwarder::Token;
use crate::registry::{ClientId, ListenerId};

/// The state of a forwarded connection.
#[derive(Debug)]
pub(super) enum Flow {
    /// Established between two processes of this host.
    Local,
    /// Requested by a process of this host, not yet established.
    Outgoing(Box<OutgoingConnect>),
    /// Requested by another host's broker, not yet established.
    Incoming(Box<IncomingConnect>),
    /// Established with another host.
    Remote,
}

/// A connection requested by a process of this host.
#[derive(Clone, Debug)]
pub(super) struct OutgoingConnect {
    /// The number of the connection to the other broker.
    pub(super) session: u64,
    pub(super) partition: u16,
    /// The forwarders' number of the partition.
    pub(super) forwarder_link: u32,
    pub(super) client: ClientId,
    pub(super) serial: u32,
    pub(super) user: u32,
    pub(super) process: u32,
    pub(super) link: Link,
    /// The connection's name between both brokers.
    pub(super) name: ConnectionName,
    pub(super) progress: Progress,
}

/// The progress of a connection requested by a process of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The forwarder is to open an endpoint, for so many ticks.
    Opening { ticks: u32 },
    /// CONNECT was sent: the other broker knows the token. It is to answer, for so many ticks since the request.
    Asking { ticks: u32 },
    /// The process got its answer by timeout. The token stays reserved until the other broker has answered, as frames
    /// that name it may still arrive.
    Abandoned,
}

/// A connection requested by another host's broker.
#[derive(Clone, Debug)]
pub(super) struct IncomingConnect {
    pub(super) session: u64,
    pub(super) partition: u16,
    /// The forwarders' number of the partition.
    pub(super) forwarder_link: u32,
    /// The other broker's token for it.
    pub(super) theirs: Token,
    pub(super) listener: ListenerId,
    /// The user of the listener.
    pub(super) owner: u32,
    pub(super) user: u32,
    pub(super) process: u32,
    pub(super) link: Link,
    pub(super) peer: OpenReply,
}
