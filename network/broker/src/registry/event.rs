//! The events and actions of the registry.

use std::net::IpAddr;

use millrace_stream::Address;
use millrace_stream::control::{Link, Packet};

/// The id of a process's connection to the broker; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub u64);

/// The id of a listener's channel; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerId(pub u64);

/// A sender's user and process, as the kernel reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The real user id of the process.
    pub user: u32,
    /// The process id in the broker's namespace.
    pub process: u32,
}

/// The kernel's description of a listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The address that it listens at.
    pub address: Address,
    /// Whether it is of IPv6 and accepts no IPv4.
    pub only_v6: bool,
    /// Whether other sockets may listen there too (SO_REUSEPORT).
    pub reuse_port: bool,
    /// The socket's inode, the same for all of its descriptors.
    pub socket: u64,
}

/// A connect request of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectRequest {
    /// The sender's credentials at the time of the request. They may differ from those of HELLO.
    pub credentials: Credentials,
    /// The serial number of the request, for its reply.
    pub serial: u32,
    /// Whether to refuse instead of waiting for a full backlog.
    pub no_wait: bool,
    /// Whether a lease is a welcome answer.
    pub wants_lease: bool,
    /// The local address; the address, the port or both may be unspecified.
    pub local: Address,
    /// The IP address and port to connect to.
    pub peer: Address,
    /// The source address that the kernel would choose; `None` if the peer is on another host.
    pub source: Option<IpAddr>,
}

/// A connection to be made: two wake-up sockets, one memory file, and a packet to each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The id of the listener that accepts it.
    pub listener: ListenerId,
    /// The id of the connecting process's connection.
    pub client: ClientId,
    /// The request, with its sender's credentials.
    pub request: ConnectRequest,
    /// The connection from the connecting side's view.
    pub connecting: Link,
    /// The connection from the accepting side's view.
    pub accepting: Link,
    /// The count of ports, from the connection's local port on, that are lent with a lease; 0 without a lease.
    pub lent: u16,
}

/// The result of an attempt to make a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Both sides have it, or one side has exited.
    Done {
        /// Whether the listener's channel has room for another.
        room: bool,
    },
    /// A lease was granted instead of a connection.
    Lent,
    /// The listener's channel has no room for it.
    Full,
    /// The listener's channel or its TCP socket is closed.
    Gone,
    /// The connection could not be made: the kernel's TCP serves it.
    Failed,
}

/// An event that the registry is to handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A process has connected to the broker.
    Arrived {
        /// The id of its connection.
        client: ClientId,
        /// Its credentials. Its resources count for this user, whatever user it becomes.
        credentials: Credentials,
    },
    /// A process has sent HELLO with its slab.
    Hello {
        /// The id of its connection.
        client: ClientId,
        /// The serial number of the request, for its reply.
        serial: u32,
    },
    /// A process announces a listening socket.
    Listen {
        /// The id of its connection.
        client: ClientId,
        /// The serial number of the request, for its reply.
        serial: u32,
        /// The credentials of the request's sender.
        owner: Credentials,
        /// The most connections that may wait to be accepted.
        backlog: u32,
        /// The kernel's description of the socket.
        proof: Proof,
    },
    /// A process requests a connection by CONNECT.
    Connect {
        /// The id of its connection to the broker.
        client: ClientId,
        /// The request with its sender's credentials.
        request: ConnectRequest,
    },
    /// A process has disconnected from the broker.
    Departed {
        /// The id of its connection.
        client: ClientId,
    },
    /// An attempt of [`Action::Link`] has a result.
    Linked {
        /// The attempt that was made.
        attempt: Attempt,
        /// The result of the attempt.
        outcome: Outcome,
    },
    /// A listener's channel has room again.
    Room {
        /// The id of the listener.
        listener: ListenerId,
    },
    /// All descriptors of a listener's channel are closed.
    Silent {
        /// The id of the listener.
        listener: ListenerId,
    },
}

/// An action for the broker; actions run in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a packet without descriptors to a process.
    Reply {
        /// The id of the receiving process's connection.
        client: ClientId,
        /// The packet to send.
        packet: Packet,
    },
    /// Create a channel for `backlog` packets, and send one end with LISTENING.
    Open {
        /// The id of the new listener.
        listener: ListenerId,
        /// The id of the receiving process's connection.
        client: ClientId,
        /// The serial number of the request, for its reply.
        serial: u32,
        /// The capacity of the channel, in packets.
        backlog: u32,
    },
    /// Make a connection, and report the result by [`Event::Linked`]. If the request is not to wait, check the channel
    /// for room first: processes with leases may have filled it.
    Link(Attempt),
    /// Request a connection from a peer host. The process waits for the answer.
    ConnectRemote {
        /// The id of the requesting process's connection.
        client: ClientId,
        /// The request with its sender's credentials.
        request: ConnectRequest,
        /// The number of the host.
        host: u128,
    },
    /// Disconnect a process. No [`Event::Departed`] follows.
    Disconnect {
        /// The id of its connection.
        client: ClientId,
    },
    /// Close the channel of a removed listener.
    Close {
        /// The id of the listener.
        listener: ListenerId,
    },
}
