//! Huge pages for a test that needs some.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use millrace_memory::HugePages;
use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;

/// Where the kernel counts pages of one size, wherever they are.
const EVERYWHERE: &str = "/sys/kernel/mm/hugepages";

/// How many bytes are added at most: clearing a page of 1 GiB may take many seconds.
const ADDED_MAX: u64 = 64 << 20;

/// How much of what is available may be made huge pages.
const SHARE_DIVISOR: u64 = 4;

/// Huge pages that are free, set aside by root until this is dropped. Others may take them nevertheless.
#[derive(Debug)]
pub(crate) struct SpareHugePages {
    /// The kernel's count, and how many were added to it.
    added: Option<(PathBuf, u64)>,
    /// One test at a time adds pages of this size. The lock is on the kernel's own folder.
    _lock: File,
}

impl SpareHugePages {
    /// Sees that there are `count` free pages of `size` bytes, on a node if one is named: root adds some. If
    /// there are not enough, it says that `test` goes without.
    pub(crate) fn new(test: &str, size: usize, count: u64, node: Option<u32>) -> Option<Self> {
        match Self::try_new(size, count, node) {
            Ok(pages) => Some(pages),
            Err(why) => {
                let kibibytes = size / 1024;
                say(&format!(
                    "{test}: without huge pages of {kibibytes} KiB: {why}"
                ));
                None
            }
        }
    }

    fn try_new(size: usize, count: u64, node: Option<u32>) -> Result<Self, String> {
        if cfg!(miri) {
            return Err("miri has none".to_owned());
        }
        let of_size = format!("hugepages-{}kB", size / 1024);
        let everywhere = Path::new(EVERYWHERE).join(&of_size);
        let lock = File::open(&everywhere).map_err(|error| error.to_string())?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|error| error.to_string())?;
        let mut pages = Self {
            added: None,
            _lock: lock,
        };
        let bytes = count * size as u64;
        if !geteuid().is_root() || bytes > ADDED_MAX {
            let offered = HugePages::offered();
            let free = offered.iter().find(|pages| pages.size == size);
            return match free.is_some_and(|pages| pages.free >= count) {
                true => Ok(pages),
                false => {
                    Err("too few are free; only root can add some, of moderate size".to_owned())
                }
            };
        }
        let available = available().ok_or("the kernel does not say how much memory it has")?;
        if bytes > available / SHARE_DIVISOR {
            return Err("there is too little memory to add some".to_owned());
        }
        let counter = match node {
            Some(node) => format!("/sys/devices/system/node/node{node}/hugepages/{of_size}").into(),
            None => everywhere,
        }
        .join("nr_hugepages");
        let before = read(&counter)?;
        write(&counter, before + count)?;
        let added = read(&counter)?.saturating_sub(before);
        pages.added = Some((counter, added));
        match added < count {
            true => Err("memory is too scattered to add some".to_owned()),
            false => Ok(pages),
        }
    }
}

impl Drop for SpareHugePages {
    fn drop(&mut self) {
        if let Some((counter, added)) = &self.added {
            let less = read(counter).map(|count| count.saturating_sub(*added));
            if let Err(error) = less.and_then(|count| write(counter, count)) {
                say(&format!("{added} huge pages remain: {error}"));
            }
        }
    }
}

/// Says something that is seen also when the test succeeds, unlike what is printed.
pub(crate) fn say(what: &str) {
    writeln!(std::io::stderr(), "{what}").expect("standard error is there");
}

fn available() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let mut lines = meminfo.lines();
    let figure = lines.find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = figure.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

fn read(counter: &Path) -> Result<u64, String> {
    let text = fs::read_to_string(counter)
        .map_err(|error| format!("reading {}: {error}", counter.display()))?;
    text.trim()
        .parse()
        .map_err(|_| format!("{} says {text:?}", counter.display()))
}

fn write(counter: &Path, count: u64) -> Result<(), String> {
    fs::write(counter, count.to_string())
        .map_err(|error| format!("writing {}: {error}", counter.display()))
}
