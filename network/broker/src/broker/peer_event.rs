//! The events and actions of [`Peers`](super::peers::Peers).

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use millrace_stream::partition::SessionError;

use crate::forwarder::JoinAt;
use crate::peer::PeerMessage;

/// An event that the peers are to handle. Connections have the numbers of their sockets, which are never reused.
#[derive(Clone, Debug)]
pub(super) enum PeerEvent {
    /// The timer has expired: 250 ms have passed.
    Tick,
    /// This host's addresses, for [`PeerAction::ReadAddresses`].
    Addresses(Vec<IpAddr>),
    /// The result of [`PeerAction::Dial`]: the connection's number, or the reason of the failure.
    Dialled {
        dial: usize,
        connected: Result<u64, String>,
    },
    /// A peer has connected to this host.
    Accepted { number: u64, from: Option<IpAddr> },
    /// Bytes of a peer have arrived.
    Received { number: u64, bytes: Vec<u8> },
    /// A connection has ended or failed.
    Closed { number: u64, why: String },
    /// The result of [`PeerAction::Measure`]: the window's size in bytes, or the reason of the failure.
    Measured {
        number: u64,
        purpose: Purpose,
        size: Result<u64, String>,
    },
    /// Another host has some of the addresses of [`PeerAction::HostUp`].
    Taken { number: u64, addresses: Vec<IpAddr> },
    /// A message for a peer.
    Send { number: u64, message: PeerMessage },
    /// The peer has answered in a partition.
    Joined { link: u32 },
    /// A partition is lost.
    Lost { link: u32, loss: SessionError },
    /// Forwarders are attached.
    ForwardersAttached,
    /// The forwarders' process has exited.
    ForwardersExited,
}

/// An action for the broker; actions run in order.
#[derive(Debug)]
pub(super) enum PeerAction {
    /// Connect to a peer, and report the result by [`PeerEvent::Dialled`].
    Dial { dial: usize, address: SocketAddr },
    /// Write the output of a connection's session.
    Flush { number: u64 },
    /// Close the socket of a connection. No [`PeerEvent::Closed`] follows.
    Close { number: u64 },
    /// Read this host's addresses, and report them by [`PeerEvent::Addresses`].
    ReadAddresses,
    /// Look at the size of a window, and report it by [`PeerEvent::Measured`].
    Measure {
        number: u64,
        path: PathBuf,
        purpose: Purpose,
    },
    /// Register a host's addresses, and report those of other hosts by [`PeerEvent::Taken`].
    HostUp {
        number: u64,
        host: u128,
        addresses: Vec<IpAddr>,
    },
    /// Remove a host's addresses from the registry.
    HostDown { host: u128 },
    /// Have a forwarder join a partition.
    Join(Box<JoinAt>),
    /// Have a forwarder leave a partition.
    Leave { partition: u16, link: u32 },
    /// Handle CONNECT, ACCEPT or REFUSE of a peer.
    Message { number: u64, message: PeerMessage },
    /// Fail the requests that wait for a peer: its connection is closed.
    Fail { number: u64 },
}

/// The use of a window's size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To send NAMES.
    Announce,
    /// To join the window, after the peer's NAMES.
    Join {
        partitions: u16,
        size: u64,
        addresses: Vec<IpAddr>,
    },
}
