//! `millrace nvme list`, `bind` and `unbind` on a tree like the kernel's.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::command_line::parse;
use millrace_pci::binding::{Binder, Purpose, Step, write};
use millrace_tools::ToolError;
use millrace_tools::nvme::{Command, ListReport, Machine, bind, unbind};
use millrace_tools::terminal::Report;
use serde_json::{Value, json};
use tempfile::TempDir;

const NVME: &str = "0x010802";
const SATA: &str = "0x010601";

/// A folder with `sys`, `proc` and `dev`.
struct Tree {
    folder: TempDir,
}

impl Tree {
    fn new() -> Self {
        let tree = Self {
            folder: TempDir::with_prefix("millrace-").expect("a temporary folder"),
        };
        tree.write("sys/bus/pci/drivers_probe", "");
        tree.write("proc/self/mountinfo", "");
        tree.write("proc/swaps", "");
        tree
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.folder.path().join(path);
        let parent = path.parent().expect("it is in the folder");
        fs::create_dir_all(parent).expect("the folder is ours");
        fs::write(path, text).expect("the folder is ours");
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.folder.path().join(path)).expect("a file")
    }

    fn link(&self, path: &str, target: &str) {
        let target = self.folder.path().join(target);
        fs::create_dir_all(&target).expect("the folder is ours");
        symlink(target, self.folder.path().join(path)).expect("the folder is ours");
    }

    fn function(&self, address: &str, class: &str, group: Option<&str>, driver: Option<&str>) {
        let folder = format!("sys/bus/pci/devices/{address}");
        let files = [
            ("vendor", "0x1b36\n"),
            ("device", "0x0010\n"),
            ("class", class),
            ("numa_node", "-1\n"),
            ("driver_override", "(null)\n"),
        ];
        for (name, text) in files {
            self.write(&format!("{folder}/{name}"), text);
        }
        if let Some(group) = group {
            self.link(
                &format!("{folder}/iommu_group"),
                &format!("sys/kernel/iommu_groups/{group}"),
            );
            self.write(&format!("dev/vfio/{group}"), "");
        }
        if let Some(driver) = driver {
            self.driver(driver);
            self.link(
                &format!("{folder}/driver"),
                &format!("sys/bus/pci/drivers/{driver}"),
            );
        }
    }

    fn driver(&self, driver: &str) {
        for file in ["bind", "unbind"] {
            self.write(&format!("sys/bus/pci/drivers/{driver}/{file}"), "");
        }
    }

    /// Namespace 1 of the kernel's controller `nvme0`.
    fn disk(&self, address: &str) {
        let controller = format!("sys/bus/pci/devices/{address}/nvme/nvme0");
        self.write(
            &format!("{controller}/model"),
            "A disk                    \n",
        );
        self.write(&format!("{controller}/nvme0n1/dev"), "259:0\n");
        self.write("dev/nvme0n1", "");
    }

    fn machine(&self) -> Machine {
        let binder = Binder::at(self.folder.path()).with_write(be_the_kernel);
        Machine::at(self.folder.path()).with_binder(binder)
    }

    /// Has nobody move functions from driver to driver.
    fn idle_machine(&self) -> Machine {
        Machine::at(self.folder.path())
    }

    fn list(&self) -> Value {
        ListReport::new(&self.machine()).expect("a tree").json()
    }

    fn run(&self, line: &str) -> Result<String, ToolError> {
        let (text, result) = self.run_on(&self.machine(), line);
        result.map(|()| text)
    }

    /// What is printed, and what comes of it.
    fn run_on(&self, machine: &Machine, line: &str) -> (String, Result<(), ToolError>) {
        let mut out = Vec::new();
        let result = match parse(line) {
            Command::Bind(options) => bind(machine, &options, &mut out),
            Command::Unbind(options) => unbind(machine, &options, &mut out),
            other => unreachable!("{other:?}"),
        };
        let root = self.folder.path().to_str().expect("a path of text");
        let text = String::from_utf8(out).expect("text");
        (text.replace(root, ""), result)
    }
}

/// Writes, and moves the function as the kernel would.
fn be_the_kernel(step: &Step) -> millrace_pci::Result<()> {
    write(step)?;
    let driver = match step.purpose {
        Purpose::Bind => step.path.parent().expect("a driver's folder").to_owned(),
        Purpose::Probe => step.path.with_file_name("drivers").join("nvme"),
        _ => return Ok(()),
    };
    let bus = step.path.ancestors().find(|path| path.ends_with("pci"));
    let function = bus.expect("a bus").join("devices").join(&step.value);
    let link = function.join("driver");
    let _ = fs::remove_file(&link);
    symlink(driver, link).expect("the folder is ours");
    Ok(())
}

#[test]
fn a_machine_without_devices_is_said_to_have_none() {
    let tree = Tree::new();
    tree.function("0000:00:1f.3", SATA, Some("3"), Some("ahci"));
    let report = ListReport::new(&tree.machine()).expect("a tree");
    assert_eq!(report.text(), "This machine has no NVMe device.\n");
    assert_eq!(report.json(), json!([]));
}

#[test]
fn a_list_says_what_can_be_opened_and_what_to_do_about_the_others() {
    let tree = Tree::new();
    tree.driver("vfio-pci");
    tree.function("0000:01:00.0", NVME, Some("1"), Some("nvme"));
    tree.disk("0000:01:00.0");
    tree.function("0000:02:00.0", NVME, Some("2"), Some("vfio-pci"));
    tree.function("0000:03:00.0", NVME, Some("3"), Some("vfio-pci"));
    tree.function("0000:03:00.1", SATA, Some("3"), Some("ahci"));
    tree.function("0000:03:00.2", SATA, Some("3"), Some("pcieport"));
    tree.function("0000:03:00.3", SATA, Some("3"), Some("pci-stub"));
    tree.function("0000:04:00.0", NVME, None, None);
    tree.function("0000:05:00.0", NVME, Some("5"), None);
    tree.function("0000:06:00.0", NVME, Some("6"), Some("vfio-pci"));
    tree.write("dev/vfio/noiommu-6", "");
    tree.function("0000:07:00.0", NVME, Some("7"), Some("vfio-pci"));
    tree.function("0000:07:00.1", SATA, Some("7"), Some("pci-stub"));
    let expected = "\
ADDRESS       MODEL        DRIVER        GROUP  NODE  CAN BE OPENED
0000:01:00.0  A disk       nvme (nvme0)      1     -  no: the kernel's driver nvme has it; `millrace nvme bind 0000:01:00.0`
0000:02:00.0  [1b36:0010]  vfio-pci          2     -  yes
0000:03:00.0  [1b36:0010]  vfio-pci          3     -  no: drivers of the kernel have others of its IOMMU group; `millrace nvme bind 0000:03:00.1 --any`
0000:04:00.0  [1b36:0010]  -                 -     -  no: there is no IOMMU for it; switch the IOMMU on in the firmware, and boot with intel_iommu=on (Intel)
0000:05:00.0  [1b36:0010]  -                 5     -  no: no driver has it; `millrace nvme bind 0000:05:00.0`
0000:06:00.0  [1b36:0010]  vfio-pci          6     -  no: its group has no IOMMU (the kernel's no-IOMMU mode); switch the IOMMU on in the firmware; this driver needs it
0000:07:00.0  [1b36:0010]  vfio-pci          7     -  yes
";
    let report = ListReport::new(&tree.machine()).expect("a tree");
    assert_eq!(report.text(), expected);
    let list = report.json();
    assert_eq!(
        list[1],
        json!({
            "address": "0000:02:00.0",
            "vendor": "0x1b36",
            "device": "0x0010",
            "model": null,
            "kernel_name": null,
            "driver": "vfio-pci",
            "iommu_group": "2",
            "numa_node": null,
            "can_open": true,
            "reason": null,
            "advice": null,
        })
    );
    assert_eq!(list[0]["model"], json!("A disk"));
    assert_eq!(list[0]["can_open"], json!(false));
}

#[test]
fn a_list_names_mounted_disks_and_owners() {
    let tree = Tree::new();
    tree.driver("vfio-pci");
    tree.function("0000:01:00.0", NVME, Some("1"), Some("nvme"));
    tree.disk("0000:01:00.0");
    let mount = "25 1 259:0 / /srv rw,relatime - ext4 /dev/nvme0n1 rw\n";
    tree.write("proc/self/mountinfo", mount);
    tree.function("0000:02:00.0", NVME, Some("2"), Some("vfio-pci"));
    let descriptor = "proc/4242/fd/7";
    tree.write("proc/4242/fd/3", "");
    let group = tree.folder.path().join("dev/vfio/2");
    symlink(group, tree.folder.path().join(descriptor)).expect("the folder is ours");
    let list = tree.list();
    let reason = |index: usize| {
        list[index]["reason"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    assert!(
        reason(0).contains("has nvme0n1, which is mounted at /srv"),
        "{list}"
    );
    assert!(
        reason(1).contains("process 4242 has 0000:02:00.0 open"),
        "{list}"
    );

    let error = tree.run("bind 0000:01:00.0").expect_err("it is mounted");
    assert_eq!(error.to_string(), "0000:01:00.0 could not be bound");
    assert_eq!(tree.read("sys/bus/pci/drivers/nvme/unbind"), "");
    tree.run("unbind 0000:02:00.0")
        .expect_err("a process has it");
}

#[test]
fn binding_prints_its_steps_and_does_them() {
    let tree = Tree::new();
    tree.driver("vfio-pci");
    tree.function("0000:01:00.0", NVME, Some("1"), Some("nvme"));
    let steps = "\
0000:01:00.0:
  1. reserve it: echo 'vfio-pci' > /sys/bus/pci/devices/0000:01:00.0/driver_override
  2. take it from its driver: echo '0000:01:00.0' > /sys/bus/pci/devices/0000:01:00.0/driver/unbind
  3. give it to the driver: echo '0000:01:00.0' > /sys/bus/pci/drivers/vfio-pci/bind
";
    let text = tree.run("bind nvme:01:00.0 --dry-run").expect("a plan");
    assert_eq!(text, format!("{steps}Nothing was done (--dry-run).\n"));
    assert_eq!(tree.read("sys/bus/pci/drivers/vfio-pci/bind"), "");

    let text = tree.run("bind 01:00.0").expect("files that can be written");
    let end = "0000:01:00.0 is driven by vfio-pci now.\n\
               `chown USER /dev/vfio/1` lets an ordinary user open it.\n";
    assert_eq!(text, format!("{steps}{end}"));
    assert_eq!(tree.read("sys/bus/pci/drivers/nvme/unbind"), "0000:01:00.0");
    assert_eq!(
        tree.read("sys/bus/pci/drivers/vfio-pci/bind"),
        "0000:01:00.0"
    );
}

#[test]
fn a_dry_run_names_the_disks_and_opens_none() {
    let tree = Tree::new();
    tree.driver("vfio-pci");
    tree.function("0000:01:00.0", NVME, Some("1"), Some("nvme"));
    tree.disk("0000:01:00.0");
    // It could not be opened.
    fs::remove_file(tree.folder.path().join("dev/nvme0n1")).expect("it is there");
    let text = tree.run("bind 01:00.0 --dry-run").expect("a plan");
    assert!(
        text.contains("\nBefore the first step nvme0n1 is opened exclusively;"),
        "{text}"
    );
    let error = tree.run("bind 01:00.0").expect_err("it cannot be opened");
    assert_eq!(error.to_string(), "0000:01:00.0 could not be bound");
    assert_eq!(tree.read("sys/bus/pci/drivers/nvme/unbind"), "");
}

#[test]
fn what_fails_midway_is_printed_as_far_as_it_went() {
    let tree = Tree::new();
    tree.driver("vfio-pci");
    tree.function("0000:01:00.0", NVME, Some("1"), Some("nvme"));
    let refusing = Binder::at(tree.folder.path()).with_write(|step| match step.purpose {
        Purpose::Bind => Err(millrace_pci::Error::new(
            millrace_pci::ErrorKind::Refused,
            step.to_string(),
        )),
        _ => write(step),
    });
    let refusing = tree.idle_machine().with_binder(refusing);
    for (machine, cause) in [
        (tree.idle_machine(), "has the driver nvme, not"),
        (refusing, "only 2 of 3 steps"),
    ] {
        let (text, result) = tree.run_on(&machine, "bind 01:00.0 --json");
        let json: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(json["done"], json!(false));
        assert_eq!(json["driver"], json!("nvme"));
        assert_eq!(json["steps"].as_array().map(Vec::len), Some(3));
        let error = result.expect_err("vfio-pci did not get it");
        let source = std::error::Error::source(&error).expect("a cause");
        let source = source.to_string();
        assert!(source.contains(cause), "{source}");
        assert!(
            source.contains("`millrace nvme unbind 0000:01:00.0`"),
            "{source}"
        );

        let (text, result) = tree.run_on(&machine, "bind 01:00.0");
        assert!(
            result.is_err() && text.contains("  3. give it to the driver"),
            "{text}"
        );
        assert!(
            !text.contains("dry-run") && !text.contains("now."),
            "{text}"
        );
    }
}

#[test]
fn unbinding_gives_a_device_back() {
    let tree = Tree::new();
    tree.function("0000:02:00.0", NVME, Some("2"), Some("vfio-pci"));
    let text = tree
        .run("unbind 0000:02:00.0 --json")
        .expect("files that can be written");
    let json: Value = serde_json::from_str(&text).expect("JSON");
    let purposes: Vec<&str> = json["steps"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|step| step["purpose"].as_str())
        .collect();
    assert_eq!(purposes, ["release", "unbind", "probe"]);
    assert_eq!(json["done"], json!(true));
    assert_eq!(tree.read("sys/bus/pci/drivers_probe"), "0000:02:00.0");
    tree.function("0000:03:00.0", NVME, Some("3"), Some("nvme"));
    let text = tree.run("unbind 0000:03:00.0").expect("nothing to do");
    assert!(
        text.starts_with("0000:03:00.0 has a driver of the kernel already.\n"),
        "{text}"
    );
}

#[test]
fn what_is_no_nvme_device_is_bound_only_on_request() {
    let tree = Tree::new();
    tree.driver("vfio-pci");
    tree.function("0000:00:1f.3", SATA, Some("3"), Some("ahci"));
    let error = tree.run("bind 00:1f.3").expect_err("it is no disk");
    assert_eq!(
        error.to_string(),
        "0000:00:1f.3 is no NVMe device: its class is 0x010601"
    );
    assert!(error.advice()[0].contains("--any"));
    tree.run("bind 00:1f.3 --any").expect("it is wanted");
    let bind = tree.read("sys/bus/pci/drivers/vfio-pci/bind");
    assert_eq!(bind, "0000:00:1f.3");
}

#[test]
fn binding_says_what_is_missing() {
    let tree = Tree::new();
    tree.function("0000:04:00.0", NVME, None, Some("nvme"));
    tree.function("0000:05:00.0", NVME, Some("5"), Some("nvme"));
    let rows = [
        ("bind 0000:04:00.0", "no IOMMU", "intel_iommu=on"),
        ("bind 0000:05:00.0", "`modprobe vfio-pci` loads it", ""),
        (
            "bind 0000:06:00.0",
            "no such PCI function",
            "`millrace nvme list`",
        ),
    ];
    for (line, cause, advice) in rows {
        let error = tree.run(line).expect_err(line);
        let source = std::error::Error::source(&error)
            .expect("a cause")
            .to_string();
        assert!(source.contains(cause), "{line}: {source}");
        assert!(
            error.advice().join("; ").contains(advice),
            "{line}: {error:?}"
        );
    }
}

#[test]
fn only_whole_devices_are_bound() {
    use clap::Parser as _;
    for (address, expected) in [
        ("0000:01:00.0/1", "with all its namespaces"),
        ("vfio-user:/run/x.sock", "a process serves this device"),
        ("nvme0", "`millrace nvme list`"),
    ] {
        let line = ["millrace", "nvme", "bind", address];
        let error = millrace::settings::Cli::try_parse_from(line).expect_err(address);
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn the_tree_of_this_machine_can_be_listed() {
    let here = Machine::at(Path::new("/"));
    let report = ListReport::new(&here).expect("the kernel lists its functions");
    assert!(report.json().is_array());
}
