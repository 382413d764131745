//! What a report shows.

/// The kind of a report that a client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum View {
    /// The reply to STATUS: sums and listeners.
    Totals,
    /// The reply to TOP: each process's counters.
    Processes,
}

/// The users whose processes and listeners a report shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Seen {
    /// The processes of all users.
    All,
    /// The processes of one user.
    Of(u32),
}

impl Seen {
    /// The view of a user: root and the broker's user see all, other users see their own.
    pub(super) fn by(user: u32) -> Self {
        if user == 0 || user == rustix::process::geteuid().as_raw() {
            Self::All
        } else {
            Self::Of(user)
        }
    }

    pub(super) fn has(self, user: u32) -> bool {
        self == Self::All || self == Self::Of(user)
    }
}
