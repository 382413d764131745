//! The shared memory that a guest has.

use std::fs;
use std::path::{Path, PathBuf};

use millrace_pci::Address;
use millrace_window::{Direction, Window};

use crate::error::{Error, Result, refused};

/// Vendor and device of QEMU's ivshmem.
const IVSHMEM: [&str; 2] = ["0x1af4", "0x1110"];
/// The base address behind which the memory lies.
pub(crate) const BAR: u8 = 2;

/// What the kernel says of mappings that are not cached, on x86-64.
const MEMORY_TYPES: &str = "/sys/kernel/debug/x86/pat_memtype_list";

/// How a BAR is mapped through sysfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `resource2`.
    Uncached,
    /// `resource2_wc`.
    WriteCombining,
}

/// The ivshmem functions but the one that is another driver's, switched on, by their addresses.
pub(crate) fn ivshmem(except: Option<Address>) -> Result<Vec<PathBuf>> {
    let folder = Path::new("/sys/bus/pci/devices");
    let entries = fs::read_dir(folder).map_err(refused("PCI functions"))?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(refused("PCI functions"))?.path();
        let ours = ["vendor", "device"].map(|name| fs::read_to_string(path.join(name)));
        let is_ivshmem = ours
            .iter()
            .zip(IVSHMEM)
            .all(|(read, id)| read.as_ref().is_ok_and(|read| read.trim() == id));
        let is_excepted = except.is_some_and(|address| path.ends_with(address.to_string()));
        if is_ivshmem && !is_excepted {
            fs::write(path.join("enable"), "1").map_err(refused(path.display().to_string()))?;
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// A BAR as a window. The kernel must have mapped it as the window thinks.
pub(crate) fn open(device: &Path, kind: Kind) -> Result<Window> {
    let (name, mapped) = match kind {
        Kind::Uncached => (format!("resource{BAR}"), "uncached-minus"),
        Kind::WriteCombining => (format!("resource{BAR}_wc"), "write-combining"),
    };
    let window =
        Window::open_resource(&device.join(name), Direction::Both).map_err(refused("a window"))?;
    let read = |path: &Path| fs::read_to_string(path).map_err(refused(path.display().to_string()));
    let resources = read(&device.join("resource"))?;
    let resource = resources.lines().nth(usize::from(BAR)).unwrap_or_default();
    let start = resource.split(' ').next().unwrap_or_default();
    let place = format!("[mem {start}-");
    let types = read(Path::new(MEMORY_TYPES))?;
    let mut found = types
        .lines()
        .filter(|line| line.contains(&place))
        .peekable();
    if found.peek().is_some() && found.all(|line| line.ends_with(mapped)) {
        return Ok(window);
    }
    Err(Error::Wrong(format!(
        "{place} is not {mapped} alone:\n{types}"
    )))
}

/// The one at `index`.
pub(crate) fn nth(devices: &[PathBuf], index: usize) -> Result<&Path> {
    devices
        .get(index)
        .map(PathBuf::as_path)
        .ok_or_else(|| Error::Usage(format!("there are {} ivshmem devices", devices.len())))
}
