//! What an NVMe driver must do on a controller, whatever the machine: run in guests against an emulated
//! controller behind an IOMMU, and against our own model.
//!
//! Every block that is written holds words that follow from the run's seed, the namespace, the block's number
//! and the version that is written, so that a read tells a wrong place from an old content from a torn one.
//!
//! # What success hides
//! A driver mends much by itself: what is late is asked about and sent again, what a reset took away too. On a
//! controller that is well it has nothing to mend, so every phase ends by asking it ([`millrace_nvme::Recovery`]):
//! after a reset that was asked for it may have sent again what was in flight, and otherwise nothing.
//!
//! A driver that does not see what a controller offers passes by testing less. A caller with knowledge of the
//! machine names what must be there ([`Expected`]).
//!
//! **All data of the controller is lost.**

#![forbid(unsafe_code)]

mod expected;
mod failure;
mod phases;
mod report;
mod stray;
mod words;
mod workload;

use std::sync::Arc;

use millrace_nvme::Host;
use millrace_pci::Function;

pub use expected::{Expected, Facts};
pub use failure::{Failure, Result};
pub use report::Report;
pub use stray::provoke_stray_read;

/// Extent of a run, and the properties that the machine must have.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Seed of the block contents and of all random choices.
    pub seed: u64,
    /// Writes and reads of the main phase, over all namespaces.
    pub operations: u32,
    /// Whether the function's interrupts are to be tested; then it must have some.
    pub interrupts: bool,
    /// Properties that the machine must have; the run fails at the first difference.
    pub expected: Expected,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 1,
            operations: 10_000,
            interrupts: true,
            expected: Expected::default(),
        }
    }
}

/// Runs everything on the controller that `function` is; each step is told to `say`.
///
/// # Errors
/// The first thing that was not as it must be.
pub fn run(
    function: &Arc<dyn Function>,
    host: &Arc<dyn Host>,
    settings: &Settings,
    say: &mut dyn FnMut(&str),
) -> Result<Report> {
    phases::run(function, host, settings, say)
}
