//! The places where an ordering matters.

use std::sync::atomic::Ordering;

/// An end of a ring: whose step a [`Site`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// Where items are put in.
    Producer,
    /// Where items are taken out.
    Consumer,
}

impl End {
    /// The one on the other side.
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Producer => Self::Consumer,
            Self::Consumer => Self::Producer,
        }
    }
}

/// One place in the code of a structure that has an ordering. Its documentation says what the ordering is
/// for and which site it pairs with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Site {
    /// One of several at an end reads where the others are. Pairs with [`Site::HeadClaimed`] of the same
    /// end: who reads a head also sees the other end's tail at least as new as the one that let it come so
    /// far. Without it a new head meets an old tail and the room between them comes out huge: producers
    /// overwrite full slots, consumers take items that are not there. (This is the barrier that DPDK's ring
    /// had lost on POWER.)
    HeadRead(End),
    /// A claim of slots. Pairs with [`Site::HeadRead`] of the same end.
    HeadClaimed(End),
    /// One end reads how far the other has got. Pairs with [`Site::TailPublished`] of the other end, which
    /// no longer touches the slots up to there.
    TailRead(End),
    /// One end tells how far it has got. Pairs with [`Site::TailRead`] of the other end and
    /// [`Site::TurnAwaited`] of the same.
    TailPublished(End),
    /// One that shares its tail with others has waited for its turn to move it. Pairs with
    /// [`Site::TailPublished`] of the same end: what the earlier ones have done is published together with
    /// it. A fence after the loop, which itself polls relaxed.
    TurnAwaited(End),
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
    /// [`Site::SleepAnnounced`]; of the two threads at least one sees what the other did. (The litmus test of
    /// store buffering: fences that only acquire and release let both see what was before.)
    WakeChecked,
}

impl Site {
    /// All sites.
    pub const ALL: [Self; 15] = [
        Self::HeadRead(End::Producer),
        Self::HeadRead(End::Consumer),
        Self::HeadClaimed(End::Producer),
        Self::HeadClaimed(End::Consumer),
        Self::TailRead(End::Producer),
        Self::TailRead(End::Consumer),
        Self::TailPublished(End::Producer),
        Self::TailPublished(End::Consumer),
        Self::TurnAwaited(End::Producer),
        Self::TurnAwaited(End::Consumer),
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
            Self::HeadRead(_)
            | Self::TailRead(_)
            | Self::TurnAwaited(_)
            | Self::LastShare
            | Self::ConditionMet => Ordering::Acquire,
            Self::HeadClaimed(_) | Self::TailPublished(_) | Self::ShareReleased => {
                Ordering::Release
            }
            Self::SleepAnnounced | Self::WakeChecked => Ordering::SeqCst,
        }
    }
}
