//! What an NVMe driver must do on a controller, whatever the machine: run in guests against an emulated
//! controller behind an IOMMU, and against our own model.
//!
//! Every block that is written holds words that follow from the run's seed, the namespace, the block's number
//! and how often it was written, so that a read tells a wrong place from an old content from a torn one.
//!
//! **All data of the controller is lost.**

#![forbid(unsafe_code)]

mod failure;
mod phases;
mod random;
mod report;
mod workload;

use std::sync::Arc;

use millrace_nvme::Host;
use millrace_pci::Function;

pub use failure::{Failure, Result};
pub use report::Report;

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Everything random follows from it.
    pub seed: u64,
    /// Writes and reads of the main phase, over all namespaces.
    pub operations: u32,
    /// Whether the function's interrupts are to be tested.
    pub interrupts: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 1,
            operations: 10_000,
            interrupts: true,
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
    settings: Settings,
    say: &mut dyn FnMut(&str),
) -> Result<Report> {
    phases::run(function, host, settings, say)
}
