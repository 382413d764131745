//! How much there may be of everything.

/// Bounds of what one monitor keeps, so that no user of it can use up its memory or its descriptors.
///
/// A connection between two processes costs the monitor nothing once it is made: each side pays for it with
/// descriptors of its own. One that planes of the monitor's process carry takes two descriptors there, two maps, and
/// the memory of what is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Processes.
    pub clients_max: usize,
    /// Processes of one user.
    pub clients_per_user_max: usize,
    /// Listeners.
    pub listeners_max: usize,
    /// Listeners of one user.
    pub listeners_per_user_max: usize,
    /// Connections of one process that wait for a backlog.
    pub waiting_per_client_max: usize,
    /// Connections of one user that wait for a backlog.
    pub waiting_per_user_max: usize,
    /// Connections that may wait to be accepted, whatever a listener asks for.
    pub backlog_max: u32,
    /// Connections that may wait to be accepted by all listeners of a user. Who has none left gets
    /// [`Limits::BACKLOG_MIN`].
    pub backlogs_per_user_max: u32,
    /// Connections that planes carry. One more is left to the kernel.
    pub carried_max: usize,
    /// Connections of one user that planes carry.
    pub carried_per_user_max: usize,
}

impl Limits {
    /// Connections that may wait to be accepted by any listener that asks for as many.
    pub const BACKLOG_MIN: u32 = 4;

    /// Enough for a large machine: 20,480 descriptors, and about 25 MB if all of it is used.
    pub const DEFAULT: Self = Self {
        clients_max: 8192,
        clients_per_user_max: 4096,
        listeners_max: 4096,
        listeners_per_user_max: 2048,
        waiting_per_client_max: 1024,
        waiting_per_user_max: 16384,
        backlog_max: 4096,
        backlogs_per_user_max: 65_536,
        carried_max: 12_288,
        carried_per_user_max: 8192,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}
