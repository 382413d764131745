//! `millrace nvme bind` and `unbind`.

use std::fmt::Write as _;
use std::io::Write;
use std::str::FromStr;

use millrace_pci::Address;
use millrace_pci::binding::{Plan, Purpose};
use serde_json::{Value, json};

use super::machine::{NVME_CLASS, VFIO_DRIVER};
use super::{BindOptions, ErrorKind, Machine, ToolError, Place, Report, Spec, SpecError, report};

/// The address of a function that is to be bound: a device's without a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindAddress(pub Address);

impl FromStr for BindAddress {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let spec: Spec = text.parse()?;
        match (spec.place, spec.namespace) {
            (Place::Vfio(address), None) => Ok(Self(address)),
            (Place::Vfio(address), Some(_)) => Err(SpecError::new(format!(
                "a device is bound with all its namespaces: {address}"
            ))),
            (Place::VfioUser(_), _) => Err(SpecError::new(
                "a process serves this device, no driver of the kernel has it",
            )),
        }
    }
}

/// What is written to `/sys`, and what came of it.
#[derive(Clone, Debug)]
struct Binding {
    plan: Plan,
    /// Whose it is to be: that of processes, or else the kernel's.
    for_processes: bool,
    /// Whether all of it was done.
    done: bool,
    /// The driver that has the function now, after anything was tried.
    driver: Option<String>,
    /// The file that a process opens to own it.
    owner_file: Option<String>,
}

/// Takes a device from the kernel; says what is written before that is done.
///
/// # Errors
/// If it is no NVMe device, is used, or the kernel refuses.
pub fn bind(
    machine: &Machine,
    options: &BindOptions,
    out: &mut dyn Write,
) -> Result<(), ToolError> {
    change(machine, options, true, out)
}

/// Gives a device back to the kernel; says what is written before that is done.
///
/// # Errors
/// If it is no NVMe device, a process has it, or the kernel refuses.
pub fn unbind(
    machine: &Machine,
    options: &BindOptions,
    out: &mut dyn Write,
) -> Result<(), ToolError> {
    change(machine, options, false, out)
}

fn change(
    machine: &Machine,
    options: &BindOptions,
    for_processes: bool,
    out: &mut dyn Write,
) -> Result<(), ToolError> {
    let BindAddress(address) = options.address;
    let verb = if for_processes { "bound" } else { "unbound" };
    let failed = |source: millrace_pci::Error| {
        let kind = source.kind();
        let context = format!("{address} could not be {verb}");
        let error = ToolError::new(ErrorKind::Machine, context).caused_by(source);
        match kind {
            millrace_pci::ErrorKind::NotFound => {
                error.advise("`millrace nvme list` lists the NVMe devices of this machine")
            }
            _ => error,
        }
    };
    let function = machine.binder().describe(address).map_err(failed)?;
    if function.class != NVME_CLASS && !options.any {
        let class = function.class;
        let context = format!("{address} is no NVMe device: its class is {class:#08x}");
        return Err(ToolError::new(ErrorKind::Refused, context).advise(
            "`millrace nvme list` lists those; --any is for what is in the way in an IOMMU group",
        ));
    }
    let planned = if for_processes {
        machine.binder().plan_bind(address)
    } else {
        machine.binder().plan_unbind(address)
    };
    let mut binding = Binding {
        plan: planned.map_err(failed)?,
        for_processes,
        done: false,
        driver: None,
        owner_file: None,
    };
    if !options.json {
        report::show_text(&binding.steps_text(), out)?;
    }
    if !options.dry_run {
        let applied = machine.binder().apply(&binding.plan);
        binding.done = applied.is_ok();
        if let Err(error) = applied.and_then(|()| binding.look(machine)) {
            if options.json {
                // Some of the steps may have been done. Who reads them is told of the failure as well.
                let _ = binding.look(machine);
                report::show_json(&binding.json(), out)?;
            }
            return Err(failed(error));
        }
    }
    if options.json {
        return report::show_json(&binding.json(), out);
    }
    report::show_text(&binding.outcome_text(), out)
}

impl Binding {
    /// Looks what has come of it.
    fn look(&mut self, machine: &Machine) -> millrace_pci::Result<()> {
        let function = machine.binder().describe(self.plan.address)?;
        let file = machine.owner_file(&function);
        self.owner_file = file.map(|(file, _)| file.display().to_string());
        self.driver = function.driver;
        Ok(())
    }

    fn steps_text(&self) -> String {
        let address = self.plan.address;
        if self.plan.steps.is_empty() {
            return match self.for_processes {
                true => format!("{address} is bound to {VFIO_DRIVER} already.\n"),
                false => format!("{address} has a driver of the kernel already.\n"),
            };
        }
        let mut text = format!("{address}:\n");
        for (index, step) in self.plan.steps.iter().enumerate() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {}. {step}", index + 1);
        }
        if !self.plan.disks.is_empty() {
            let disks = self.plan.disks.join(", ");
            let _ = writeln!(
                text,
                "Before the first step {disks} is opened for this command alone; if somebody holds it, nothing \
                 is written."
            );
        }
        text
    }

    fn outcome_text(&self) -> String {
        let address = self.plan.address;
        if !self.done {
            return "Nothing was done (--dry-run).\n".to_owned();
        }
        let mut text = match &self.driver {
            Some(driver) => format!("{address} is driven by {driver} now.\n"),
            None => format!("{address} has no driver now.\n"),
        };
        if let (true, Some(file)) = (self.for_processes, &self.owner_file) {
            let _ = writeln!(
                text,
                "`chown USER {file}` lets a user open it who is not root."
            );
        }
        if !self.for_processes && self.driver.is_none() {
            text.push_str("`modprobe nvme` loads the kernel's own.\n");
        }
        text
    }
}

impl Report for Binding {
    fn text(&self) -> String {
        self.steps_text() + &self.outcome_text()
    }

    fn json(&self) -> Value {
        let steps = self.plan.steps.iter().map(|step| {
            let purpose = match step.purpose {
                Purpose::Reserve => "reserve",
                Purpose::Release => "release",
                Purpose::Unbind => "unbind",
                Purpose::Bind => "bind",
                Purpose::Probe => "probe",
            };
            json!({
                "purpose": purpose,
                "path": step.path.display().to_string(),
                "value": step.value,
            })
        });
        json!({
            "address": self.plan.address.to_string(),
            "steps": steps.collect::<Vec<Value>>(),
            "disks": self.plan.disks,
            "done": self.done,
            "driver": self.driver,
            "owner_file": self.owner_file,
        })
    }
}
