//! One test for each mistake that was found in the driver and mended: what was wrong stands above it.

mod controllers;
mod hooked_host;
mod queue_pairs;
mod shared_queues;
mod stalled;
mod starts;
mod vectors;

use millrace_nvme_model as model;
use model::{Fault, FaultRule, Faults, Target, When};

/// A fault of I/O commands.
fn fault(when: When, fault: Fault) -> Faults {
    Faults {
        rules: vec![FaultRule {
            target: Target::Io,
            when,
            fault,
        }],
        ..Faults::default()
    }
}

/// A controller with few blocks of 512 bytes.
fn small() -> model::Options {
    model::Options {
        namespaces: vec![model::NamespaceOptions {
            block_size: 512,
            blocks: 4096,
            ..model::NamespaceOptions::default()
        }],
        ..model::Options::default()
    }
}
