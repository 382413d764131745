//! What a running plan did.

/// What one scan did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RunStatistics {
    pub(super) works: u64,
    pub(super) keys_examined: u64,
    /// Of them, those within the bounds.
    pub(super) keys_matched: u64,
    pub(super) documents_examined: u64,
    pub(super) seeks: u64,
    pub(super) duplicates_dropped: u64,
    pub(super) emitted: u64,
    pub(super) ended: bool,
}

impl RunStatistics {
    /// Takes back the last document: another scan had found it before.
    pub(super) fn take_back(&mut self) {
        self.emitted = self.emitted.saturating_sub(1);
        self.duplicates_dropped += 1;
    }
}

/// What a plan did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExecutionStats {
    /// Index keys looked at.
    pub keys_examined: u64,
    /// Documents looked at.
    pub documents_examined: u64,
    /// Documents returned.
    pub returned: u64,
    /// Units of work done.
    pub works: u64,
    /// Documents sorted in memory or on disk.
    pub sorted: u64,
    /// Whether the plan came to its end.
    pub ended: bool,
}
