//! The places where an ordering matters.

use std::sync::atomic::Ordering;

/// One place in the code of a structure that has an ordering. Its documentation says what the ordering is
/// for and which site it pairs with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Site {
    /// A producer among several reads where the others are. Pairs with [`Site::HeadClaimed`]: who reads a
    /// head also sees the other side's tail at least as new as the one that let it come so far. Without
    /// it a new head meets an old tail, the room between them comes out huge, and full slots are
    /// overwritten. (This is the barrier that DPDK's ring had lost on POWER.)
    HeadRead,
    /// A claim of slots. Pairs with [`Site::HeadRead`].
    HeadClaimed,
    /// One side reads how far the other has got. Pairs with [`Site::TailPublished`]: the slots up to there
    /// are no longer touched by the other side.
    TailRead,
    /// One side tells how far it has got. Pairs with [`Site::TailRead`] and [`Site::TurnAwaited`].
    TailPublished,
    /// A side that shares its tail with others has waited for its turn to move it. Pairs with
    /// [`Site::TailPublished`]: what the earlier ones have done is published together with it. A fence
    /// after the loop, which itself polls relaxed.
    TurnAwaited,
    /// A share is given up. Pairs with [`Site::LastShare`].
    ShareReleased,
    /// The last share is gone: a fence, so that whoever frees sees what the others have done. Pairs with
    /// [`Site::ShareReleased`].
    LastShare,
    /// A thread says that it is about to sleep, then looks once more: a fence between the two. Pairs with
    /// [`Site::WakeChecked`].
    SleepAnnounced,
    /// A thread has found the condition it waited for. Pairs with the release of whoever made it true: what
    /// was done before that is visible after the wait. A fence after the loop, which itself may poll
    /// relaxed.
    ConditionMet,
    /// A thread has changed something, then looks for sleepers: a fence between the two. Pairs with
    /// [`Site::SleepAnnounced`]; of the two threads at least one sees what the other did.
    WakeChecked,
}

impl Site {
    /// All sites.
    pub const ALL: [Self; 10] = [
        Self::HeadRead,
        Self::HeadClaimed,
        Self::TailRead,
        Self::TailPublished,
        Self::TurnAwaited,
        Self::ShareReleased,
        Self::LastShare,
        Self::SleepAnnounced,
        Self::ConditionMet,
        Self::WakeChecked,
    ];

    /// The ordering that the site needs.
    #[must_use]
    pub const fn ordering(self) -> Ordering {
        match self {
            Self::HeadRead
            | Self::TailRead
            | Self::TurnAwaited
            | Self::LastShare
            | Self::ConditionMet => Ordering::Acquire,
            Self::HeadClaimed | Self::TailPublished | Self::ShareReleased => Ordering::Release,
            Self::SleepAnnounced | Self::WakeChecked => Ordering::SeqCst,
        }
    }
}
