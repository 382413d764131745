//! The places where an ordering matters.

use std::sync::atomic::Ordering;

/// End of a ring that a [`Site`] belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// The end at which items are put in.
    Producer,
    /// The end at which items are taken out.
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

/// A place in a structure's code that has a memory ordering. Each variant documents the purpose of the ordering and the
/// site with which it pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Site {
    /// A shared end reads its own head. Pairs with [`Site::HeadClaimed`] of the same end: a reader of a head also sees
    /// the other end's tail at least as new as the one that admitted this head. Without it a new head is compared with
    /// an old tail and the free space underflows: producers overwrite full slots, consumers take items that do not
    /// exist. (This is the barrier that DPDK's ring had lost on POWER.)
    HeadRead(End),
    /// A shared end claims slots. Pairs with [`Site::HeadRead`] of the same end.
    HeadClaimed(End),
    /// One end reads how far the other has got. Pairs with [`Site::TailPublished`] of the other end, which
    /// no longer touches the slots up to there.
    TailRead(End),
    /// An end publishes its tail. Pairs with [`Site::TailRead`] of the other end and [`Site::TurnAwaited`] of the same.
    TailPublished(End),
    /// A shared end has waited until all earlier claims are published. Pairs with [`Site::TailPublished`] of the same
    /// end: the operations of the earlier claims are published together with it. A fence after the loop, which itself
    /// polls relaxed.
    TurnAwaited(End),
    /// A share is dropped. Pairs with [`Site::LastShare`].
    ShareReleased,
    /// The last share is dropped: a fence, so that the freeing thread sees all operations of the others. Pairs with
    /// [`Site::ShareReleased`].
    LastShare,
    /// A thread announces its sleep, then checks its condition once more: a fence between the two. Pairs with
    /// [`Site::WakeChecked`].
    SleepAnnounced,
    /// A thread has found its condition true. Pairs with the release of the notifier: all writes before that are
    /// visible after the wait. A fence after the loop, which itself may poll relaxed.
    ConditionMet,
    /// A thread has changed something, then looks for sleepers: a fence between the two. Pairs with
    /// [`Site::SleepAnnounced`]; of the two threads at least one sees what the other did. (The litmus test of
    /// store buffering: fences that only acquire and release let both see what was before.)
    WakeChecked,
}

impl Site {
    /// All sites, in the order of their declaration.
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
