//! More memory than this machine has. A program of its own: what asks for so much may be ended by the kernel.

use std::fs;

use millrace_memory::{ErrorKind, Pages, Region, RegionOptions};

/// All of the machine's memory in bytes, more than can be available.
fn total() -> Option<usize> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let mut lines = meminfo.lines();
    let figure = lines.find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: usize = figure.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[test]
fn what_the_machine_does_not_have_is_an_error_that_says_how_much_there_is() {
    let total = total().expect("Linux tells");
    // If this went wrong the kernel would end a process: this one rather than another.
    fs::write("/proc/self/oom_score_adj", "1000").expect("anybody may be ended first");
    for (pages, node) in [
        (Pages::Base, None),
        (Pages::Auto, None),
        (Pages::Base, Some(0)),
    ] {
        let options = RegionOptions {
            pages,
            node,
            locked: false,
        };
        let error = Region::new(total, &options).expect_err("so much is not available");
        assert_eq!(error.kind(), ErrorKind::NoMemory, "{error}");
        let message = error.to_string();
        let wanted = format!("{} KiB are wanted, and ", total.div_ceil(1024));
        for part in [&wanted, " KiB left; ask for less, or "] {
            assert!(message.contains(part), "{part:?} is not in {message:?}");
        }
    }
}
