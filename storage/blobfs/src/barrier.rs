//! The places at which what was written is put on the medium.
//!
//! Each has a name, so that a test can leave one out and show that some power cut then loses something. Only
//! builds with the feature `mutation` can.

use crate::Result;
use crate::lanes::Lane;

/// A place where the device is told to put something on its medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Barrier {
    /// A transaction says that data of files is at home: the data.
    DataBeforeTransaction,
    /// A transaction, before its callers hear of it, and before the next one is written.
    Transaction,
    /// A checkpoint, and the data that the transactions it makes superfluous carried, before a superblock names
    /// the checkpoint.
    Checkpoint,
    /// The first superblock, before the second is written, and before anything that the old one names is
    /// overwritten.
    FirstSuperblock,
    /// The second superblock, before anything that the old one names is overwritten: should the first one be
    /// unreadable, it is the only one.
    SecondSuperblock,
}

impl Barrier {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::DataBeforeTransaction,
        Self::Transaction,
        Self::Checkpoint,
        Self::FirstSuperblock,
        Self::SecondSuperblock,
    ];

    /// Puts everything written so far on the medium.
    pub(crate) fn flush(self, lane: &mut Lane, is_cache_volatile: bool) -> Result<()> {
        if !is_cache_volatile || self.is_left_out() {
            return Ok(());
        }
        lane.flush()
    }

    /// Writes blocks; they are on the medium when this returns, and so is everything written before unless the
    /// device can do one write alone.
    pub(crate) fn write(
        self,
        lane: &mut Lane,
        kind: Durable,
        lba: u64,
        bytes: &[u8],
    ) -> Result<()> {
        if self.is_left_out() {
            return lane.write(lba, bytes, false);
        }
        match kind {
            Durable::AsWritten => lane.write(lba, bytes, false),
            Durable::WriteThrough => lane.write(lba, bytes, true),
            Durable::Flush => {
                lane.write(lba, bytes, false)?;
                lane.flush()
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

/// How a write gets to the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durable {
    /// The device has no volatile cache.
    AsWritten,
    /// By itself.
    WriteThrough,
    /// By a flush after it.
    Flush,
}

/// For tests: one barrier left out.
#[cfg(feature = "mutation")]
pub mod mutation {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::Barrier;

    /// Its place in [`Barrier::ALL`].
    static LEFT_OUT: AtomicUsize = AtomicUsize::new(usize::MAX);

    /// Leaves a barrier out, or none, in all volumes of the process from now on.
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
