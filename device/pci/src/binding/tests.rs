//! What an exclusive opening tells, and how long it lasts.

use std::os::unix::fs::symlink;

use rustix::io::Errno;
use tempfile::TempDir;

use super::*;
use crate::disks::OpenAlone;

const FOLDER: &str = "sys/bus/pci/devices/0000:01:00.0";

/// A machine whose function has one disk.
struct Bed {
    root: TempDir,
    binder: Binder,
}

impl Bed {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("a temporary folder");
        let binder = Binder::at(root.path());
        let bed = Self { root, binder };
        for file in [
            "driver_override",
            "driver/unbind",
            "nvme/nvme0/nvme0n1/dev",
            "nvme/nvme0/nvme0n1/nvme0n1p1/dev",
            "nvme/nvme0/nvme0n1/nvme0n1p1/partition",
        ] {
            bed.touch(&format!("{FOLDER}/{file}"));
        }
        for file in [
            "sys/bus/pci/drivers/vfio-pci/bind",
            "proc/self/mountinfo",
            "dev/nvme0n1",
        ] {
            bed.touch(file);
        }
        for link in ["iommu_group", "driver"] {
            let link = bed.root.path().join(FOLDER).join(link);
            let _ = fs::remove_dir_all(&link);
            symlink("elsewhere/7", link).expect("the bed can be written");
        }
        bed
    }

    fn touch(&self, path: &str) {
        let path = self.root.path().join(path);
        let folder = path.parent().expect("a path in the bed");
        fs::create_dir_all(folder).expect("the bed can be written");
        fs::write(path, "0:0").expect("the bed can be written");
    }

    fn plan(&self) -> Result<Plan> {
        self.binder.plan_bind(address())
    }

    /// Whether this process has the disk open.
    fn has_disk(&self) -> bool {
        let disk = self.root.path().join("dev/nvme0n1");
        let descriptors = fs::read_dir("/proc/self/fd").expect("Linux has it");
        descriptors
            .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
            .any(|target| target == disk)
    }
}

fn address() -> Address {
    "01:00.0".parse().expect("it is an address")
}

#[test]
fn only_an_exclusive_opening_proves_a_disk_free() {
    let rows: [(OpenAlone, ErrorKind, &str); 4] = [
        (|_| Err(Errno::BUSY), ErrorKind::InUse, "held by"),
        (|_| Err(Errno::NOENT), ErrorKind::Refused, "does not tell"),
        (|_| Err(Errno::MFILE), ErrorKind::Refused, "does not tell"),
        (|_| Err(Errno::NXIO), ErrorKind::Refused, "does not tell"),
    ];
    for (open_alone, kind, text) in rows {
        let mut bed = Bed::new();
        assert!(bed.plan().is_ok());
        bed.binder.disks.open_alone = open_alone;
        let error = bed.plan().expect_err("it is not proved free");
        assert_eq!(error.kind(), kind);
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn without_permission_there_is_a_plan_that_is_not_applied() {
    for open_alone in [(|_| Err(Errno::ACCESS)) as OpenAlone, |_| Err(Errno::PERM)] {
        let mut bed = Bed::new();
        bed.binder.disks.open_alone = open_alone;
        let plan = bed.plan().expect("it may be free");
        assert_eq!(plan.unchecked, ["nvme0n1"]);
        let applied = bed.binder.apply_by(&plan, |step| panic!("{step}"));
        let error = applied.expect_err("it may be used");
        assert_eq!(error.kind(), ErrorKind::Permission);
        assert!(error.to_string().contains("nvme0n1"), "{error}");
    }
}

#[test]
fn disks_are_held_until_the_driver_has_given_them_up() {
    let bed = Bed::new();
    let plan = bed.plan().expect("nobody uses it");
    assert!(plan.unchecked.is_empty());
    assert!(!bed.has_disk());
    let mut seen = Vec::new();
    let applied = bed.binder.apply_by(&plan, |step| {
        seen.push((step.purpose, bed.has_disk()));
        Ok(())
    });
    applied.expect("nobody uses it");
    let expected = [
        (Purpose::Reserve, true),
        (Purpose::Unbind, true),
        (Purpose::Bind, false),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn what_is_held_since_it_was_planned_is_not_bound() {
    let mut bed = Bed::new();
    let plan = bed.plan().expect("nobody uses it");
    bed.binder.disks.open_alone = |_| Err(Errno::BUSY);
    let applied = bed.binder.apply_by(&plan, |step| panic!("{step}"));
    let error = applied.expect_err("it is held");
    assert_eq!(error.kind(), ErrorKind::InUse);
}
