//! Binding, on trees that look like the kernel's.
#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use millrace_pci::binding::{Binder, Plan, Purpose, Step, write};
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
        self.write(&format!("dev/{name}"), "");
    }

    /// A disk that lies below a function in a folder of `/sys/devices`, as the kernel has them.
    fn disk_below(&self, path: &str, number: &str) {
        let (_, name) = path.rsplit_once('/').expect("it lies below something");
        let folder = format!("sys/devices/pci0000:00/{path}");
        self.write(&format!("{folder}/dev"), &format!("{number}\n"));
        self.write(&format!("dev/{name}"), "");
        let class = self.path("sys/class/block");
        fs::create_dir_all(&class).expect("the tree can be written");
        symlink(self.path(&folder), class.join(name)).expect("the tree can be written");
    }

    /// Moves the function to `/sys/devices`, and has a link lead there.
    fn linked(self) -> Self {
        let link = self.path(&format!("sys/bus/pci/devices/{ADDRESS}"));
        let folder = self.path(&format!("sys/devices/pci0000:00/{ADDRESS}"));
        let parent = folder.parent().expect("a path in the tree");
        fs::create_dir_all(parent).expect("the tree can be written");
        fs::rename(&link, &folder).expect("the tree can be written");
        symlink(folder, link).expect("the tree can be written");
        self
    }

    fn binder(&self) -> Binder {
        Binder::at(self.root.path()).with_write(be_the_kernel)
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

/// Writes, and moves the function as the kernel would.
fn be_the_kernel(step: &Step) -> millrace_pci::Result<()> {
    write(step)?;
    if step.purpose == Purpose::Bind || step.purpose == Purpose::Probe {
        let driver = match step.purpose {
            Purpose::Bind => step.path.parent().expect("a driver's folder").to_owned(),
            _ => step.path.with_file_name("drivers").join("nvme"),
        };
        let bus = step.path.ancestors().find(|path| path.ends_with("pci"));
        let function = bus.expect("a bus").join("devices").join(&step.value);
        let link = function.join("driver");
        let _ = fs::remove_file(&link);
        symlink(driver, link).expect("the tree can be written");
    }
    Ok(())
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
fn a_reservation_that_a_bind_left_behind_is_released() {
    let tree = Tree::new();
    let place = format!("sys/bus/pci/devices/{ADDRESS}/driver_override");
    tree.write(&place, "vfio-pci\n");
    let plan = tree.binder().unbind(address()).expect("nobody has it open");
    assert_eq!(purposes(&plan), [Purpose::Release]);
    // Unlike the kernel's, the tree's files keep what is not overwritten.
    assert!(tree.read(&place).starts_with('\n'));
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

    let tree = Tree::new();
    tree.write("sys/block/loop3/loop/backing_file", "/srv/image\n");
    assert!(tree.plan().is_ok());
    tree.write(
        "sys/block/loop3/loop/backing_file",
        "/dev/nvme0n1p1 (deleted)\n",
    );
    tree.assert_used("nvme0n1p1, which is part of loop3");
}

#[test]
fn disks_of_any_controller_are_found_however_deep() {
    let rows = [
        ("ata1/host0/target0:0:0/0:0:0:0/block/sdb", "8:16"),
        ("virtio3/block/vdb", "254:16"),
        (
            "host2/port-2:0/end_device-2:0/target2:0:0/2:0:0:0/block/sdb",
            "8:16",
        ),
        (
            "pci10000:00/10000:00:02.0/10000:01:00.0/nvme/nvme5/nvme5n1",
            "259:9",
        ),
    ];
    for (path, number) in rows {
        let tree = Tree::new().linked();
        tree.disk_below(&format!("{ADDRESS}/{path}"), number);
        // Its neighbour's name begins alike.
        tree.disk_below(&format!("{ADDRESS}0/ata9/block/sdz"), "8:99");
        let mount = |number: &str| {
            let line = format!("30 1 {number} / /data rw - ext4 /dev/root rw\n");
            tree.write("proc/self/mountinfo", &line);
        };
        mount("8:99");
        assert!(tree.plan().is_ok(), "{path}");
        mount(number);
        tree.assert_used("mounted at /data");
    }

    // The partition alone is mounted.
    let tree = Tree::new().linked();
    let disk = format!("{ADDRESS}/ata1/host0/target0:0:0/0:0:0:0/block/sdb");
    tree.disk_below(&disk, "8:16");
    tree.write(
        &format!("sys/devices/pci0000:00/{disk}/sdb1/partition"),
        "1\n",
    );
    tree.disk_below(&format!("{disk}/sdb1"), "8:17");
    tree.write(
        "proc/self/mountinfo",
        "30 1 8:17 / /data rw - ext4 /dev/root rw\n",
    );
    tree.assert_used("sdb1, which is mounted at /data");

    // Several paths to the disk of an NVMe controller behind another function.
    let tree = Tree::new().linked();
    let controller = "pci10000:00/10000:01:00.0/nvme/nvme5";
    let folder = format!("sys/devices/pci0000:00/{ADDRESS}/{controller}");
    tree.write(&format!("{folder}/nvme5c2n1/size"), "1\n");
    let class = tree.path("sys/class/nvme");
    fs::create_dir_all(&class).expect("the tree can be written");
    symlink(tree.path(&folder), class.join("nvme5")).expect("the tree can be written");
    tree.disk_below("virtual/nvme5n1", "259:5");
    tree.write(
        "proc/self/mountinfo",
        "30 1 259:5 / /data rw - xfs /dev/nvme5n1 rw\n",
    );
    tree.assert_used("nvme5n1, which is mounted");
}

#[test]
fn what_cannot_be_checked_is_refused() {
    let refused = |tree: &Tree, expected: &str| {
        let error = tree.plan().expect_err("it may be used");
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.to_string().contains(expected), "{error}");
    };
    let tree = Tree::new();
    fs::remove_file(tree.path("proc/self/mountinfo")).expect("it is there");
    refused(&tree, "mountinfo");

    let tree = Tree::new();
    fs::remove_file(tree.path("dev/nvme0n1")).expect("it is there");
    let error = tree.binder().bind(address()).expect_err("it may be used");
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.to_string().contains("has nvme0n1, and "), "{error}");
}

#[test]
fn what_has_come_to_be_used_is_not_bound() {
    let tree = Tree::new();
    let plan = tree.plan().expect("nobody uses it");
    tree.write(
        "proc/self/mountinfo",
        "30 1 259:0 / /data rw - xfs /dev/nvme0n1 rw\n",
    );
    let error = tree.binder().apply(&plan).expect_err("it is mounted");
    assert_eq!(error.kind(), ErrorKind::InUse);
    assert_eq!(
        tree.read(&format!("sys/bus/pci/devices/{ADDRESS}/driver_override")),
        "(null)\n"
    );
}

#[test]
fn a_disk_with_several_paths_is_found() {
    let tree = Tree::new();
    fs::remove_dir_all(tree.path(&tree.controller("nvme0n1"))).expect("it is there");
    // The path has no number; the disk is elsewhere and has.
    tree.write(&tree.controller("nvme3c0n1/size"), "1\n");
    tree.write("sys/class/block/nvme3n1/dev", "259:5\n");
    tree.write("dev/nvme3n1", "");
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
