//! What a match leaves behind for the positional operator.

/// How a document matched, recorded by [`Matcher::matches_recording`](super::Matcher::matches_recording).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatchDetails {
    /// The index of the element that matched, in the outermost array that was entered implicitly.
    /// The positional `$` of updates and projections stands for it. `None` when no array was
    /// entered, or only below `$or`, `$nor` or `$not`, which record nothing.
    pub array_index: Option<usize>,
}
