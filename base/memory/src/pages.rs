//! Huge page sizes that the kernel supports.

use std::fs;
use std::path::Path;

/// Where the kernel lists its huge pages.
const HUGE_PAGES: &str = "/sys/kernel/mm/hugepages";

/// The size of a base page in bytes: 4096, 16384 or 65536, as the kernel was built. On systems other than Linux
/// 65536, a multiple of every page size that they have.
#[must_use]
pub fn base_page_size() -> usize {
    #[cfg(target_os = "linux")]
    return rustix::param::page_size();
    #[cfg(not(target_os = "linux"))]
    return 64 << 10;
}

/// Huge pages of one size, as they were counted a moment ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugePages {
    /// The size of one page in bytes: a power of two.
    pub size: usize,
    /// Number of pages of this size.
    pub total: u64,
    /// Number of pages that are neither in use nor reserved.
    pub free: u64,
}

impl HugePages {
    /// Huge page sizes, largest first; empty if the kernel has none or does not report them.
    #[must_use]
    pub fn offered() -> Vec<Self> {
        Self::listed_in(Path::new(HUGE_PAGES))
    }

    /// Reads a folder like [`HUGE_PAGES`]. What cannot be understood is passed over: a size is of no use
    /// without its counts.
    fn listed_in(folder: &Path) -> Vec<Self> {
        let Ok(entries) = fs::read_dir(folder) else {
            return Vec::new();
        };
        let mut offered: Vec<Self> = entries
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let size = size_in_name(entry.file_name().to_str()?)?;
                let count = |name| count_in(&entry.path().join(name));
                let reserved = count("resv_hugepages").unwrap_or(0);
                Some(Self {
                    size,
                    total: count("nr_hugepages")?,
                    free: count("free_hugepages")?.saturating_sub(reserved),
                })
            })
            .collect();
        offered.sort_unstable_by_key(|pages| std::cmp::Reverse(pages.size));
        offered
    }
}

/// The size in bytes that a folder `hugepages-<n>kB` is about.
fn size_in_name(name: &str) -> Option<usize> {
    let kibibytes = name.strip_prefix("hugepages-")?.strip_suffix("kB")?;
    let size = kibibytes.parse::<usize>().ok()?.checked_mul(1024)?;
    size.is_power_of_two().then_some(size)
}

fn count_in(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_page_is_one_that_exists() {
        let size = base_page_size();
        assert!(size.is_power_of_two() && size >= 4096);
    }

    #[test]
    fn names_that_are_not_sizes_are_passed_over() {
        assert_eq!(size_in_name("hugepages-2048kB"), Some(2 << 20));
        assert_eq!(size_in_name("hugepages-16384kB"), Some(16 << 20));
        for name in [
            "",
            "hugepages-",
            "hugepages-kB",
            "hugepages-0kB",
            "hugepages-3kB",
            "hugepages--4kB",
            "hugepages-2048",
            "hugepages-2048MB",
            "hugepages-99999999999999999999kB",
            "hugepages-18014398509481984kB",
        ] {
            assert_eq!(size_in_name(name), None, "{name:?}");
        }
    }

    #[test]
    fn folders_that_cannot_be_understood_are_passed_over() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let write = |size: &str, name: &str, text: &str| {
            let of_size = folder.path().join(size);
            fs::create_dir_all(&of_size).expect("a folder can be made");
            fs::write(of_size.join(name), text).expect("a file can be written");
        };
        for (size, total, free, reserved) in [
            ("hugepages-2048kB", "10\n", "7\n", "3\n"),
            ("hugepages-1048576kB", "1", "1", "9"),
            ("hugepages-64kB", "five", "1", "0"),
            ("other", "1", "1", "0"),
        ] {
            write(size, "nr_hugepages", total);
            write(size, "free_hugepages", free);
            write(size, "resv_hugepages", reserved);
        }
        write("hugepages-16384kB", "nr_hugepages", "1");
        let of = |size, total, free| HugePages { size, total, free };
        assert_eq!(
            HugePages::listed_in(folder.path()),
            [of(1 << 30, 1, 0), of(2 << 20, 10, 4)]
        );
        assert!(HugePages::listed_in(&folder.path().join("nothing")).is_empty());
    }
}
