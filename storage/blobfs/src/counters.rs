//! What a volume has done since it was mounted.

use std::sync::atomic::{AtomicU64, Ordering};

/// One count.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// What a volume has done since it was mounted.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl Counters {
            /// All with their names.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name),)+].into_iter()
            }
        }

        #[derive(Debug, Default)]
        pub(crate) struct Counting {
            $(pub(crate) $name: Count,)+
        }

        impl Counting {
            pub(crate) fn read(&self) -> Counters {
                Counters { $($name: self.$name.get(),)+ }
            }
        }
    };
}

counters! {
    /// Reads of files that went to the device.
    reads,
    /// Bytes that these asked for.
    read_bytes,
    /// Appends and other writes to files.
    writes,
    /// Bytes of files written to their place, in whole blocks.
    write_bytes,
    /// Syncs of files and directories.
    syncs,
    /// Transactions written to the journal.
    transactions,
    /// Bytes of them, in whole blocks.
    journal_bytes,
    /// Times that the device was told to put on its medium what was written; a write-through counts as one.
    flushes,
    /// Checkpoints.
    checkpoints,
    /// Bytes of these.
    checkpoint_bytes,
    /// Units deallocated.
    discarded_units,
}
