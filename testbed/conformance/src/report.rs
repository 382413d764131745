//! What a run has done.

use std::fmt;

/// How much of everything was done and found right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Write requests that completed without an error.
    pub writes: u64,
    /// Reads whose every block was verified.
    pub reads: u64,
    /// Bytes of the workload's queued reads and writes; other requests are not included.
    pub bytes: u64,
    /// Flush requests that completed without an error.
    pub flushes: u64,
    /// Write Zeroes and deallocations that completed.
    pub erasures: u64,
    /// Compares, of equal and of differing blocks.
    pub compares: u64,
    /// Resets of the controller and of the function, most of them under load.
    pub resets: u64,
    /// Interrupts that were waited for before anybody looked for the completion.
    pub interrupts: u64,
    /// Asynchronous events of stray doorbells, provoked and received.
    pub events: u64,
    /// Active namespaces, all of which were tested.
    pub namespaces: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} namespaces, {} writes, {} verified reads, {} MiB, {} flushes, {} erasures, {} compares, {} resets, \
             {} interrupts, {} events",
            self.namespaces,
            self.writes,
            self.reads,
            self.bytes >> 20,
            self.flushes,
            self.erasures,
            self.compares,
            self.resets,
            self.interrupts,
            self.events,
        )
    }
}
