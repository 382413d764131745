//! Binding, on trees that look like the kernel's.
#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use millrace_pci::binding::{Binder, Plan, Purpose};
use millrace_pci::{Address, ErrorKind};
use tempfile::TempDir;

const ADDRESS: &str = "0000:01:00.0";
const NVME: u32 = 0x01_08_02;

/// A machine with an NVMe controller and its driver, a bridge, and vfio-pci loaded.
struct Tree {
    root: TempDir,
}

impl Tree {
    fn new() -> Self {
        let tree = Self {
            root: tempfile::tempdir().expect("a temporary folder"),
        };
        tree.function(ADDRESS, "0x010802", Some("nvme"));
        tree.function("0000:00:1c.0", "0x060400", Some("pcieport"));
        for driver in ["nvme", "vfio-pci", "pcieport"] {
            tree.write(&format!("sys/bus/pci/drivers/{driver}/bind"), "");
            tree.write(&format!("sys/bus/pci/drivers/{driver}/unbind"), "");
        }
        tree.write("sys/bus/pci/drivers_probe", "");
        tree.write(
            "proc/self/mountinfo",
            "29 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n",
        );
        tree.write(
            "proc/swaps",
            "Filename\tType\tSize\tUsed\tPriority\n/dev/sda2 partition 1 0 -2\n",
        );
        tree.disk("nvme0n1", "259:0");
        tree.write(&tree.controller("nvme0n1/nvme0n1p1/partition"), "1\n");
        tree.write(&tree.controller("nvme0n1/nvme0n1p1/dev"), "259:1\n");
        tree
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        let folder = path.parent().expect("a path in the tree");
        fs::create_dir_all(folder).expect("the tree can be written");
        fs::write(&path, text).expect("the tree can be written");
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).expect("it is in the tree")
    }

    fn controller(&self, path: &str) -> String {
        format!("sys/bus/pci/devices/{ADDRESS}/nvme/nvme0/{path}")
    }

    fn function(&self, address: &str, class: &str, driver: Option<&str>) {
        let folder = format!("sys/bus/pci/devices/{address}");
        for (file, text) in [
            ("class", class),
            ("vendor", "0x1b36"),
            ("device", "0x0010"),
            ("numa_node", "-1"),
            ("driver_override", "(null)"),
        ] {
            self.write(&format!("{folder}/{file}"), &format!("{text}\n"));
        }
        let group = self.path("sys/kernel/iommu_groups/7");
        symlink(group, self.path(&folder).join("iommu_group")).expect("the tree can be written");
        if let Some(driver) = driver {
            self.drive(address, driver);
        }
    }

    fn drive(&self, address: &str, driver: &str) {
        let link = self.path(&format!("sys/bus/pci/devices/{address}/driver"));
        let _ = fs::remove_file(&link);
        let driver = self.path(&format!("sys/bus/pci/drivers/{driver}"));
        symlink(driver, link).expect("the tree can be written");
    }

    fn disk(&self, name: &str, number: &str) {
        self.write(
            &self.controller(&format!("{name}/dev")),
            &format!("{number}\n"),
        );
    }

    fn binder(&self) -> Binder {
        Binder::at(self.root.path())
    }

    fn plan(&self) -> millrace_pci::Result<Plan> {
        self.binder().plan_bind(address())
    }

    /// Asserts that binding is refused, for a reason that says this.
    fn assert_used(&self, expected: &str) {
        let error = self.plan().expect_err("it is used");
        assert_eq!(error.kind(), ErrorKind::InUse);
        assert!(error.to_string().contains(expected), "{error}");
    }
}

fn address() -> Address {
    ADDRESS.parse().expect("it is an address")
}

fn purposes(plan: &Plan) -> Vec<Purpose> {
    plan.steps.iter().map(|step| step.purpose).collect()
}

#[test]
fn a_free_function_is_bound_and_given_back() {
    let tree = Tree::new();
    let plan = tree.plan().expect("nobody uses it");
    let expected = [Purpose::Reserve, Purpose::Unbind, Purpose::Bind];
    assert_eq!(purposes(&plan), expected);
    let shown = plan.steps[0].to_string();
    assert!(
        shown.starts_with("reserve it: echo 'vfio-pci' > "),
        "{shown}"
    );
    // Planning writes nothing.
    assert_eq!(
        tree.read(&format!("sys/bus/pci/devices/{ADDRESS}/driver_override")),
        "(null)\n"
    );

    assert_eq!(tree.binder().bind(address()).ok(), Some(plan));
    assert_eq!(tree.read("sys/bus/pci/drivers/nvme/unbind"), ADDRESS);
    assert_eq!(tree.read("sys/bus/pci/drivers/vfio-pci/bind"), ADDRESS);

    tree.drive(ADDRESS, "vfio-pci");
    assert_eq!(tree.plan().map(|plan| plan.steps.len()).ok(), Some(0));
    let plan = tree.binder().unbind(address()).expect("nobody has it open");
    let expected = [Purpose::Release, Purpose::Unbind, Purpose::Probe];
    assert_eq!(purposes(&plan), expected);
    assert_eq!(tree.read("sys/bus/pci/drivers/vfio-pci/unbind"), ADDRESS);
    assert_eq!(tree.read("sys/bus/pci/drivers_probe"), ADDRESS);
}

#[test]
fn a_function_without_driver_is_bound_and_probed() {
    let tree = Tree::new();
    let link = tree.path(&format!("sys/bus/pci/devices/{ADDRESS}/driver"));
    fs::remove_file(link).expect("it is there");
    let plan = tree.plan().expect("nobody uses it");
    assert_eq!(purposes(&plan), [Purpose::Reserve, Purpose::Bind]);
    let plan = tree.binder().plan_unbind(address()).expect("nobody has it");
    assert_eq!(purposes(&plan), [Purpose::Release, Purpose::Probe]);
}

#[test]
fn a_function_with_its_own_driver_needs_no_unbinding() {
    let plan = Tree::new().binder().plan_unbind(address());
    assert_eq!(plan.map(|plan| plan.steps.len()).ok(), Some(0));
}

#[test]
fn what_is_used_is_refused() {
    let mount = |line: &str| {
        let tree = Tree::new();
        tree.write("proc/self/mountinfo", line);
        tree
    };
    mount("30 1 259:0 / /data rw - xfs /dev/nvme0n1 rw\n").assert_used("mounted at /data");
    mount("30 1 259:1 / /data rw shared:2 master:1 - ext4 /dev/root rw\n")
        .assert_used("nvme0n1p1, which is mounted at /data");
    // A file system on several devices has a number that no device has.
    mount("30 1 0:44 / /data rw - btrfs /dev/nvme0n1p1 rw\n").assert_used("mounted at /data");

    let tree = Tree::new();
    tree.write(
        "proc/swaps",
        "Filename Type\n/dev/nvme0n1p1 partition 1 0 -2\n",
    );
    tree.assert_used("nvme0n1p1, which is swapped to");

    let tree = Tree::new();
    tree.write(&tree.controller("nvme0n1/holders/md0/dev"), "9:0\n");
    tree.assert_used("nvme0n1, which is part of md0");
}

#[test]
fn a_disk_with_several_paths_is_found() {
    let tree = Tree::new();
    fs::remove_dir_all(tree.path(&tree.controller("nvme0n1"))).expect("it is there");
    // The path has no number; the disk is elsewhere and has.
    tree.write(&tree.controller("nvme3c0n1/size"), "1\n");
    tree.write("sys/class/block/nvme3n1/dev", "259:5\n");
    assert!(tree.plan().is_ok());
    tree.write(
        "proc/self/mountinfo",
        "30 1 259:5 / /data rw - xfs /dev/nvme3n1 rw\n",
    );
    tree.assert_used("nvme3n1, which is mounted");
}

#[test]
fn what_a_process_has_open_is_not_unbound() {
    let tree = Tree::new();
    tree.drive(ADDRESS, "vfio-pci");
    fs::create_dir_all(tree.path("proc/42/fd")).expect("the tree can be written");
    let group = tree.path("dev/vfio/7");
    symlink(group, tree.path("proc/42/fd/5")).expect("the tree can be written");
    let error = tree.binder().unbind(address()).expect_err("it is open");
    assert_eq!(error.kind(), ErrorKind::InUse);
    assert!(error.to_string().contains("process 42"), "{error}");
}

#[test]
fn what_is_missing_is_told() {
    let tree = Tree::new();
    let nowhere = tree
        .binder()
        .plan_bind("0000:7f:00.0".parse().expect("an address"));
    assert_eq!(
        nowhere.map_err(|error| error.kind()),
        Err(ErrorKind::NotFound)
    );

    fs::remove_dir_all(tree.path("sys/bus/pci/drivers/vfio-pci")).expect("it is there");
    let error = tree.plan().expect_err("it is not loaded");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("modprobe vfio-pci"), "{error}");

    let tree = Tree::new();
    let link = tree.path(&format!("sys/bus/pci/devices/{ADDRESS}/iommu_group"));
    fs::remove_file(link).expect("it is there");
    assert_eq!(
        tree.plan().map_err(|error| error.kind()),
        Err(ErrorKind::NoIommu)
    );
}

#[test]
fn functions_are_listed_by_class() {
    let tree = Tree::new();
    let listed = tree.binder().list(Some(NVME)).expect("the tree is whole");
    assert_eq!(listed.len(), 1);
    let function = &listed[0];
    assert_eq!(function.address, address());
    assert_eq!((function.vendor, function.device), (0x1b36, 0x10));
    assert_eq!(function.driver.as_deref(), Some("nvme"));
    assert_eq!(function.group.as_deref(), Some("7"));
    assert_eq!(function.node, None);
    assert_eq!(tree.binder().list(None).map(|all| all.len()).ok(), Some(2));

    tree.write(
        &format!("sys/bus/pci/devices/{ADDRESS}/class"),
        "nonsense\n",
    );
    let error = tree.binder().list(None).expect_err("it is no number");
    assert_eq!(error.kind(), ErrorKind::Protocol);
    let empty = Binder::at(Path::new("/nonexistent"));
    assert_eq!(empty.list(None).map(|all| all.len()).ok(), Some(0));
}
