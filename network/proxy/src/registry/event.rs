//! What happens to the registry, and what it wants done.

use std::net::IpAddr;

use millrace_stream::Address;
use millrace_stream::control::{Link, Packet};

/// A process's connection to the monitor. Never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub u64);

/// A listener's channel. Never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerId(pub u64);

/// Who is at the other end, as the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The user.
    pub user: u32,
    /// The process.
    pub process: u32,
}

/// What the kernel says of a listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Where it listens.
    pub address: Address,
    /// Whether it takes no connections of IPv4 although it is of IPv6.
    pub only_v6: bool,
    /// Whether others may listen there too.
    pub reuse_port: bool,
    /// The number of the socket, the same for whoever has a descriptor of it.
    pub socket: u64,
}

/// A connection that a process wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Who asks: whoever has sent the request, as the kernel knew it then. A process may be another user's since it
    /// said HELLO.
    pub credentials: Credentials,
    /// The request's number.
    pub serial: u32,
    /// Whether it is not to wait for a backlog.
    pub no_wait: bool,
    /// Whether it is to make its connections itself, if it may.
    pub wants_lease: bool,
    /// The local name, of which the address, the port or both may be left open.
    pub local: Address,
    /// To whom.
    pub peer: Address,
    /// The address that the kernel would connect from; none if the peer is not on this host.
    pub source: Option<IpAddr>,
}

/// A connection that is to be made: two bells, one memory, and a packet to each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Who accepts.
    pub listener: ListenerId,
    /// Who connects.
    pub client: ClientId,
    /// What it wanted, and who that is.
    pub wish: Wish,
    /// The connection as it sees it.
    pub connecting: Link,
    /// The connection as the listener sees it.
    pub accepting: Link,
    /// How many ports from that of the connection on are lent to the process, if it is to make its connections
    /// itself; else 0.
    pub lent: u16,
}

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Both sides have it, or one has died.
    Done {
        /// Whether the listener's channel has room for another.
        room: bool,
    },
    /// The process makes its connections itself for a while.
    Lent,
    /// The listener's channel had no room after all.
    Full,
    /// Nobody has the other end of the listener's channel, it was closed since, or its socket listens no more.
    Gone,
    /// The connection could not be made: the kernel's TCP is to serve it.
    Failed,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A process has connected.
    Arrived {
        /// Its connection.
        client: ClientId,
        /// Who it is. What it has counts as this user's, whoever it is later.
        credentials: Credentials,
    },
    /// It said HELLO.
    Hello {
        /// Its connection.
        client: ClientId,
        /// The request's number.
        serial: u32,
    },
    /// It listens.
    Listen {
        /// Its connection.
        client: ClientId,
        /// The request's number.
        serial: u32,
        /// Who has sent the request.
        owner: Credentials,
        /// How many connections may wait to be accepted.
        backlog: u32,
        /// Where, by the kernel's word.
        proof: Proof,
    },
    /// It wants a connection.
    Connect {
        /// Its connection to the monitor.
        client: ClientId,
        /// Which one.
        wish: Wish,
    },
    /// Its connection has ended.
    Departed {
        /// Which.
        client: ClientId,
    },
    /// An attempt has ended.
    Linked {
        /// Which.
        attempt: Attempt,
        /// How.
        outcome: Outcome,
    },
    /// A listener has taken connections from its channel.
    Room {
        /// Which.
        listener: ListenerId,
    },
    /// Nobody has the other end of a listener's channel.
    Silent {
        /// Which.
        listener: ListenerId,
    },
}

/// What is to be done, in the order given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a packet without descriptors.
    Reply {
        /// To whom.
        client: ClientId,
        /// What.
        packet: Packet,
    },
    /// Make a channel that takes `backlog` packets and send one end along with LISTENING.
    Open {
        /// The new listener.
        listener: ListenerId,
        /// To whom.
        client: ClientId,
        /// The request's number.
        serial: u32,
        /// How many packets the channel is to take.
        backlog: u32,
    },
    /// Make a connection and say by [`Event::Linked`] what became of it. For one that is not to wait, look first
    /// whether there is room: its listener may have made some that the registry has not heard of.
    Link(Attempt),
    /// Have a peer host make a connection. The process waits for an answer.
    Reach {
        /// Who asks.
        client: ClientId,
        /// What it wants.
        wish: Wish,
        /// Which host.
        host: u128,
    },
    /// End a process's connection. No [`Event::Departed`] is to follow.
    Hang {
        /// Which.
        client: ClientId,
    },
    /// Close a listener's channel.
    Close {
        /// Which.
        listener: ListenerId,
    },
}
