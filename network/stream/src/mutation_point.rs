//! The protocol steps that a mutation test can disable.
//!
//! A test disables one step and shows that some run then fails. Only test builds with the feature `mutation` can do so.

/// A protocol step that a test can disable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MutationPoint {
    /// The word behind a slot is cleared before the slot is published.
    ZeroAhead,
    /// The word of the first slot of a batch is stored after all else of it.
    PublishedLast,
    /// The reader returns credit for the lines that it has read.
    GivenBack,
    /// The writer waits for returned lines.
    RoomAwaited,
    /// The sender of a connection sends at most the granted bytes.
    CreditAwaited,
    /// The receiver of a connection grants more when it has room again.
    CreditGiven,
    /// The receiver accepts at most the granted bytes.
    CreditChecked,
    /// The receiver compares the byte count with that of the end.
    TotalChecked,
    /// A side sends nothing before the peer has acknowledged its incarnation.
    Greeted,
    /// A side checks that the peer still has the acknowledged incarnation.
    IncarnationChecked,
}

impl MutationPoint {
    /// All mutation points, in the order of their declaration.
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
    pub(crate) fn is_enabled(self) -> bool {
        mutation::disabled() != Some(self)
    }

    #[cfg(not(all(feature = "mutation", debug_assertions)))]
    #[inline]
    #[expect(clippy::unused_self, reason = "the other build looks at it")]
    pub(crate) const fn is_enabled(self) -> bool {
        true
    }
}

/// The switch that disables one step, for tests.
#[cfg(all(feature = "mutation", debug_assertions))]
pub mod mutation {
    use std::cell::Cell;

    use super::MutationPoint;

    thread_local! {
        static DISABLED: Cell<Option<MutationPoint>> = const { Cell::new(None) };
    }

    /// Disables one step, or none, for this thread from now on.
    pub fn disable(step: Option<MutationPoint>) {
        DISABLED.set(step);
    }

    pub(super) fn disabled() -> Option<MutationPoint> {
        DISABLED.get()
    }
}
