//! A device that a command has opened.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use millrace_nvme::spec::identify::ControllerData;
use millrace_nvme::{Controller, Namespace, Options, SystemHost};
use millrace_pci::{Function, vfio, vfio_user};

use super::error::device_error;
use super::{Machine, Place, Spec};
use crate::{ErrorKind, ToolError};

/// Where the first doorbells are in the registers (NVM Express PCIe transport, 3.1.2.1).
const DOORBELLS: Range<u64> = 0x1000..0x1008;

/// A controller and what it is called in messages. It is shut down when the last share is dropped.
#[derive(Clone, Debug)]
pub struct Device {
    name: String,
    controller: Arc<Controller>,
    doorbells_mapped: bool,
}

impl Device {
    /// Opens what is named, for admin commands alone: the driver waits for these by polling, and takes no
    /// interrupts from the host.
    ///
    /// # Errors
    /// Why that cannot be, and what to do.
    pub fn open(spec: &Spec) -> Result<Self, ToolError> {
        let options = Options {
            interrupts: false,
            ..Options::default()
        };
        Self::open_with(spec, options, None)
    }

    /// Opens what is named, to be driven as the options say. `removal` is an eventfd that is signalled when the
    /// kernel wants the device back.
    ///
    /// # Errors
    /// As [`Device::open`].
    pub fn open_with(
        spec: &Spec,
        options: Options,
        removal: Option<OwnedFd>,
    ) -> Result<Self, ToolError> {
        let place = &spec.place;
        let opened = match place {
            Place::Vfio(address) => {
                let options = vfio::Options {
                    removal,
                    ..vfio::Options::default()
                };
                vfio::open(*address, options)
            }
            Place::VfioUser(path) => vfio_user::connect(path),
        };
        let function = opened.map_err(|source| explain(place, &Machine::here(), source))?;
        Self::new(place.to_string(), function, options)
    }

    /// Takes over the controller that `function` is.
    ///
    /// # Errors
    /// If it is none, or does not get ready.
    pub fn new(
        name: String,
        function: Arc<dyn Function>,
        options: Options,
    ) -> Result<Self, ToolError> {
        let host = Arc::new(SystemHost::new(Instant::now()));
        // A function that has none is no controller, and found to be none below.
        let doorbells_mapped = function
            .bar(0)
            .is_ok_and(|bar| bar.mapped_bytes(&DOORBELLS).is_some());
        let controller = Controller::open(function, host, options).map_err(|source| {
            let context = format!("{name} could not be opened");
            ToolError::new(ErrorKind::Open, context).caused_by(source)
        })?;
        Ok(Self {
            name,
            controller,
            doorbells_mapped,
        })
    }

    /// Name of the device in messages: PCI address, or `vfio-user:` and the socket's path.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Shared handle of the open controller.
    #[must_use]
    pub const fn controller(&self) -> &Arc<Controller> {
        &self.controller
    }

    /// Whether the doorbells are mapped into this process; if not, each doorbell write is a call.
    #[must_use]
    pub const fn doorbells_mapped(&self) -> bool {
        self.doorbells_mapped
    }

    /// Identify Controller data, as read when the device was opened.
    #[must_use]
    pub fn data(&self) -> &ControllerData {
        self.controller.data()
    }

    /// Display title: name, model and serial number of the device.
    #[must_use]
    pub fn title(&self) -> String {
        title(&self.name, self.data())
    }

    pub(super) fn namespace_ids(&self) -> Result<Vec<u32>, ToolError> {
        let ids = self.controller.namespaces();
        ids.map_err(device_error(&self.name, "listing its namespaces"))
    }

    /// The namespace that is asked for, or the first.
    pub(super) fn namespace(&self, id: Option<u32>) -> Result<Namespace, ToolError> {
        let id = match id {
            Some(id) => id,
            None => *self.namespace_ids()?.first().ok_or_else(|| {
                let context = format!("{} has no active namespace", self.title());
                ToolError::new(ErrorKind::Device, context)
            })?,
        };
        let namespace = self.controller.namespace(id);
        namespace.map_err(device_error(&self.name, "identifying the namespace"))
    }
}

/// A device's name, model and serial number.
pub(super) fn title(name: &str, data: &ControllerData) -> String {
    format!("{name} ({}, serial number {})", data.model, data.serial)
}

/// The error of a function that could not be opened, with what is special about where it is.
fn explain(place: &Place, machine: &Machine, source: millrace_pci::Error) -> ToolError {
    let kind = source.kind();
    let context = format!("{place} could not be opened");
    let mut error = ToolError::new(ErrorKind::Open, context).caused_by(source);
    match (kind, place) {
        (millrace_pci::ErrorKind::NotFound, Place::Vfio(_)) => {
            error = error.advise("`millrace nvme list` lists the NVMe devices of this machine");
        }
        (millrace_pci::ErrorKind::NotFound, Place::VfioUser(_)) => {
            error = error.advise("start the process that serves the device, or mend the path");
        }
        (millrace_pci::ErrorKind::GroupNotViable, Place::Vfio(address)) => {
            for other in machine.others_in_group(*address).unwrap_or_default() {
                error = error.advise(format!("`millrace nvme bind {other} --any`"));
            }
        }
        _ => {}
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_opening_say_what_to_do() {
        use millrace_pci::ErrorKind as Kind;
        let vfio: Spec = "01:00.0".parse().expect("a device");
        let socket: Spec = "vfio-user:/run/x.sock".parse().expect("a device");
        let rows = [
            (&vfio, Kind::NotFound, "`millrace nvme list`"),
            (&socket, Kind::NotFound, "start the process"),
            (&vfio, Kind::NoIommu, "intel_iommu=on"),
            (&vfio, Kind::NoInterruptRemapping, "intremap=on"),
            (&vfio, Kind::InUse, "`millrace nvme list`"),
            (&vfio, Kind::Permission, "as root"),
            (&socket, Kind::Gone, "start it again"),
        ];
        let machine = Machine::here();
        for (spec, kind, expected) in rows {
            let source = millrace_pci::Error::new(kind, "what was attempted");
            let error = explain(&spec.place, &machine, source);
            let advice = error.advice().join("; ");
            assert!(advice.contains(expected), "{kind:?}: {advice}");
            assert_eq!(error.to_string(), format!("{spec} could not be opened"));
        }
    }
}
