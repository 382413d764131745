//! The steps that keep streams whole.
//!
//! Each has a name, so that a test can leave one out and show that some run then fails. Only builds for tests with
//! the feature `mutation` can.

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// The word behind a slot is cleared before the slot is published.
    ZeroAhead,
    /// The word of the first slot of a batch is stored after all else of it.
    PublishedLast,
    /// The reader says how far it has read.
    GivenBack,
    /// The writer waits until lines were given back.
    RoomAwaited,
    /// The sender of a connection sends no more than it was granted.
    CreditAwaited,
    /// The receiver of a connection grants more when it has room again.
    CreditGiven,
    /// The receiver takes no more than it has granted.
    CreditChecked,
    /// The receiver counts the bytes before it believes in their end.
    TotalChecked,
    /// A side sends nothing to a peer that has not answered to its incarnation.
    Greeted,
    /// A side looks whether the peer is still the incarnation that it greeted.
    IncarnationChecked,
}

impl Step {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::ZeroAhead,
        Self::PublishedLast,
        Self::GivenBack,
        Self::RoomAwaited,
        Self::CreditAwaited,
        Self::CreditGiven,
        Self::CreditChecked,
        Self::TotalChecked,
        Self::Greeted,
        Self::IncarnationChecked,
    ];

    #[cfg(all(feature = "mutation", debug_assertions))]
    pub(crate) fn is_kept(self) -> bool {
        mutation::left_out() != Some(self)
    }

    #[cfg(not(all(feature = "mutation", debug_assertions)))]
    #[inline]
    #[expect(clippy::unused_self, reason = "the other build looks at it")]
    pub(crate) const fn is_kept(self) -> bool {
        true
    }
}

/// For tests: one step left out.
#[cfg(all(feature = "mutation", debug_assertions))]
pub mod mutation {
    use std::cell::Cell;

    use super::Step;

    thread_local! {
        static LEFT_OUT: Cell<Option<Step>> = const { Cell::new(None) };
    }

    /// Leaves a step out, or none, in all that this thread does from now on.
    pub fn leave_out(step: Option<Step>) {
        LEFT_OUT.set(step);
    }

    pub(super) fn left_out() -> Option<Step> {
        LEFT_OUT.get()
    }
}
