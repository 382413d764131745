//! The machine and the process, as the kernel describes them.

use std::fs;

/// The machine the server runs on, as `hostInfo` and the settings' defaults need it.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// Memory, or the limit that a control group sets if that is lower, in bytes.
    pub memory_bytes: u64,
    /// The number of processors that this process may use; at least one.
    pub cores: usize,
    /// The operating system's name: `Linux`.
    pub os_type: String,
    /// The name of the distribution; empty if unknown.
    pub os_name: String,
    /// The release of the kernel, as `uname -r` prints it.
    pub kernel: String,
    /// The version of the kernel, as `uname -v` prints it.
    pub kernel_version: String,
    /// The model name of the processor; empty if unknown.
    pub cpu: String,
    /// The length of a memory page, in bytes.
    pub page_bytes: u64,
}

impl Machine {
    /// The machine as the kernel describes it at this moment.
    #[must_use]
    pub fn read() -> Self {
        let names = rustix::system::uname();
        let name = |name: &std::ffi::CStr| name.to_string_lossy().into_owned();
        Self {
            memory_bytes: memory_bytes(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            os_type: name(names.sysname()),
            os_name: field("/etc/os-release", "PRETTY_NAME=").unwrap_or_default(),
            kernel: name(names.release()),
            kernel_version: name(names.version()),
            cpu: field("/proc/cpuinfo", "model name").unwrap_or_default(),
            page_bytes: u64::try_from(rustix::param::page_size()).unwrap_or(0),
        }
    }
}

/// The name of the host, as the kernel knows it.
#[must_use]
pub fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// Memory of the machine, or of the control group if that has less, in bytes.
#[must_use]
pub fn memory_bytes() -> u64 {
    let total = field("/proc/meminfo", "MemTotal:")
        .and_then(|value| value.strip_suffix("kB")?.trim().parse::<u64>().ok())
        .map_or(1 << 30, |kib| kib << 10);
    let limit = fs::read_to_string("/sys/fs/cgroup/memory.max")
        .ok()
        .and_then(|text| text.trim().parse::<u64>().ok())
        .unwrap_or(u64::MAX);
    total.min(limit)
}

/// Memory of this process, in bytes: resident and virtual.
#[must_use]
pub fn process_memory_bytes() -> (u64, u64) {
    let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut pages = text
        .split(' ')
        .map(|number| number.parse::<u64>().unwrap_or(0));
    let size = pages.next().unwrap_or(0) * page;
    (pages.next().unwrap_or(0) * page, size)
}

/// What follows `name` on its first line in a file of the kernel's.
fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim_matches([' ', '\t', ':', '"']).to_owned())
}
