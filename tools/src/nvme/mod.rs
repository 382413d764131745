//! `millrace nvme`: looks at NVMe devices, binds, measures and formats them.
//!
//! ```text
//!   options -> spec -> device ---> identify, smart, format, bench -> report -> text or JSON
//!           -> machine (sysfs) --> list, bind, unbind ------------->
//! ```
//! A device is driven by this process (`millrace_nvme`), not by the kernel: it must be bound to vfio-pci, or
//! be served by another process over vfio-user. Each command opens it, does its work, and shuts it down.
//! Threads and the clock are here; the driver has none of its own.
//!
//! A command that did what it was asked ends with 0, also if the device's health is bad; one that failed or
//! refused with 1; arguments that make no sense with 2.

mod bench;
mod bind;
mod device;
mod error;
mod format;
mod identify;
mod list;
mod machine;
mod options;
mod smart;
mod spec;

use crate::ToolError;
use crate::terminal;
use std::io::Write;

pub use bench::{Bench, BenchReport, Progress, Workload};
pub use bind::{BindAddress, bind, unbind};
pub use device::Device;
pub use format::format;
pub use identify::{IdentifyReport, NamespaceReport};
pub use list::{ListReport, Listing, Use};
pub use machine::Machine;
pub use options::{
    BenchOptions, BindOptions, BlockSize, Command, EraseChoice, FormatOptions, IdentifyOptions,
    ListOptions, NvmeOptions, Pattern, SmartOptions, WaitingChoice,
};
pub use smart::SmartReport;
pub use spec::{Place, Spec, SpecError};

/// Runs a command; what it has to say goes to `out`.
///
/// # Errors
/// Why it failed or refused, and what can be done about it.
pub fn run(options: NvmeOptions, out: &mut dyn Write) -> Result<(), ToolError> {
    let result = match options.command {
        Command::List(options) => {
            let report = ListReport::new(&Machine::here())?;
            terminal::show(&report, options.json, out)
        }
        Command::Bind(options) => bind(&Machine::here(), &options, out),
        Command::Unbind(options) => unbind(&Machine::here(), &options, out),
        Command::Identify(options) => {
            let namespace = options.spec.namespace_or(options.namespace)?;
            let device = Device::open(&options.spec)?;
            let report = IdentifyReport::new(&device, namespace)?;
            terminal::show(&report, options.json, out)
        }
        Command::Smart(options) => {
            let device = Device::open(&options.spec)?;
            let report = SmartReport::new(&device, options.errors)?;
            terminal::show(&report, options.json, out)
        }
        Command::Format(options) => format::run(&options, out),
        Command::Bench(options) => bench::run(&options, out),
    };
    match result {
        // The reader closed the pipe: it has read enough.
        Err(error) if error.is_broken_pipe() => Ok(()),
        result => result,
    }
}
