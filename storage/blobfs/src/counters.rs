//! Event counters of a mounted volume.

use std::sync::atomic::{AtomicU64, Ordering};

/// A monotonic event counter.
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
        /// Events of a volume since it was mounted.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl Counters {
            /// All counters with their names, in the order of their declaration.
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
    /// Read requests for file data that were sent to the device.
    reads,
    /// Bytes of file data that these reads asked for.
    read_bytes,
    /// Calls of `append` and `write_at`.
    writes,
    /// Bytes of file data written to their final location, in whole blocks.
    write_bytes,
    /// Calls of `sync`, of files and of volumes.
    syncs,
    /// Transactions written to the journal.
    transactions,
    /// Bytes of transactions written to the journal, in whole blocks.
    journal_bytes,
    /// Flushes and write-through requests sent to the device.
    flushes,
    /// Checkpoints completed since the mount.
    checkpoints,
    /// Bytes of checkpoint images written, both copies.
    checkpoint_bytes,
    /// Units deallocated on the device (TRIM).
    discarded_units,
}
