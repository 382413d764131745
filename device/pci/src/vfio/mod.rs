//! Functions that the kernel's VFIO hands to this process.
//!
//! ```text
//!   /dev/vfio/vfio      the container: an address space       VfioDomain: Type1, sPAPR v1 or v2
//!        ^ joined by                                             ^
//!   /dev/vfio/GROUP     all functions that the IOMMU cannot      | held by
//!        | hands out    tell apart                               |
//!        v                                                       |
//!   the device file     registers, configuration, interrupts  Function
//! ```
//! One container a function is made: see docs/decisions/pci-access.md. Two functions of one IOMMU group can
//! therefore not be opened at the same time.
//!
//! Where the kernel has no group files but character devices (`/dev/vfio/devices`), the function is opened
//! by these and an iommufd takes the container's place. **This way is unproven on hardware**: no available kernel
//! had it, and it was tested against a simulated kernel.
//!
//! # Permission
//! Access to the group's file is all that is needed: a process that may open it for reading and writing may drive the
//! function. Memory that is mapped counts against RLIMIT_MEMLOCK, and with sPAPR v1 the whole window at once:
//! 2 GiB. With v2 the tables of windows count as well; the 8 MiB that most systems let an ordinary user lock
//! have space for a window of 16 GiB in pages of 64 KiB, but not for the default one beside it, which is
//! removed then.
//!
//! # Removal
//! Registers read as all ones, or calls fail with [`ErrorKind::Gone`]. The kernel waits until the process has released
//! the function, and signals [`Options::removal`]. If the function's memory is
//! switched off while registers are mapped - by a reset from elsewhere, or a removal that was forced - the
//! kernel may answer an access with SIGBUS instead of all ones; a process that must outlive that has to
//! catch the signal or keep to polling memory.
//!
//! # Interrupts
//! The kernel signals an eventfd for each vector of MSI-X, as far as the host has vectors left. Functions with
//! INTx or MSI alone are polled. INTx is disabled as soon as bus mastering is set (`Function::set_bus_master`),
//! and stays so.

mod container;
mod device;
mod iommufd;
mod kernel;
mod linux;
mod spapr;
mod type1;

#[cfg(test)]
mod script;
#[cfg(test)]
mod tests;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millrace_memory::Domain;

use self::container::Container;
use self::device::VfioFunction;
use self::kernel::Kernel;
use self::linux::Linux;
use crate::sysfs::{Sysfs, VFIO_DRIVER, leaves_group_free, names};
use crate::{Address, Error, ErrorKind, Function, Result};

/// Which of the kernel's IOMMU interfaces serves a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Iommu {
    /// That of x86-64 and Arm: any address may be mapped.
    Type1,
    /// That of POWER, first version: one window of 2 GiB or less, in pages of 4 KiB.
    SpaprV1,
    /// That of POWER, second version: windows are created, with larger pages where there are.
    SpaprV2,
    /// Character devices; unproven on hardware.
    Iommufd,
}

/// Options of [`open`]: IOMMU interface, window size and removal event.
#[derive(Debug, Default)]
pub struct Options {
    /// Which interface must be used; the best that the kernel offers if none is named.
    pub iommu: Option<Iommu>,
    /// Least size of a window of sPAPR v2 in bytes, unless the kernel has no memory for it; by default 16 GiB. A window
    /// with pages of 64 KiB locks a 4096th of its size in memory.
    pub window_size: Option<u64>,
    /// An eventfd to signal when the kernel wants the function back.
    pub removal: Option<OwnedFd>,
}

/// Opens a function that is bound to vfio-pci.
///
/// # Errors
/// Each with its remedy: [`ErrorKind::NotFound`], [`ErrorKind::NoIommu`], [`ErrorKind::InUse`] if
/// another driver or process holds the function, [`ErrorKind::Permission`], [`ErrorKind::GroupNotViable`],
/// [`ErrorKind::NoInterruptRemapping`], [`ErrorKind::LockLimit`] with sPAPR v1,
/// [`ErrorKind::Unsupported`] if the kernel lacks a requested option, [`ErrorKind::Protocol`] if
/// its description of the function is invalid.
pub fn open(address: Address, options: Options) -> Result<Arc<dyn Function>> {
    Host::of_this_process().open(address, options)
}

/// The ranges of an address space that the kernel describes so, and its smallest page.
#[cfg(any(test, feature = "exercise"))]
pub(crate) fn address_space(
    described: &crate::argument::Argument,
    page_size: u64,
) -> Result<(Vec<millrace_memory::IovaRange>, u64)> {
    let info = type1::Info::read(described, page_size)?;
    Ok((info.ranges, info.granule))
}

/// DMA domain of a container. Must be called once for each container.
fn domain_of(container: Arc<Container>, window_size: Option<u64>) -> Result<Arc<dyn Domain>> {
    match container.iommu() {
        Iommu::Type1 => type1::domain(container),
        Iommu::SpaprV1 => spapr::domain_v1(container),
        Iommu::SpaprV2 | Iommu::Iommufd => spapr::domain_v2(container, window_size),
    }
}

/// Whether an IOMMU group has no IOMMU: the kernel makes such groups if it is configured to.
pub(crate) fn is_without_iommu(dev: &Path, group: &str) -> bool {
    dev.join("vfio").join(format!("noiommu-{group}")).exists()
}

/// The machine that functions are opened on.
#[derive(Clone, Debug)]
struct Host {
    kernel: Arc<dyn Kernel>,
    sys: Sysfs,
    /// `/dev`, or where a test has made one.
    dev: PathBuf,
}

impl Host {
    fn of_this_process() -> Self {
        Self {
            kernel: Arc::new(Linux),
            sys: Sysfs::new("/sys"),
            dev: PathBuf::from("/dev"),
        }
    }

    fn open(&self, address: Address, options: Options) -> Result<Arc<dyn Function>> {
        let group = self.check(address)?;
        let group_file = self.dev.join("vfio").join(&group);
        if is_without_iommu(&self.dev, &group) {
            let context = format!(
                "the group {group} of {address} has no IOMMU; this driver needs one (the kernel is configured to \
                 do without, by enable_unsafe_noiommu_mode of vfio)"
            );
            return Err(Error::new(ErrorKind::NoIommu, context));
        }
        let character_file = self.character_file(address)?;
        let wanted = options.iommu == Some(Iommu::Iommufd);
        let name = address.to_string();
        let kernel = Arc::clone(&self.kernel);
        let character_file = match character_file {
            Some(file) if wanted || (options.iommu.is_none() && !group_file.exists()) => file,
            None if wanted => {
                let context = format!("{address}: the kernel has no character device for it");
                return Err(Error::new(ErrorKind::Unsupported, context));
            }
            _ => {
                let container = self.container(address, &group, options.iommu)?;
                let device = container.device(&name)?;
                let domain = domain_of(container, options.window_size)?;
                let function = VfioFunction::new(name, kernel, device, domain, options.removal)?;
                return Ok(Arc::new(function));
            }
        };
        let (device, domain) = iommufd::open(&self.kernel, &self.dev, &character_file, &|| {
            self.not_bound(address, &group)
        })?;
        let function = VfioFunction::new(name, kernel, device, domain, options.removal)?;
        Ok(Arc::new(function))
    }

    /// Checks what can be seen from outside; returns the number of the function's group.
    fn check(&self, address: Address) -> Result<String> {
        self.sys.function(address)?;
        let Some(group) = self.sys.group(address)? else {
            let context = format!(
                "{address} is in no IOMMU group; switch the IOMMU on in the firmware (VT-d, AMD-Vi, SMMU) \
                 and boot with intel_iommu=on (Intel), without amd_iommu=off (AMD) or iommu=off; on POWER \
                 the kernel needs CONFIG_SPAPR_TCE_IOMMU"
            );
            return Err(Error::new(ErrorKind::NoIommu, context));
        };
        match self.sys.driver(address)?.as_deref() {
            Some(VFIO_DRIVER) => Ok(group),
            Some(driver) => {
                let context = format!(
                    "{address} is driven by {driver}; `millrace nvme bind {address}` takes it over"
                );
                Err(Error::new(ErrorKind::InUse, context))
            }
            None => {
                let context = format!(
                    "{address} has no driver; `millrace nvme bind {address}` gives it to {VFIO_DRIVER}"
                );
                Err(Error::new(ErrorKind::Unsupported, context))
            }
        }
    }

    /// The function's own file, where the kernel has such.
    fn character_file(&self, address: Address) -> Result<Option<PathBuf>> {
        let folder = self.sys.function(address)?.join("vfio-dev");
        let names = names(&folder)?;
        let path = |name| self.dev.join("vfio/devices").join(name);
        Ok(names.first().map(path).filter(|path| path.exists()))
    }

    /// Opens the group, and a container that has it alone.
    fn container(
        &self,
        address: Address,
        group: &str,
        wanted: Option<Iommu>,
    ) -> Result<Arc<Container>> {
        let path = self.dev.join("vfio").join(group);
        let container = Container::open(&self.kernel, &self.dev, &path, wanted, &|| {
            Self::not_viable(address, group, &self.group_users(address))
        })?;
        Ok(Arc::new(container))
    }

    /// Other functions of the group whose drivers prevent VFIO's use, with the drivers.
    fn group_users(&self, address: Address) -> Vec<String> {
        let members = self.sys.group_members(address).unwrap_or_default();
        members
            .into_iter()
            .filter(|member| *member != address)
            .filter_map(|member| {
                let driver = self.sys.driver(member).ok().flatten()?;
                (!leaves_group_free(&driver)).then(|| format!("{member} ({driver})"))
            })
            .collect()
    }

    /// The error for a group that these use as well.
    fn not_viable(address: Address, group: &str, users: &[String]) -> Error {
        let context = match users.is_empty() {
            true => format!("group {group} of {address}; the kernel does not name the holder"),
            false => format!(
                "group {group} of {address} also has {}; bind them to {VFIO_DRIVER} or unbind them",
                users.join(", ")
            ),
        };
        Error::new(ErrorKind::GroupNotViable, context)
    }

    /// Error for EPERM of a bind to an iommufd, which has three possible causes.
    fn not_bound(&self, address: Address, group: &str) -> Error {
        let users = self.group_users(address);
        if !users.is_empty() {
            return Self::not_viable(address, group, &users);
        }
        let context = format!(
            "the device could forge interrupts, or another process has a function of group {group}; end that \
             process (`millrace nvme list` names it), or switch interrupt remapping on (firmware, and no \
             intremap=off), or load iommufd with allow_unsafe_interrupts=1 if the device is trusted"
        );
        Error::new(ErrorKind::NoInterruptRemapping, context)
    }
}
