//! `millrace nvme list`.

use millrace_pci::binding::Listed;
use serde_json::{Value, json};

use super::Machine;
use super::machine::{NVME_CLASS, VFIO_DRIVER, others};
use crate::ToolError;
use crate::terminal::Report;
use crate::terminal::{Side, Table};

/// Whether a device can be opened by this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Use {
    /// It can.
    Ready,
    /// It cannot.
    Blocked {
        /// Why.
        reason: String,
        /// What to do.
        advice: String,
    },
}

/// NVMe function of this machine, with its driver and its usability.
#[derive(Clone, Debug)]
pub struct Listing {
    /// Attributes of the function, as the kernel lists them.
    pub function: Listed,
    /// Name of the kernel's NVMe driver for the device; `None` while another driver has it.
    pub kernel_name: Option<String>,
    /// Model of the device; `None` while the kernel's NVMe driver does not have it.
    pub model: Option<String>,
    /// Whether this process can open the device; if not, why.
    pub usable: Use,
}

/// Report of all NVMe functions of a machine.
#[derive(Clone, Debug)]
pub struct ListReport {
    /// The functions in ascending order of their addresses.
    pub devices: Vec<Listing>,
}

impl ListReport {
    /// Looks at a machine. Nothing is opened or changed.
    ///
    /// # Errors
    /// If the kernel does not say what there is.
    pub fn new(machine: &Machine) -> Result<Self, ToolError> {
        let all = machine.functions()?;
        let devices = all
            .iter()
            .filter(|function| function.class == NVME_CLASS)
            .map(|function| {
                let (kernel_name, model) = machine.kernel_names(function.address);
                Listing {
                    usable: usability(machine, function, &all),
                    function: function.clone(),
                    kernel_name,
                    model,
                }
            })
            .collect();
        Ok(Self { devices })
    }
}

fn usability(machine: &Machine, function: &Listed, all: &[Listed]) -> Use {
    let address = function.address;
    let blocked = |reason: String, advice: String| Use::Blocked { reason, advice };
    if function.group.is_none() {
        let advice = "switch the IOMMU on in the firmware, and boot with intel_iommu=on (Intel)";
        return blocked("there is no IOMMU for it".to_owned(), advice.to_owned());
    }
    if function.driver.as_deref() != Some(VFIO_DRIVER) {
        return match machine.binder().plan_bind(address) {
            Ok(_) => {
                let reason = match &function.driver {
                    Some(driver) => format!("the kernel's driver {driver} has it"),
                    None => "no driver has it".to_owned(),
                };
                blocked(reason, format!("`millrace nvme bind {address}`"))
            }
            Err(error) if error.kind() == millrace_pci::ErrorKind::InUse => blocked(
                error.to_string(),
                "unmount or release it, if its data is not needed here".to_owned(),
            ),
            Err(error) => blocked(
                error.to_string(),
                format!("then `millrace nvme bind {address}`"),
            ),
        };
    }
    if machine.binder().is_without_iommu(function) {
        let advice = "switch the IOMMU on in the firmware; this driver needs it";
        let reason = "its group has no IOMMU (the kernel's no-IOMMU mode)";
        return blocked(reason.to_owned(), advice.to_owned());
    }
    let others = others(function, all);
    if !others.is_empty() {
        let binds: Vec<String> = others
            .iter()
            .map(|other| format!("`millrace nvme bind {other} --any`"))
            .collect();
        let reason = "drivers of the kernel have others of its IOMMU group".to_owned();
        return blocked(reason, binds.join(", "));
    }
    if let Err(error) = machine.binder().plan_unbind(address) {
        if error.kind() == millrace_pci::ErrorKind::InUse {
            return blocked(error.to_string(), "end that process".to_owned());
        }
    }
    match machine.owner_file(function) {
        Some((_, true)) => Use::Ready,
        Some((file, false)) => blocked(
            format!("{} is not ours to open", file.display()),
            format!("as root: `chown USER {}`", file.display()),
        ),
        None => blocked(
            "the kernel offers no file for it".to_owned(),
            "as root: `modprobe vfio-pci`".to_owned(),
        ),
    }
}

impl Report for ListReport {
    fn text(&self) -> String {
        if self.devices.is_empty() {
            return "This machine has no NVMe device.\n".to_owned();
        }
        let mut table = Table::new(&[
            ("ADDRESS", Side::Left),
            ("MODEL", Side::Left),
            ("DRIVER", Side::Left),
            ("GROUP", Side::Right),
            ("NODE", Side::Right),
            ("CAN BE OPENED", Side::Left),
        ]);
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        for device in &self.devices {
            let function = &device.function;
            let ids = format!("[{:04x}:{:04x}]", function.vendor, function.device);
            let driver = match (&function.driver, &device.kernel_name) {
                (Some(driver), Some(name)) => Some(format!("{driver} ({name})")),
                (driver, _) => driver.clone(),
            };
            table.row(vec![
                function.address.to_string(),
                device.model.clone().unwrap_or(ids),
                or_dash(driver),
                or_dash(function.group.clone()),
                or_dash(function.node.map(|node| node.to_string())),
                match &device.usable {
                    Use::Ready => "yes".to_owned(),
                    Use::Blocked { reason, advice } => format!("no: {reason}; {advice}"),
                },
            ]);
        }
        table.text()
    }

    fn json(&self) -> Value {
        let devices = self.devices.iter().map(|device| {
            let function = &device.function;
            let (reason, advice) = match &device.usable {
                Use::Ready => (None, None),
                Use::Blocked { reason, advice } => (Some(reason), Some(advice)),
            };
            json!({
                "address": function.address.to_string(),
                "vendor": format!("{:#06x}", function.vendor),
                "device": format!("{:#06x}", function.device),
                "model": device.model,
                "kernel_name": device.kernel_name,
                "driver": function.driver,
                "iommu_group": function.group,
                "numa_node": function.node,
                "can_open": device.usable == Use::Ready,
                "reason": reason,
                "advice": advice,
            })
        });
        Value::Array(devices.collect())
    }
}
