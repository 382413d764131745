//! Available memory, checked before an allocation.
//!
//! The kernel hands out base pages until none is left, and then kills a process: this one or another
//! (`Documentation/admin-guide/mm/concepts.rst`, OOM killer). Therefore the available memory is checked first. It has
//! three bounds: the machine, the process's memory groups, and the requested node. A bound that the kernel does not
//! report is ignored.
//!
//! File pages that can be dropped count as available, for a group as for the machine: they fill any limit in
//! time. Swap does not: a pool of buffers must not depend on it.

use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::{Error, ErrorKind, Result};

/// Where Linux shows processes, and its devices.
const PROC: &str = "/proc";
const NODES: &str = "/sys/devices/system/node";

/// What bounds memory.
#[derive(Debug, PartialEq, Eq)]
struct Bound {
    /// Available memory, in bytes.
    left: u64,
    whose: String,
    advice: &'static str,
}

/// Fails if less memory is available than needed. Allocations of other processes after the check are not detected.
///
/// # Errors
/// [`ErrorKind::NoMemory`] if `size` bytes of base pages, from `node` if one is named, exceed the available memory.
pub(crate) fn check(size: usize, node: Option<u32>) -> Result<()> {
    let size = size as u64;
    let machine = read(&Path::new(PROC).join("meminfo")).and_then(|text| of_machine(&text));
    let node = node.and_then(|node| {
        let text = read(&Path::new(NODES).join(format!("node{node}/meminfo")))?;
        of_node(node, &text)
    });
    let this = Path::new(PROC).join("self");
    let groups = match (read(&this.join("cgroup")), read(&this.join("mountinfo"))) {
        (Some(paths), Some(mounts)) => groups(&paths, &mounts),
        _ => Vec::new(),
    };
    let groups = groups.iter().filter_map(|group| group.bound(size));
    let bounds = machine.into_iter().chain(node).chain(groups);
    match bounds.min_by_key(|bound| bound.left) {
        Some(bound) if bound.left < size => Err(bound.refusal(size)),
        _ => Ok(()),
    }
}

impl Bound {
    fn refusal(&self, size: u64) -> Error {
        let (wanted, left) = (size.div_ceil(1024), self.left / 1024);
        let context = format!(
            "{wanted} KiB are wanted, and {} has {left} KiB left; ask for less, or {}",
            self.whose, self.advice
        );
        Error::new(ErrorKind::NoMemory, context)
    }
}

/// By `/proc/meminfo`.
fn of_machine(text: &str) -> Option<Bound> {
    Some(Bound {
        left: bytes_of(text, "MemAvailable:")?,
        whose: "this machine".to_owned(),
        advice: "end programs that use the rest",
    })
}

/// Bound of a node's own `meminfo`, which has no `MemAvailable`.
fn of_node(node: u32, text: &str) -> Option<Bound> {
    let of = |name| bytes_of(text, name);
    let droppable = ["Active(file):", "Inactive(file):", "SReclaimable:"]
        .iter()
        .filter_map(|name| of(name))
        .fold(0, u64::saturating_add);
    Some(Bound {
        left: of("MemFree:")?.saturating_add(droppable),
        whose: format!("NUMA node {node}"),
        advice: "name another node or none",
    })
}

/// A value of a `meminfo`, whose lines are "name: value kB"; a node's lines begin with its number.
fn bytes_of(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip_while(|word| *word != name);
        match (words.nth(1)?.parse::<u64>(), words.next()) {
            (Ok(kibibytes), Some("kB")) => kibibytes.checked_mul(1024),
            _ => None,
        }
    })
}

/// The versions of memory groups: their files have other names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A group that counts this process's memory.
#[derive(Debug, PartialEq, Eq)]
struct Group {
    version: Version,
    folder: PathBuf,
}

/// All groups that do, from the process's own up to the highest that can be seen: each bounds what lies
/// below.
fn groups(paths: &str, mounts: &str) -> Vec<Group> {
    let mut groups = Vec::new();
    for version in [Version::One, Version::Two] {
        let (Some(path), Some((top, mounted))) =
            (path_of(version, paths), mount_of(version, mounts))
        else {
            continue;
        };
        let Ok(below) = Path::new(path).strip_prefix(top) else {
            continue;
        };
        // A group that the mount does not show is written as one beside the highest.
        if below.components().any(|part| part == Component::ParentDir) {
            continue;
        }
        let count = below.components().count() + 1;
        let own: PathBuf = mounted.components().chain(below.components()).collect();
        groups.extend(own.ancestors().take(count).map(|folder| Group {
            version,
            folder: folder.to_owned(),
        }));
    }
    groups
}

/// The process's group, by the lines of `/proc/self/cgroup`: "number:controllers:path".
fn path_of(version: Version, paths: &str) -> Option<&str> {
    paths.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let found = match version {
            Version::One => controllers.split(',').any(|name| name == "memory"),
            Version::Two => number == "0" && controllers.is_empty(),
        };
        found.then_some(path)
    })
}

/// Which group is the highest that can be seen, and where, by the lines of `/proc/self/mountinfo`: "number
/// parent device root where options... - type source options" (proc_pid_mountinfo(5)).
fn mount_of(version: Version, mounts: &str) -> Option<(PathBuf, PathBuf)> {
    mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let (name, options) = (kind.next()?, kind.nth(1)?);
        let found = match version {
            Version::One => name == "cgroup" && options.split(',').any(|option| option == "memory"),
            Version::Two => name == "cgroup2",
        };
        let mut place = place.split(' ').skip(3);
        let (top, mounted) = (place.next()?, place.next()?);
        found.then(|| (unescaped(top), unescaped(mounted)))
    })
}

/// A path of `mountinfo`, where blanks are written as octal numbers.
fn unescaped(path: &str) -> PathBuf {
    [
        (r"\040", " "),
        (r"\011", "\t"),
        (r"\012", "\n"),
        (r"\134", r"\"),
    ]
    .iter()
    .fold(path.to_owned(), |path, (from, to)| path.replace(from, to))
    .into()
}

impl Group {
    /// Memory that the bound leaves, if that is relevant to a request of `size` bytes.
    fn bound(&self, size: u64) -> Option<Bound> {
        let (limit, usage, advice) = match self.version {
            Version::One => (
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                "raise the group's memory.limit_in_bytes",
            ),
            Version::Two => (
                "memory.max",
                "memory.current",
                "raise the group's memory.max (MemoryMax= in a systemd unit)",
            ),
        };
        let number = |name| read(&self.folder.join(name))?.trim().parse::<u64>().ok();
        // Without a limit it is the word "max", or too large to matter.
        let (limit, usage) = (number(limit)?, number(usage)?);
        let mut left = limit.saturating_sub(usage);
        if left < size {
            // Adding this up takes the kernel some time.
            let statistics = read(&self.folder.join("memory.stat")).unwrap_or_default();
            let used = usage.saturating_sub(droppable(self.version, &statistics));
            left = limit.saturating_sub(used);
        }
        Some(Bound {
            left,
            whose: format!("the memory group {}", self.folder.display()),
            advice,
        })
    }
}

/// What the kernel can drop of a group and those below, file pages and slabs, by its `memory.stat`: lines of
/// "name value", in bytes.
fn droppable(version: Version, statistics: &str) -> u64 {
    let names = match version {
        // Without "total", those of the group alone.
        Version::One => ["total_active_file", "total_inactive_file"].as_slice(),
        Version::Two => &["active_file", "inactive_file", "slab_reclaimable"],
    };
    let value = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        names.contains(&name).then(|| value.parse::<u64>().ok())?
    };
    statistics
        .lines()
        .filter_map(value)
        .fold(0, u64::saturating_add)
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_machine_tells_what_is_available() {
        let text = "MemTotal:       24684092 kB\nMemFree:        22507880 kB\n\
                    MemAvailable:   24016316 kB\nBuffers:           15368 kB\n";
        let bound = of_machine(text).expect("it is told");
        assert_eq!(bound.left, 24_016_316 * 1024);
        for text in [
            "",
            "MemFree: 1 kB\n",
            "MemAvailable:\n",
            "MemAvailable: kB\n",
            "MemAvailable: 12\n",
            "MemAvailable: 12 MB\n",
            "MemAvailable: -12 kB\n",
            "MemAvailable: 18446744073709551615 kB\n",
        ] {
            assert_eq!(of_machine(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_node_has_what_is_free_and_what_can_be_dropped() {
        let text = "\nNode 1 MemTotal:        6252756 kB\nNode 1 MemFree:         4000 kB\n\
                    Node 1 Active:           900 kB\nNode 1 Inactive:        900 kB\n\
                    Node 1 Active(file):     300 kB\nNode 1 Inactive(file):   20 kB\n\
                    Node 1 FilePages:        900 kB\n";
        let bound = of_node(1, text).expect("it is told");
        assert_eq!(bound.left, 4320 * 1024);
        assert_eq!(of_node(1, "Node 1 MemTotal: 5 kB\n"), None);
    }

    fn folders(paths: &str, mounts: &str) -> Vec<(Version, String)> {
        let name = |group: Group| (group.version, group.folder.display().to_string());
        groups(paths, mounts).into_iter().map(name).collect()
    }

    #[test]
    fn groups_are_found_where_they_are_mounted() {
        let unified =
            "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
        let of = |version, names: &[&str]| -> Vec<(Version, String)> {
            names
                .iter()
                .map(|name| (version, (*name).to_owned()))
                .collect()
        };
        assert_eq!(
            folders("0::/system.slice/millrace.service\n", unified),
            of(
                Version::Two,
                &[
                    "/sys/fs/cgroup/system.slice/millrace.service",
                    "/sys/fs/cgroup/system.slice",
                    "/sys/fs/cgroup",
                ]
            )
        );
        // In a container with names of its own.
        assert_eq!(
            folders("0::/\n", unified),
            of(Version::Two, &["/sys/fs/cgroup"])
        );
        assert_eq!(folders("0::/../other\n", unified), []);
        // Both versions; the second has no memory controller then, and no files for it.
        let both = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
                    33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                    41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let paths = "9:name=systemd:/\n4:memory:/a b/c:d\n1:cpu,cpuacct:/e\n0::/f\n";
        let mut expected = of(
            Version::One,
            &[
                "/sys/fs/cgroup/memory/a b/c:d",
                "/sys/fs/cgroup/memory/a b",
                "/sys/fs/cgroup/memory",
            ],
        );
        let two = ["/sys/fs/cgroup/unified/f", "/sys/fs/cgroup/unified"];
        expected.extend(of(Version::Two, &two));
        assert_eq!(folders(paths, both), expected);
    }

    #[test]
    fn a_mount_may_show_a_part_of_the_groups() {
        let part =
            "35 31 0:32 /docker/12ab /sys/fs/my\\040groups ro master:7 - cgroup cgroup rw,memory\n";
        for (path, expected) in [
            ("/docker/12ab", vec!["/sys/fs/my groups"]),
            (
                "/docker/12ab/inner",
                vec!["/sys/fs/my groups/inner", "/sys/fs/my groups"],
            ),
            ("/docker/12abc", vec![]),
            ("/", vec![]),
        ] {
            let found = folders(&format!("5:memory,hugetlb:{path}\n"), part);
            let names: Vec<_> = found.iter().map(|(_, name)| name.as_str()).collect();
            assert_eq!(names, expected, "{path}");
        }
        for mounts in [
            "",
            "31 23 0:28 /",
            "31 23 0:28 / - cgroup2",
            "nothing - at all\n",
        ] {
            assert_eq!(folders("0::/\n5:memory:/\n", mounts), []);
        }
        for paths in ["", "0:", "0::", "memory"] {
            assert!(folders(paths, part).is_empty());
        }
    }

    /// Memory that a group with these files leaves for a request of `size` bytes.
    fn left(version: Version, size: u64, files: &[(&str, &str)]) -> Option<u64> {
        let folder = tempfile::tempdir().expect("a folder can be made");
        for (name, text) in files {
            fs::write(folder.path().join(name), text).expect("a file can be written");
        }
        let group = Group {
            version,
            folder: folder.path().to_owned(),
        };
        group.bound(size).map(|bound| bound.left)
    }

    #[test]
    fn a_group_leaves_its_limit_less_what_cannot_be_dropped() {
        let (limit, usage) = (
            ("memory.max", "104857600\n"),
            ("memory.current", "94371840\n"),
        );
        let statistics = (
            "memory.stat",
            "anon 1\nfile 99\nactive_file 5242880\ninactive_file 1048576\n",
        );
        let two = |size, files: &[_]| left(Version::Two, size, files);
        assert_eq!(two(10 * MIB, &[limit, usage, statistics]), Some(10 * MIB));
        assert_eq!(
            two(10 * MIB + 1, &[limit, usage, statistics]),
            Some(16 * MIB)
        );
        assert_eq!(two(10 * MIB + 1, &[limit, usage]), Some(10 * MIB));
        // It may have been lowered below what is used.
        assert_eq!(two(MIB, &[("memory.max", "4096\n"), usage]), Some(0));
        for limit in ["max\n", "", "much\n"] {
            assert_eq!(two(MIB, &[("memory.max", limit), usage, statistics]), None);
        }
        assert_eq!(two(MIB, &[limit]), None);
        assert_eq!(two(MIB, &[]), None);

        let of_one = [
            ("memory.limit_in_bytes", "104857600\n"),
            ("memory.usage_in_bytes", "94371840\n"),
            (
                "memory.stat",
                "active_file 7\ninactive_file 7\ntotal_active_file 5242880\ntotal_inactive_file 0\n",
            ),
        ];
        assert_eq!(left(Version::One, 11 * MIB, &of_one), Some(15 * MIB));
        assert_eq!(two(MIB, &of_one), None);
        let unlimited = ("memory.limit_in_bytes", "9223372036854771712\n");
        let left = left(Version::One, MIB, &[unlimited, of_one[1]]);
        assert!(left.is_some_and(|left| left > 1 << 62));
    }

    #[test]
    fn a_refusal_says_how_much_and_what_to_do() {
        let bound = of_machine("MemAvailable: 1000 kB").expect("it is told");
        let refusal = bound.refusal(MIB);
        assert_eq!(refusal.kind(), ErrorKind::NoMemory);
        assert_eq!(
            refusal.to_string(),
            "no such memory is free: 1024 KiB are wanted, and this machine has 1000 KiB left; ask for less, \
             or end programs that use the rest"
        );
    }
}
