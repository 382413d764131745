//! The PCI functions of this machine, as the kernel lists them.

use std::fs;
use std::path::{Path, PathBuf};

use millrace_pci::Address;
use millrace_pci::binding::{Binder, Listed};
use rustix::fs::{Access, access};

use crate::{ErrorKind, ToolError};

/// Class, subclass and programming interface of NVMe controllers for I/O (NVM Express PCIe transport, 3.1.1).
pub(super) const NVME_CLASS: u32 = 0x01_08_02;
/// The kernel's driver that hands functions to processes.
pub(super) const VFIO_DRIVER: &str = "vfio-pci";

/// A machine: the real one, or a folder that has `sys`, `proc` and `dev` like it.
#[derive(Clone, Debug)]
pub struct Machine {
    root: PathBuf,
    binder: Binder,
}

impl Machine {
    /// The one that runs this process.
    #[must_use]
    pub fn here() -> Self {
        Self::at(Path::new("/"))
    }

    /// The machine whose `sys`, `proc` and `dev` are folders of `root`; `/` is this machine.
    #[must_use]
    pub fn at(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            binder: Binder::at(root),
        }
    }

    /// The same machine with another binder of its functions.
    #[must_use]
    pub fn with_binder(mut self, binder: Binder) -> Self {
        self.binder = binder;
        self
    }

    pub(super) const fn binder(&self) -> &Binder {
        &self.binder
    }

    /// All functions.
    pub(super) fn functions(&self) -> Result<Vec<Listed>, ToolError> {
        self.binder.list(None).map_err(|source| {
            let context = "the PCI functions of this machine could not be listed";
            ToolError::new(ErrorKind::Machine, context).caused_by(source)
        })
    }

    /// Functions of the same IOMMU group whose drivers keep VFIO from it.
    pub(super) fn others_in_group(&self, address: Address) -> Result<Vec<Address>, ToolError> {
        let all = self.functions()?;
        let own = all.iter().find(|function| function.address == address);
        Ok(own.map_or_else(Vec::new, |own| others(own, &all)))
    }

    /// What the kernel's own driver calls the controller, and its model.
    pub(super) fn kernel_names(&self, address: Address) -> (Option<String>, Option<String>) {
        let folder = self
            .root
            .join(format!("sys/bus/pci/devices/{address}/nvme"));
        let first = fs::read_dir(folder).ok().and_then(|entries| {
            let names = entries.filter_map(|entry| Some(entry.ok()?.path()));
            names.min()
        });
        let Some(controller) = first else {
            return (None, None);
        };
        let name = controller.file_name();
        let model = fs::read_to_string(controller.join("model")).ok();
        (
            name.map(|name| name.to_string_lossy().into_owned()),
            model.map(|model| model.trim().to_owned()),
        )
    }

    /// Device file of the IOMMU group, and whether this user may open it.
    pub(super) fn owner_file(&self, function: &Listed) -> Option<(PathBuf, bool)> {
        let group = function.group.as_ref()?;
        let mut file = self.root.join("dev/vfio").join(group);
        if !file.exists() {
            let address = function.address;
            let folder = self
                .root
                .join(format!("sys/bus/pci/devices/{address}/vfio-dev"));
            let entry = fs::read_dir(folder).ok()?.find_map(Result::ok)?;
            file = self.root.join("dev/vfio/devices").join(entry.file_name());
        }
        let may = access(&file, Access::READ_OK | Access::WRITE_OK).is_ok();
        Some((file, may))
    }
}

/// Functions of the same IOMMU group whose drivers keep VFIO from it.
pub(super) fn others(own: &Listed, all: &[Listed]) -> Vec<Address> {
    let in_the_way = |other: &&Listed| {
        let driver = other.driver.as_deref();
        other.address != own.address
            && own.group.is_some()
            && other.group == own.group
            && driver.is_some_and(|driver| !Binder::leaves_group_free(driver))
    };
    let found = all.iter().filter(in_the_way);
    found.map(|other| other.address).collect()
}
