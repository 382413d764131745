//! What is counted.

/// What has happened since the monitor began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Processes that said HELLO.
    pub processes: u64,
    /// Listeners that were registered.
    pub listeners: u64,
    /// Connections that processes asked for.
    pub requests: u64,
    /// Leases that were given: connections made by them are counted by processes alone.
    pub leases: u64,
    /// Connections that were made.
    pub connections: u64,
    /// Of these, those within this host whose bytes planes move.
    pub proxied: u64,
    /// Of these, those with other hosts, from here and to here.
    pub across: (u64, u64),
    /// How often a backlog was found full: the connection then waits, or is asked for again.
    pub waited: u64,
    /// Connections that were left to the kernel.
    pub kernel: u64,
    /// Requests that were refused.
    pub refused: u64,
}
