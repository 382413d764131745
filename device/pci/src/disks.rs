//! Disks behind a function, and their users.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fstat, major, minor};
use rustix::io::Errno;

use crate::sysfs::{Sysfs, names, unreadable};
use crate::{Address, Error, ErrorKind, Result};

/// Opens a device for this process alone.
pub(crate) type OpenAlone = fn(&Path) -> rustix::io::Result<OwnedFd>;

/// Finder and claimer of the disks behind a function.
#[derive(Clone, Debug)]
pub(crate) struct Disks {
    sys: Sysfs,
    proc: PathBuf,
    dev: PathBuf,
    /// Whether plain files stand for devices, in a simulated tree.
    files_are_devices: bool,
    pub(crate) open_alone: OpenAlone,
}

/// Users of block devices, as the kernel reports them.
struct Users {
    mounts: String,
    swaps: String,
    /// Loop devices, and the file behind each.
    loops: Vec<(String, String)>,
}

impl Disks {
    /// On what lies in `sys`, `proc` and `dev` of this folder.
    pub(crate) fn at(root: &Path) -> Self {
        Self {
            sys: Sysfs::new(root.join("sys")),
            proc: root.join("proc"),
            dev: root.join("dev"),
            files_are_devices: root != Path::new("/"),
            open_alone: |path| {
                let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NONBLOCK;
                rustix::fs::open(path, flags, Mode::empty())
            },
        }
    }

    /// Names and folders of all disks behind the function of this folder; fails if the kernel reports a user of one.
    /// Opens nothing.
    pub(crate) fn look(
        &self,
        address: Address,
        folder: &Path,
    ) -> Result<BTreeMap<String, PathBuf>> {
        let users = self.users()?;
        let disks = self.find(folder)?;
        for disk in disks.values() {
            for part in with_partitions(disk)? {
                if let Some(user) = users.of(&part)? {
                    let context = format!("{address} has {}, which is {user}", name_of(&part));
                    return Err(Error::new(ErrorKind::InUse, context));
                }
            }
        }
        Ok(disks)
    }

    /// Claims all disks behind the function of this folder until the result is dropped; fails if one is in use, or if
    /// that is unknown.
    pub(crate) fn claim(&self, address: Address, folder: &Path) -> Result<Vec<OwnedFd>> {
        // First the kernel's reports, which have names, then the exclusive open, which also detects other users.
        let disks = self.look(address, folder)?;
        let claims = disks.iter().map(|(name, disk)| {
            self.claim_disk(name, disk)
                .map_err(|errno| self.not_claimed(address, name, errno))
        });
        claims.collect()
    }

    /// The error for a disk that could not be opened exclusively.
    fn not_claimed(&self, address: Address, name: &str, errno: Errno) -> Error {
        let (kind, context) = match errno {
            Errno::BUSY => (
                ErrorKind::InUse,
                format!(
                    "{address} has {name}, which is held by the kernel or a process, or a partition of it is"
                ),
            ),
            Errno::ACCESS | Errno::PERM => (
                ErrorKind::Permission,
                format!("{address} has {name}, and whether that is used could not be checked"),
            ),
            _ => {
                let file = self.device_file(name);
                let context = format!(
                    "{address} has {name}, and {} does not report whether that is in use",
                    file.display()
                );
                (ErrorKind::Refused, context)
            }
        };
        Error::new(kind, context).caused_by(errno)
    }

    /// Opens a whole disk exclusively: no other process can mount it, swap to it or make it a part of another device
    /// then. The kernel permits that only if neither the disk nor any of its partitions has a holder, and until the
    /// close permits no holder.
    fn claim_disk(&self, name: &str, disk: &Path) -> rustix::io::Result<OwnedFd> {
        let opened = (self.open_alone)(&self.device_file(name))?;
        let stat = fstat(&opened)?;
        let number = fs::read_to_string(disk.join("dev")).map_err(|_| Errno::NODEV)?;
        let same = match FileType::from_raw_mode(stat.st_mode) {
            FileType::BlockDevice => {
                number.trim() == format!("{}:{}", major(stat.st_rdev), minor(stat.st_rdev))
            }
            _ => self.files_are_devices,
        };
        // Any other file that has the name proves nothing.
        if same { Ok(opened) } else { Err(Errno::NOTBLK) }
    }

    fn device_file(&self, name: &str) -> PathBuf {
        // The kernel writes the `/` of `/dev/cciss/c0d0` in this way.
        self.dev.join(name.replace('!', "/"))
    }

    /// The names and folders of the disks behind a function, however deep they lie: below ports of SATA,
    /// hosts of SCSI, other functions.
    fn find(&self, folder: &Path) -> Result<BTreeMap<String, PathBuf>> {
        let function = fs::canonicalize(folder).map_err(|error| unreadable(folder, error))?;
        let class = self.sys.root().join("class/block");
        let mut disks = BTreeMap::new();
        let mut add = |name: String, folder: PathBuf| {
            if folder.join("dev").exists() {
                if !folder.join("partition").exists() {
                    disks.insert(name, folder);
                }
                return;
            }
            // With several paths to a namespace, `nvme0c1n1` is one of them and `nvme0n1` the disk.
            if let Some(disk) = disk_of_path(&name) {
                let folder = class.join(&disk);
                if folder.join("dev").exists() {
                    disks.insert(disk, folder);
                }
            }
        };
        for (name, place) in below(&class, &function)? {
            add(name, place);
        }
        let mut controllers = below(&self.sys.root().join("class/nvme"), &function)?;
        controllers.extend(below(&folder.join("nvme"), &function)?);
        for (_, controller) in controllers {
            for name in names(&controller)? {
                if name.starts_with("nvme") {
                    let place = controller.join(&name);
                    add(name, place);
                }
            }
        }
        Ok(disks)
    }

    fn users(&self) -> Result<Users> {
        let mounts = self.proc.join("self/mountinfo");
        let mounts = fs::read(&mounts).map_err(|error| unreadable(&mounts, error))?;
        let folder = self.sys.root().join("block");
        let mut loops = Vec::new();
        for name in names(&folder)? {
            let file = read(&folder.join(&name).join("loop/backing_file"))?;
            if let Some(file) = file {
                loops.push((name, file.trim_end().to_owned()));
            }
        }
        Ok(Users {
            mounts: String::from_utf8_lossy(&mounts).into_owned(),
            // A kernel that cannot swap has none.
            swaps: read(&self.proc.join("swaps"))?.unwrap_or_default(),
            loops,
        })
    }
}

impl Users {
    /// User of a disk or partition, if one is known.
    fn of(&self, disk: &Path) -> Result<Option<String>> {
        let name = name_of(disk);
        let file = name.replace('!', "/");
        let device = disk.join("dev");
        let device = fs::read_to_string(&device).map_err(|error| unreadable(&device, error))?;
        for line in self.mounts.lines() {
            if let Some(mount_point) = mounted(line, device.trim(), &file) {
                return Ok(Some(format!("mounted at {mount_point}")));
            }
        }
        let mut swapped = self
            .swaps
            .lines()
            .filter_map(|line| line.split_whitespace().next());
        let last = |path| Path::new(path).file_name().map(OsStrExt::as_bytes);
        if swapped.any(|path| last(path) == last(&file)) {
            return Ok(Some("swapped to".to_owned()));
        }
        if let Some(holder) = names(&disk.join("holders"))?.first() {
            return Ok(Some(format!("part of {holder}")));
        }
        // The kernel opens the backing file of a loop device non-exclusively, and names no holder.
        let behind = |backing: &str| {
            let backing = backing.strip_suffix(" (deleted)").unwrap_or(backing);
            backing.strip_prefix("/dev/") == Some(&*file)
        };
        let holder = self.loops.iter().find(|(_, backing)| behind(backing));
        Ok(holder.map(|(name, _)| format!("part of {name}")))
    }
}

/// The names of what a class has below a folder, with the places of each.
fn below(class: &Path, folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for name in names(class)? {
        let link = class.join(&name);
        match fs::canonicalize(&link) {
            Ok(place) if place.starts_with(folder) => found.push((name, place)),
            Ok(_) => {}
            // The entry was removed since the class was read.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(unreadable(&link, error)),
        }
    }
    Ok(found)
}

/// The folders of a disk's partitions, and its own.
fn with_partitions(disk: &Path) -> Result<Vec<PathBuf>> {
    let mut all: Vec<PathBuf> = names(disk)?.iter().map(|name| disk.join(name)).collect();
    all.retain(|folder| folder.join("partition").exists());
    all.push(disk.to_owned());
    Ok(all)
}

/// The disk `nvme0n1` of the path `nvme0c1n1`.
fn disk_of_path(name: &str) -> Option<String> {
    let (subsystem, rest) = name.strip_prefix("nvme")?.split_once('c')?;
    let namespace = rest.find('n')?;
    Some(format!("nvme{subsystem}{}", &rest[namespace..]))
}

/// Mount point of a device in a line of mountinfo (proc(5)).
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

/// The text of a file, if there is one.
fn read(path: &Path) -> Result<Option<String>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unreadable(path, error)),
    }
}
