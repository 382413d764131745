//! The limits of a broker.

/// The limits of one broker, so that no user can exhaust its memory or descriptors.
///
/// An established connection between two processes costs the broker nothing: each side has its own descriptors. A
/// connection that forwarders of the broker's process move costs two descriptors, two mappings, and the memory of its
/// buffered bytes there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most processes that may be connected.
    pub clients_max: usize,
    /// The most connected processes of one user.
    pub clients_per_user_max: usize,
    /// The most listeners that may be registered.
    pub listeners_max: usize,
    /// The most listeners of one user.
    pub listeners_per_user_max: usize,
    /// The most waiting connect requests of one process.
    pub waiting_per_client_max: usize,
    /// The most waiting connect requests of one user.
    pub waiting_per_user_max: usize,
    /// The largest backlog of a listener.
    pub backlog_max: u32,
    /// The largest sum of the backlogs of one user's listeners. Beyond it a listener gets [`Limits::BACKLOG_MIN`].
    pub backlogs_per_user_max: u32,
    /// The most forwarded connections. One more is left to the kernel.
    pub forwarded_max: usize,
    /// The most forwarded connections of one user.
    pub forwarded_per_user_max: usize,
}

impl Limits {
    /// The backlog that any listener gets, if it asks for as many.
    pub const BACKLOG_MIN: u32 = 4;

    /// The default limits: at most 20,480 descriptors and about 25 MB.
    pub const DEFAULT: Self = Self {
        clients_max: 8192,
        clients_per_user_max: 4096,
        listeners_max: 4096,
        listeners_per_user_max: 2048,
        waiting_per_client_max: 1024,
        waiting_per_user_max: 16384,
        backlog_max: 4096,
        backlogs_per_user_max: 65_536,
        forwarded_max: 12_288,
        forwarded_per_user_max: 8192,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}
