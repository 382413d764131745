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

/// The work that a plan has done so far, as `explain` and the profiler report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExecutionStats {
    /// The number of index keys examined (`totalKeysExamined`).
    pub keys_examined: u64,
    /// The number of documents examined (`totalDocsExamined`).
    pub documents_examined: u64,
    /// The number of documents returned (`nReturned`).
    pub returned: u64,
    /// The number of units of work done (`works`): keys and documents stepped over.
    pub works: u64,
    /// The number of documents sorted, in memory or on disk.
    pub sorted: u64,
    /// Whether every scan of the plan came to its end.
    pub ended: bool,
}
