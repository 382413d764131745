//! What the process may lock.

use std::fs;

use rustix::process::{Resource, getrlimit};

use crate::{Error, ErrorKind};

impl Error {
    /// Error for `bytes` more of memory that may not be locked: states the limit, the memory locked already, and how to
    /// raise the limit. Also for a [`Domain`](crate::Domain) whose mappings the kernel refuses to pin.
    #[must_use]
    pub fn lock_limit(attempted: &str, bytes: usize) -> Self {
        let limit = match getrlimit(Resource::Memlock).current {
            Some(limit) => format!("{} KiB", limit / 1024),
            None => "unlimited".to_owned(),
        };
        let needed = bytes.div_ceil(1024);
        let locked = match locked_kibibytes() {
            Some(locked) => format!(" on top of the {locked} KiB that it has locked"),
            None => String::new(),
        };
        Self::new(
            ErrorKind::LockLimit,
            format!(
                "{attempted}: the process needs {needed} KiB{locked}, and RLIMIT_MEMLOCK is {limit}; raise \
                 it with `ulimit -l`, LimitMEMLOCK= in the systemd unit, or a memlock line in \
                 /etc/security/limits.d, or give the process CAP_IPC_LOCK"
            ),
        )
    }
}

/// Locked memory that counts against the limit, in KiB, if the kernel reports it.
fn locked_kibibytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmLck:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}
