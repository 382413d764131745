//! Outcomes and lifetime of the exclusive open of disks.

use std::os::unix::fs::symlink;

use rustix::io::Errno;
use tempfile::TempDir;

use super::*;
use crate::disks::OpenAlone;

const FOLDER: &str = "sys/bus/pci/devices/0000:01:00.0";

/// A machine whose function has one disk.
struct Fixture {
    root: TempDir,
    binder: Binder,
}

impl Fixture {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("a temporary folder");
        let binder = Binder::at(root.path());
        let fixture = Self { root, binder };
        for file in [
            "driver_override",
            "nvme/nvme0/nvme0n1/dev",
            "nvme/nvme0/nvme0n1/nvme0n1p1/dev",
            "nvme/nvme0/nvme0n1/nvme0n1p1/partition",
        ] {
            fixture.touch(&format!("{FOLDER}/{file}"));
        }
        for file in [
            "sys/bus/pci/drivers/vfio-pci/bind",
            "proc/self/mountinfo",
            "dev/nvme0n1",
        ] {
            fixture.touch(file);
        }
        let group = fixture.root.path().join(FOLDER).join("iommu_group");
        symlink("elsewhere/7", group).expect("the fixture can be written");
        fixture.drive("nvme");
        fixture
    }

    /// Gives the function this driver.
    fn drive(&self, driver: &str) {
        let link = self.root.path().join(FOLDER).join("driver");
        let _ = fs::remove_file(&link);
        symlink(format!("elsewhere/{driver}"), link).expect("the fixture can be written");
    }

    /// Does what the kernel does about a step.
    fn take(&self, step: &Step) {
        if step.purpose == Purpose::Bind {
            self.drive("vfio-pci");
        }
    }

    fn touch(&self, path: &str) {
        let path = self.root.path().join(path);
        let folder = path.parent().expect("a path in the fixture");
        fs::create_dir_all(folder).expect("the fixture can be written");
        fs::write(path, "0:0").expect("the fixture can be written");
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
    let rows: [(OpenAlone, ErrorKind, &str); 6] = [
        (|_| Err(Errno::BUSY), ErrorKind::InUse, "held by"),
        (|_| Err(Errno::ACCESS), ErrorKind::Permission, "has nvme0n1"),
        (|_| Err(Errno::PERM), ErrorKind::Permission, "has nvme0n1"),
        (|_| Err(Errno::NOENT), ErrorKind::Refused, "does not report"),
        (|_| Err(Errno::MFILE), ErrorKind::Refused, "does not report"),
        (|_| Err(Errno::NXIO), ErrorKind::Refused, "does not report"),
    ];
    for (open_alone, kind, text) in rows {
        let mut fixture = Fixture::new();
        let plan = fixture.plan().expect("nobody is known to use it");
        fixture.binder.disks.open_alone = open_alone;
        let applied = fixture.binder.apply_by(&plan, |step| panic!("{step}"));
        let error = applied.expect_err("it is not proved free");
        assert_eq!(error.kind(), kind);
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn a_plan_is_made_without_opening_a_disk() {
    let mut fixture = Fixture::new();
    fixture.binder.disks.open_alone = |disk| panic!("{}", disk.display());
    let plan = fixture.plan().expect("nobody uses it");
    assert_eq!(plan.disks, ["nvme0n1"]);
}

#[test]
fn disks_are_held_until_the_driver_has_given_them_up() {
    let fixture = Fixture::new();
    let plan = fixture.plan().expect("nobody uses it");
    assert!(!fixture.has_disk());
    let mut seen = Vec::new();
    let applied = fixture.binder.apply_by(&plan, |step| {
        seen.push((step.purpose, fixture.has_disk()));
        fixture.take(step);
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
fn what_the_kernel_did_not_do_is_told() {
    let fixture = Fixture::new();
    let plan = fixture.plan().expect("nobody uses it");
    let applied = fixture.binder.apply_by(&plan, |_| Ok(()));
    let error = applied.expect_err("vfio-pci did not get it");
    assert_eq!(error.kind(), ErrorKind::Refused);
    let text = error.to_string();
    assert!(text.contains("has the driver nvme, not"), "{text}");
    assert!(
        text.contains("`millrace nvme unbind 0000:01:00.0`"),
        "{text}"
    );

    fixture.drive("vfio-pci");
    let plan = fixture
        .binder
        .plan_unbind(address())
        .expect("nobody has it");
    let applied = fixture.binder.apply_by(&plan, |_| Ok(()));
    let error = applied.expect_err("vfio-pci has it still");
    assert!(error.to_string().contains("`new_id`"), "{error}");
}

#[test]
fn a_step_that_fails_midway_is_told_with_the_way_back() {
    let refuse = |purpose| {
        move |step: &Step| match step.purpose == purpose {
            true => Err(Error::new(ErrorKind::Refused, step.to_string())),
            false => Ok(()),
        }
    };
    let fixture = Fixture::new();
    let plan = fixture.plan().expect("nobody uses it");
    let error = fixture.binder.apply_by(&plan, refuse(Purpose::Reserve));
    let text = error.expect_err("it is refused").to_string();
    assert!(!text.contains("only"), "nothing was done: {text}");
    for (purpose, done) in [(Purpose::Unbind, 1), (Purpose::Bind, 2)] {
        let error = fixture.binder.apply_by(&plan, refuse(purpose));
        let error = error.expect_err("it is refused");
        assert_eq!(error.kind(), ErrorKind::Refused);
        let text = error.to_string();
        assert!(text.contains(&format!("only {done} of 3 steps")), "{text}");
        assert!(
            text.contains("`millrace nvme unbind 0000:01:00.0`"),
            "{text}"
        );
        let cause = std::error::Error::source(&error).expect("a cause");
        assert!(cause.to_string().contains("echo"), "{cause}");
    }
}

#[test]
fn a_plan_that_is_overtaken_is_not_applied() {
    let fixture = Fixture::new();
    let plan = fixture.plan().expect("nobody uses it");
    fixture.drive("vfio-pci");
    let applied = fixture.binder.apply_by(&plan, |step| panic!("{step}"));
    let error = applied.expect_err("it is there already");
    assert_eq!(error.kind(), ErrorKind::Refused);

    // What was vfio-pci's is a mounted disk's by now.
    let plan = fixture
        .binder
        .plan_unbind(address())
        .expect("nobody has it");
    fixture.drive("nvme");
    let applied = fixture.binder.apply_by(&plan, |step| panic!("{step}"));
    assert_eq!(
        applied.map_err(|error| error.kind()),
        Err(ErrorKind::Refused)
    );
}

#[test]
fn what_a_process_has_come_to_own_is_not_unbound() {
    let fixture = Fixture::new();
    fixture.drive("vfio-pci");
    let plan = fixture
        .binder
        .plan_unbind(address())
        .expect("nobody has it");
    fixture.touch("proc/42/fd/3");
    let descriptor = fixture.root.path().join("proc/42/fd/5");
    symlink(fixture.root.path().join("dev/vfio/7"), descriptor)
        .expect("the fixture can be written");
    let applied = fixture.binder.apply_by(&plan, |step| panic!("{step}"));
    let error = applied.expect_err("it is open");
    assert_eq!(error.kind(), ErrorKind::InUse);
    assert!(error.to_string().contains("process 42"), "{error}");
}
