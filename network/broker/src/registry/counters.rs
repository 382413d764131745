//! The counters of the registry.

/// The counters since the broker's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The count of processes that sent HELLO.
    pub processes: u64,
    /// The count of listeners that were registered.
    pub listeners: u64,
    /// The count of connect requests of processes.
    pub requests: u64,
    /// Granted leases. Connections made under them are counted by their processes alone.
    pub leases: u64,
    /// The count of connections made by the broker.
    pub connections: u64,
    /// Those of them within this host that forwarders move.
    pub forwarded: u64,
    /// Those of them with other hosts: from this host, and to it.
    pub across: (u64, u64),
    /// Requests that found a full backlog; they wait or are repeated.
    pub waited: u64,
    /// Requests that were left to the kernel.
    pub kernel: u64,
    /// The count of requests that were refused.
    pub refused: u64,
}
