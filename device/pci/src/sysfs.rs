//! Functions as `/sys` describes them.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::{Address, Error, ErrorKind, Result};

/// The kernel's driver that hands functions to processes.
pub(crate) const VFIO_DRIVER: &str = "vfio-pci";

/// Whether VFIO hands a function out while another one of its IOMMU group has this driver: one that uses no
/// DMA of its own, or is VFIO's (`driver_managed_dma` in the kernel, `vfio_dev_driver_allowed` before 5.19).
pub(crate) fn leaves_group_free(driver: &str) -> bool {
    // Variants of vfio-pci for one vendor's devices have it in their names.
    driver == "pcieport" || driver == "pci-stub" || driver.contains("vfio")
}

/// The tree, at `/sys` or where a test has made one.
#[derive(Clone, Debug)]
pub(crate) struct Sysfs {
    root: PathBuf,
}

impl Sysfs {
    pub(crate) fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    fn devices(&self) -> PathBuf {
        self.root.join("bus/pci/devices")
    }

    /// The folder of a function, which must exist.
    pub(crate) fn function(&self, address: Address) -> Result<PathBuf> {
        let folder = self.devices().join(address.to_string());
        if folder.exists() {
            return Ok(folder);
        }
        let context = format!("{address}; `lspci -D` lists what there is");
        Err(Error::new(ErrorKind::NotFound, context))
    }

    /// The folder of a driver, which need not exist.
    pub(crate) fn driver_folder(&self, driver: &str) -> PathBuf {
        self.root.join("bus/pci/drivers").join(driver)
    }

    /// All functions, in the order of their addresses.
    pub(crate) fn functions(&self) -> Result<Vec<Address>> {
        let mut addresses: Vec<Address> = names(&self.devices())?
            .iter()
            .filter_map(|name| name.parse().ok())
            .collect();
        addresses.sort_unstable();
        Ok(addresses)
    }

    /// A number in hexadecimal or decimal that a file of a function holds: `class`, `vendor`, `numa_node`.
    pub(crate) fn number(&self, address: Address, file: &str) -> Result<Option<i64>> {
        let path = self.function(address)?.join(file);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(&path, error)),
        };
        let text = text.trim();
        let number = match text.strip_prefix("0x") {
            Some(digits) => i64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        let wrong = |error| {
            let context = format!("{} holds {text:?}", path.display());
            Error::new(ErrorKind::Protocol, context).caused_by(error)
        };
        number.map(Some).map_err(wrong)
    }

    /// The driver of a function, if it has one.
    pub(crate) fn driver(&self, address: Address) -> Result<Option<String>> {
        self.link(address, "driver")
    }

    /// The number of a function's IOMMU group, if it is in one.
    pub(crate) fn group(&self, address: Address) -> Result<Option<String>> {
        self.link(address, "iommu_group")
    }

    /// All functions of the same IOMMU group, including this one.
    pub(crate) fn group_members(&self, address: Address) -> Result<Vec<Address>> {
        let folder = self.function(address)?.join("iommu_group/devices");
        let mut members: Vec<Address> = names(&folder)?
            .iter()
            .filter_map(|name| name.parse().ok())
            .collect();
        members.sort_unstable();
        Ok(members)
    }

    /// The last part of what a link of a function points to.
    fn link(&self, address: Address, link: &str) -> Result<Option<String>> {
        let path = self.function(address)?.join(link);
        match fs::read_link(&path) {
            Ok(target) => Ok(target.file_name().map(name_of)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unreadable(&path, error)),
        }
    }
}

/// The names of what is in a folder, sorted; none if there is no such folder.
pub(crate) fn names(folder: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(folder, error)),
    };
    let mut names = entries
        .map(|entry| entry.map(|entry| name_of(&entry.file_name())))
        .collect::<io::Result<Vec<String>>>()
        .map_err(|error| unreadable(folder, error))?;
    names.sort_unstable();
    Ok(names)
}

fn name_of(name: &OsStr) -> String {
    name.to_string_lossy().into_owned()
}

/// The error for what could not be read.
pub(crate) fn unreadable(path: &Path, error: io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::PermissionDenied => ErrorKind::Permission,
        _ => ErrorKind::Refused,
    };
    Error::new(kind, format!("reading {}", path.display())).caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_that_keep_a_group_are_told_from_others() {
        for driver in ["vfio-pci", "mlx5_vfio_pci", "pcieport", "pci-stub"] {
            assert!(leaves_group_free(driver), "{driver}");
        }
        for driver in ["nvme", "xhci_hcd", "pci", "stub", ""] {
            assert!(!leaves_group_free(driver), "{driver}");
        }
    }
}
