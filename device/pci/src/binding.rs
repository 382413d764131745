//! Which driver has a function, and giving it to another.
//!
//! A function is bound by writing to files in `/sys`, which only root may. What will be written is planned
//! first, as data: a command can print the [`Plan`], and may leave it at that.
//!
//! # What is refused
//! A function whose block devices are used: mounted, swapped to, part of another device (RAID, device
//! mapper), or held by whoever else has opened them for himself alone. What a process has merely open is
//! not seen: it gets errors.

use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::sysfs::{Sysfs, VFIO_DRIVER, names};
use crate::{Address, Error, ErrorKind, Result};

/// A function as the kernel lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Where it is.
    pub address: Address,
    /// The vendor's number.
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

/// Why a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Only this driver may have the function from now on.
    Reserve,
    /// Every driver that knows the function may have it again.
    Release,
    /// The driver gives the function up.
    Unbind,
    /// The driver takes the function.
    Bind,
    /// The kernel looks for a driver.
    Probe,
}

/// One write to a file of the kernel's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Why.
    pub purpose: Purpose,
    /// Where to.
    pub path: PathBuf,
    /// What.
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
    /// Which function.
    pub address: Address,
    /// The writes.
    pub steps: Vec<Step>,
}

/// Looks at functions and binds them.
#[derive(Clone, Debug)]
pub struct Binder {
    sys: Sysfs,
    proc: PathBuf,
    dev: PathBuf,
}

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
        }
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

    /// What the kernel says of one function.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is none; else as [`Binder::list`].
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

    /// What has to be written so that vfio-pci has the function.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::NoIommu`] if no process could own it,
    /// [`ErrorKind::Unsupported`] if the kernel has not loaded vfio-pci, [`ErrorKind::InUse`] if its block
    /// devices are used.
    pub fn plan_bind(&self, address: Address) -> Result<Plan> {
        let mut plan = Plan {
            address,
            steps: Vec::new(),
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
            let context = "the kernel has no vfio-pci; `modprobe vfio-pci` loads it";
            return Err(Error::new(ErrorKind::Unsupported, context));
        }
        self.refuse_used(address, &folder)?;
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
        };
        let folder = self.sys.function(address)?;
        let driver = self.sys.driver(address)?;
        if driver
            .as_deref()
            .is_some_and(|driver| driver != VFIO_DRIVER)
        {
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
    /// As [`Binder::plan_bind`] and [`Plan::apply`].
    pub fn bind(&self, address: Address) -> Result<Plan> {
        let plan = self.plan_bind(address)?;
        plan.apply()?;
        Ok(plan)
    }

    /// Gives the function back to the kernel; returns what was written.
    ///
    /// # Errors
    /// As [`Binder::plan_unbind`] and [`Plan::apply`].
    pub fn unbind(&self, address: Address) -> Result<Plan> {
        let plan = self.plan_unbind(address)?;
        plan.apply()?;
        Ok(plan)
    }

    /// Refuses a function whose block devices are used.
    fn refuse_used(&self, address: Address, folder: &Path) -> Result<()> {
        let mounts = read(&self.proc.join("self/mountinfo"))?;
        let swaps = read(&self.proc.join("swaps"))?;
        for disk in self.block_devices(folder)? {
            let users = self.users_of(&disk, &mounts, &swaps)?;
            if let Some(user) = users.first() {
                let context = format!("{address} has {}, which is {user}", name_of(&disk));
                return Err(Error::new(ErrorKind::InUse, context));
            }
        }
        Ok(())
    }

    /// The folders of the disks behind a function and of their partitions.
    fn block_devices(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        let mut disks = Vec::new();
        let controllers = folder.join("nvme");
        for controller in names(&controllers)? {
            let controller = controllers.join(controller);
            for name in names(&controller)? {
                let Some(rest) = name.strip_prefix("nvme") else {
                    continue;
                };
                // With several paths to a namespace, `nvme0c1n1` is one of them and `nvme0n1` the disk.
                let disk = match split_path(rest) {
                    Some((subsystem, namespace)) => self
                        .sys
                        .root()
                        .join("class/block")
                        .join(format!("nvme{subsystem}{namespace}")),
                    None => controller.join(&name),
                };
                if disk.join("dev").exists() {
                    disks.push(disk);
                }
            }
        }
        // Other kinds of controllers have their disks elsewhere.
        for name in names(&folder.join("block"))? {
            disks.push(folder.join("block").join(name));
        }
        let mut all = Vec::new();
        for disk in disks {
            for name in names(&disk)? {
                if disk.join(&name).join("partition").exists() {
                    all.push(disk.join(&name));
                }
            }
            all.push(disk);
        }
        Ok(all)
    }

    /// Who uses a disk or partition.
    fn users_of(&self, disk: &Path, mounts: &str, swaps: &str) -> Result<Vec<String>> {
        let name = name_of(disk);
        let device = read(&disk.join("dev"))?;
        let mut users = Vec::new();
        for line in mounts.lines() {
            if let Some(mount_point) = mounted(line, device.trim(), &name) {
                users.push(format!("mounted at {mount_point}"));
            }
        }
        let swapped = swaps
            .lines()
            .filter_map(|line| line.split_whitespace().next());
        for file in swapped {
            if Path::new(file)
                .file_name()
                .is_some_and(|last| last.as_bytes() == name.as_bytes())
            {
                users.push("swapped to".to_owned());
            }
        }
        for holder in names(&disk.join("holders"))? {
            users.push(format!("part of {holder}"));
        }
        // Whoever has a device for himself, in the kernel or not, refuses another such opening.
        let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let opened = rustix::fs::open(self.dev.join(&name), flags, Mode::empty());
        if users.is_empty() && opened.is_err_and(|errno| errno == Errno::BUSY) {
            users.push("held by the kernel or a process".to_owned());
        }
        Ok(users)
    }

    /// Refuses a function whose group a process has open.
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

    /// Writes what was planned.
    ///
    /// # Errors
    /// [`ErrorKind::Permission`] if this is not root, [`ErrorKind::Refused`] if the kernel does not do it;
    /// the steps before have been done then.
    pub fn apply(&self) -> Result<()> {
        for step in &self.steps {
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
                })?;
        }
        Ok(())
    }
}

/// Splits `0c1n1` into `0` and `n1`.
fn split_path(rest: &str) -> Option<(&str, &str)> {
    let (subsystem, rest) = rest.split_once('c')?;
    let namespace = rest.find('n')?;
    Some((subsystem, &rest[namespace..]))
}

/// Where a line of mountinfo (proc(5)) says that a device is mounted.
fn mounted<'a>(line: &'a str, device: &str, name: &str) -> Option<&'a str> {
    let mut fields = line.split(' ');
    let number = fields.nth(2)?;
    let mount_point = fields.nth(1)?;
    // File systems on several devices have a number of their own; the source names one of the devices.
    let source = line
        .split(" - ")
        .nth(1)
        .and_then(|rest| rest.split(' ').nth(1));
    let source = source.and_then(|source| source.strip_prefix("/dev/"));
    (number == device || source == Some(name)).then_some(mount_point)
}

fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

/// The text of a file; empty if there is none.
fn read(path: &Path) -> Result<String> {
    match fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => {
            let context = format!("reading {}", path.display());
            Err(Error::new(ErrorKind::Refused, context).caused_by(error))
        }
    }
}
