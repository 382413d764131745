//! Binding of functions to drivers.
//!
//! A function is bound by writes to files in `/sys`, which need root. The writes are planned first, as data: a command
//! can print the [`Plan`] without applying it.
//!
//! # Refusals
//! A function is refused if its block devices, at any depth, are in use: mounted, swapped to, part of another
//! device (RAID, device mapper, loop), or opened exclusively. A disk counts as free only if an exclusive open of it
//! succeeds: any other outcome is a refusal. Applying a plan repeats these checks, and claims the disks until the
//! driver has released them. Ordinary opens are not detected: those processes get errors.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::disks::Disks;
use crate::sysfs::{self, Sysfs, VFIO_DRIVER, names};
use crate::vfio;
use crate::{Address, Error, ErrorKind, Result};

/// A function as the kernel lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// PCI address of the listed function.
    pub address: Address,
    /// PCI vendor id of the function.
    pub vendor: u16,
    /// The device's number, in the vendor's counting.
    pub device: u16,
    /// Class, subclass and programming interface: 0x010802 is NVMe.
    pub class: u32,
    /// The driver that has it, if one does.
    pub driver: Option<String>,
    /// Its IOMMU group, if it is in one.
    pub group: Option<String>,
    /// The NUMA node that it is near to, if there is more than one.
    pub node: Option<u32>,
}

/// Purpose of a write to a file in `/sys`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Only this driver may have the function from now on.
    Reserve,
    /// Lets every matching driver bind the function again.
    Release,
    /// The driver gives the function up.
    Unbind,
    /// Makes the driver probe the function.
    Bind,
    /// The kernel looks for a driver.
    Probe,
}

/// One write to a file of the kernel's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Purpose of the write in its plan.
    pub purpose: Purpose,
    /// Path of the file, which must exist.
    pub path: PathBuf,
    /// Text to write, as the kernel expects it.
    pub value: String,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.purpose {
            Purpose::Reserve => "reserve it",
            Purpose::Release => "end the reservation",
            Purpose::Unbind => "take it from its driver",
            Purpose::Bind => "give it to the driver",
            Purpose::Probe => "let the kernel find a driver",
        };
        let value = self.value.trim_end();
        write!(f, "{why}: echo '{value}' > {}", self.path.display())
    }
}

/// What has to be written, in this order; nothing if the function is where it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// PCI address of the function to bind or release.
    pub address: Address,
    /// Writes in the order of their execution.
    pub steps: Vec<Step>,
    /// Disks that the function's driver releases; each is claimed before the first write.
    pub disks: Vec<String>,
}

/// Looks at functions and binds them.
#[derive(Clone, Debug)]
pub struct Binder {
    sys: Sysfs,
    proc: PathBuf,
    dev: PathBuf,
    disks: Disks,
    write: Write,
}

/// Executor of one step: writes [`Step::value`] to [`Step::path`].
pub type Write = fn(&Step) -> Result<()>;

impl Default for Binder {
    fn default() -> Self {
        Self::new()
    }
}

impl Binder {
    /// On the machine that runs this process.
    #[must_use]
    pub fn new() -> Self {
        Self::at(Path::new("/"))
    }

    /// On what lies in `sys`, `proc` and `dev` of this folder.
    #[must_use]
    pub fn at(root: &Path) -> Self {
        Self {
            sys: Sysfs::new(root.join("sys")),
            proc: root.join("proc"),
            dev: root.join("dev"),
            disks: Disks::at(root),
            write,
        }
    }

    /// This binder with another executor of its steps, for tests on a folder that simulates the kernel.
    #[must_use]
    pub fn with_write(mut self, write: Write) -> Self {
        self.write = write;
        self
    }

    /// All functions of a class, in the order of their addresses; of every class if none is named.
    ///
    /// # Errors
    /// If `/sys` cannot be read or holds what is no number.
    pub fn list(&self, class: Option<u32>) -> Result<Vec<Listed>> {
        let mut listed = Vec::new();
        for address in self.sys.functions()? {
            match self.describe(address) {
                Ok(function) if class.is_none_or(|class| class == function.class) => {
                    listed.push(function);
                }
                // Pulled out since the folder was read.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(listed)
    }

    /// Driver, group and identity of one function.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such function; else as [`Binder::list`].
    pub fn describe(&self, address: Address) -> Result<Listed> {
        let number = |file| {
            let number = self.sys.number(address, file)?;
            number.ok_or_else(|| {
                Error::new(ErrorKind::Protocol, format!("{address} without its {file}"))
            })
        };
        let beyond = |file| {
            move |error| {
                let context = format!("the {file} of {address}");
                Error::new(ErrorKind::Protocol, context).caused_by(error)
            }
        };
        Ok(Listed {
            address,
            vendor: u16::try_from(number("vendor")?).map_err(beyond("vendor"))?,
            device: u16::try_from(number("device")?).map_err(beyond("device"))?,
            class: u32::try_from(number("class")?).map_err(beyond("class"))?,
            driver: self.sys.driver(address)?,
            group: self.sys.group(address)?,
            // -1 where there is one node.
            node: self
                .sys
                .number(address, "numa_node")?
                .and_then(|node| u32::try_from(node).ok()),
        })
    }

    /// Whether VFIO hands functions of a group out while another one there has this driver.
    #[must_use]
    pub fn leaves_group_free(driver: &str) -> bool {
        sysfs::leaves_group_free(driver)
    }

    /// Whether the function's group has no IOMMU, though the kernel hands it out: no process that wants one
    /// can own it.
    #[must_use]
    pub fn is_without_iommu(&self, function: &Listed) -> bool {
        let group = function.group.as_deref();
        group.is_some_and(|group| vfio::is_without_iommu(&self.dev, group))
    }

    /// Plan of the writes that bind a function to vfio-pci. Opens and writes nothing.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::NoIommu`] if the function has no IOMMU,
    /// [`ErrorKind::Unsupported`] if vfio-pci is not loaded, [`ErrorKind::InUse`] if its block
    /// devices are in use, [`ErrorKind::Refused`] if the kernel does not report that.
    pub fn plan_bind(&self, address: Address) -> Result<Plan> {
        let mut plan = Plan {
            address,
            steps: Vec::new(),
            disks: Vec::new(),
        };
        let folder = self.sys.function(address)?;
        let driver = self.sys.driver(address)?;
        if driver.as_deref() == Some(VFIO_DRIVER) {
            return Ok(plan);
        }
        if self.sys.group(address)?.is_none() {
            let context = format!("{address} is in no IOMMU group; switch the IOMMU on");
            return Err(Error::new(ErrorKind::NoIommu, context));
        }
        let target = self.sys.driver_folder(VFIO_DRIVER);
        if !target.exists() {
            let context = "vfio-pci is not loaded; `modprobe vfio-pci` loads it";
            return Err(Error::new(ErrorKind::Unsupported, context));
        }
        plan.disks = self.disks.look(address, &folder)?.into_keys().collect();
        plan.add(
            Purpose::Reserve,
            folder.join("driver_override"),
            VFIO_DRIVER,
        );
        if driver.is_some() {
            plan.add(
                Purpose::Unbind,
                folder.join("driver/unbind"),
                &address.to_string(),
            );
        }
        plan.add(Purpose::Bind, target.join("bind"), &address.to_string());
        Ok(plan)
    }

    /// What has to be written so that the kernel's own driver has the function again.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::InUse`] if a process has the function: the kernel would wait
    /// until it is given back.
    pub fn plan_unbind(&self, address: Address) -> Result<Plan> {
        let mut plan = Plan {
            address,
            steps: Vec::new(),
            disks: Vec::new(),
        };
        let folder = self.sys.function(address)?;
        let driver = self.sys.driver(address)?;
        if driver
            .as_deref()
            .is_some_and(|driver| driver != VFIO_DRIVER)
        {
            // A failed bind may have left the reservation.
            if Self::is_reserved(&folder) {
                plan.add(Purpose::Release, folder.join("driver_override"), "\n");
            }
            return Ok(plan);
        }
        // An empty line ends a reservation.
        plan.add(Purpose::Release, folder.join("driver_override"), "\n");
        if driver.is_some() {
            self.refuse_owned(address, &folder)?;
            plan.add(
                Purpose::Unbind,
                folder.join("driver/unbind"),
                &address.to_string(),
            );
        }
        let probe = self.sys.root().join("bus/pci/drivers_probe");
        plan.add(Purpose::Probe, probe, &address.to_string());
        Ok(plan)
    }

    /// Gives the function to vfio-pci; returns what was written.
    ///
    /// # Errors
    /// As [`Binder::plan_bind`] and [`Binder::apply`].
    pub fn bind(&self, address: Address) -> Result<Plan> {
        let plan = self.plan_bind(address)?;
        self.apply(&plan)?;
        Ok(plan)
    }

    /// Gives the function back to the kernel; returns what was written.
    ///
    /// # Errors
    /// As [`Binder::plan_unbind`] and [`Binder::apply`].
    pub fn unbind(&self, address: Address) -> Result<Plan> {
        let plan = self.plan_unbind(address)?;
        self.apply(&plan)?;
        Ok(plan)
    }

    /// Executes a plan and verifies its result. If a kernel driver loses the function, its disks are claimed before the
    /// first write, and until the driver has released it.
    ///
    /// # Errors
    /// As of planning; [`ErrorKind::Permission`] if its disks may not be opened, and [`ErrorKind::Refused`] if the plan
    /// is out of date, both before any write. [`ErrorKind::Permission`] without root, [`ErrorKind::Refused`] if the
    /// kernel rejects a write; the context names the writes already done, and how to undo them.
    pub fn apply(&self, plan: &Plan) -> Result<()> {
        self.apply_by(plan, self.write)
    }

    fn apply_by(&self, plan: &Plan, mut write: impl FnMut(&Step) -> Result<()>) -> Result<()> {
        let address = plan.address;
        let Some(first) = plan.steps.first() else {
            return Ok(());
        };
        let is_bind = first.purpose == Purpose::Reserve;
        let now = match is_bind {
            true => self.plan_bind(address)?,
            false => self.plan_unbind(address)?,
        };
        if now.steps != plan.steps {
            let context = format!("{address} has another driver than when this was planned");
            return Err(Error::new(ErrorKind::Refused, context));
        }
        let mut claims = Vec::new();
        if is_bind {
            let folder = self.sys.function(address)?;
            claims = self.disks.claim(address, &folder)?;
        }
        for (done, step) in plan.steps.iter().enumerate() {
            if step.purpose == Purpose::Bind {
                claims.clear();
            }
            if let Err(error) = write(step) {
                return Err(match done {
                    0 => error,
                    done => self.halfway(plan, done, is_bind, error),
                });
            }
        }
        self.check_done(address, is_bind)
    }

    /// Whether the function is for VFIO's driver alone.
    fn is_reserved(folder: &Path) -> bool {
        let text = fs::read_to_string(folder.join("driver_override"));
        text.is_ok_and(|text| text.trim_end() == VFIO_DRIVER)
    }

    /// The error for a plan of which only the first steps were done.
    fn halfway(&self, plan: &Plan, done: usize, is_bind: bool, error: Error) -> Error {
        let address = plan.address;
        let (count, driver) = (plan.steps.len(), self.driver_text(address));
        let advice = match is_bind {
            true => format!("`millrace nvme unbind {address}` gives it back to the kernel"),
            false => format!("`millrace nvme unbind {address}` tries again"),
        };
        let context = format!(
            "only {done} of {count} steps to change the driver of {address} were done, it has {driver} now; \
             {advice}"
        );
        Error::new(error.kind(), context).caused_by(error)
    }

    /// Looks whether the kernel has done what all steps were for.
    fn check_done(&self, address: Address, is_bind: bool) -> Result<()> {
        let has = self.sys.driver(address)?.as_deref() == Some(VFIO_DRIVER);
        let context = match (is_bind, has) {
            (true, true) | (false, false) => return Ok(()),
            (true, false) => format!(
                "the kernel accepted all steps, but {address} has {}, not {VFIO_DRIVER}; `millrace \
                 nvme unbind {address}` gives it back to the kernel",
                self.driver_text(address)
            ),
            (false, true) => format!(
                "{VFIO_DRIVER} bound {address} again: its `ids=` or `new_id` matches all such devices"
            ),
        };
        Err(Error::new(ErrorKind::Refused, context))
    }

    fn driver_text(&self, address: Address) -> String {
        match self.sys.driver(address) {
            Ok(Some(driver)) => format!("the driver {driver}"),
            Ok(None) => "no driver".to_owned(),
            Err(_) => "an unknown driver".to_owned(),
        }
    }

    /// Refuses a function whose IOMMU group is open in a process.
    fn refuse_owned(&self, address: Address, folder: &Path) -> Result<()> {
        let mut files = Vec::new();
        if let Some(group) = self.sys.group(address)? {
            files.push(self.dev.join("vfio").join(group));
        }
        for name in names(&folder.join("vfio-dev"))? {
            files.push(self.dev.join("vfio/devices").join(name));
        }
        for process in names(&self.proc)? {
            if !process.bytes().all(|byte| byte.is_ascii_digit()) {
                continue;
            }
            let descriptors = self.proc.join(&process).join("fd");
            // A process that ended meanwhile, or is not ours to look into.
            for descriptor in names(&descriptors).unwrap_or_default() {
                let target = fs::read_link(descriptors.join(descriptor));
                if target.is_ok_and(|target| files.contains(&target)) {
                    let context = format!("process {process} has {address} open");
                    return Err(Error::new(ErrorKind::InUse, context));
                }
            }
        }
        Ok(())
    }
}

impl Plan {
    fn add(&mut self, purpose: Purpose, path: PathBuf, value: &str) {
        self.steps.push(Step {
            purpose,
            path,
            value: value.to_owned(),
        });
    }
}

/// Writes to the kernel's file: the default executor of a [`Binder`].
///
/// # Errors
/// [`ErrorKind::Permission`], [`ErrorKind::NotFound`], or [`ErrorKind::Refused`] with the kernel's error.
pub fn write(step: &Step) -> Result<()> {
    fs::OpenOptions::new()
        .write(true)
        .open(&step.path)
        .and_then(|mut file| std::io::Write::write_all(&mut file, step.value.as_bytes()))
        .map_err(|error| {
            let kind = match error.kind() {
                std::io::ErrorKind::PermissionDenied => ErrorKind::Permission,
                std::io::ErrorKind::NotFound => ErrorKind::NotFound,
                _ => ErrorKind::Refused,
            };
            Error::new(kind, step.to_string()).caused_by(error)
        })
}

#[cfg(test)]
mod tests;
