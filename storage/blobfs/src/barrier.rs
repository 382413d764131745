//! Barriers: the points at which earlier writes must be on the medium.
//!
//! Each has a name, so that a test can leave it out and show that some power cut then loses data. Only builds with the
//! feature `mutation` can leave one out.

use crate::Result;
use crate::io_context::IoContext;

/// Point at which earlier writes must be on the medium before the volume goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Barrier {
    /// File data in its final location, before the transaction that names it is written.
    DataBeforeTransaction,
    /// A transaction, before its callers return and before the next transaction is written.
    Transaction,
    /// A checkpoint, and the journaled data of the transactions that it replaces, before a superblock names the
    /// checkpoint.
    Checkpoint,
    /// The first superblock, before the second is written, and before anything that the old one names is
    /// overwritten.
    FirstSuperblock,
    /// The second superblock, before anything that the old one names is overwritten: if the first one is unreadable,
    /// the second is the only one.
    SecondSuperblock,
}

impl Barrier {
    /// All barriers, in the order of their declaration.
    pub const ALL: [Self; 5] = [
        Self::DataBeforeTransaction,
        Self::Transaction,
        Self::Checkpoint,
        Self::FirstSuperblock,
        Self::SecondSuperblock,
    ];

    /// Flushes the volatile cache: all completed writes are on the medium afterwards.
    pub(crate) fn flush(self, io: &mut IoContext, is_cache_volatile: bool) -> Result<()> {
        if !is_cache_volatile || self.is_left_out() {
            return Ok(());
        }
        io.flush()
    }

    /// Writes blocks that are on the medium when this returns; so are all earlier writes, unless the device supports
    /// write-through of single writes.
    pub(crate) fn write(
        self,
        io: &mut IoContext,
        kind: Durable,
        lba: u64,
        bytes: &[u8],
    ) -> Result<()> {
        if self.is_left_out() {
            return io.write(lba, bytes, false);
        }
        match kind {
            Durable::AsWritten => io.write(lba, bytes, false),
            Durable::WriteThrough => io.write(lba, bytes, true),
            Durable::Flush => {
                io.write(lba, bytes, false)?;
                io.flush()
            }
        }
    }

    #[cfg(feature = "mutation")]
    fn is_left_out(self) -> bool {
        mutation::left_out() == Some(self)
    }

    #[cfg(not(feature = "mutation"))]
    #[expect(clippy::unused_self, reason = "the other build looks at it")]
    const fn is_left_out(self) -> bool {
        false
    }
}

/// Way in which a write reaches the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durable {
    /// The device has no volatile cache.
    AsWritten,
    /// By a write-through request (FUA).
    WriteThrough,
    /// By a flush after it.
    Flush,
}

/// Test switch that leaves one barrier out.
#[cfg(feature = "mutation")]
pub mod mutation {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::Barrier;

    /// Index into [`Barrier::ALL`] of the barrier left out; `usize::MAX` for none.
    static LEFT_OUT: AtomicUsize = AtomicUsize::new(usize::MAX);

    /// Leaves `barrier` out in all volumes of the process from now on; `None` restores all.
    pub fn leave_out(barrier: Option<Barrier>) {
        let index = Barrier::ALL
            .iter()
            .position(|&other| Some(other) == barrier);
        LEFT_OUT.store(index.unwrap_or(usize::MAX), Ordering::SeqCst);
    }

    pub(super) fn left_out() -> Option<Barrier> {
        Barrier::ALL.get(LEFT_OUT.load(Ordering::SeqCst)).copied()
    }
}
