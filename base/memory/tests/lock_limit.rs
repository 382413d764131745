//! A process without privileges that may lock little. A program of its own: a limit is the whole process's.

#[path = "it/spare_huge_pages.rs"]
mod spare_huge_pages;

use std::thread;

use millrace_memory::{ErrorKind, HugePages, Pages, Region, RegionOptions, base_page_size};
use rustix::process::{Resource, Rlimit, getrlimit, getuid, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, set_capabilities, set_thread_res_gid, set_thread_res_uid,
};
use spare_huge_pages::SpareHugePages;

const NOBODY: u32 = 65534;

/// The calling thread becomes nobody, whom limits bind.
fn give_up_privileges() {
    if getuid().is_root() {
        let (user, group) = (
            rustix::process::Uid::from_raw(NOBODY),
            rustix::process::Gid::from_raw(NOBODY),
        );
        set_thread_res_gid(group, group, group).expect("root may");
        set_thread_res_uid(user, user, user).expect("root may");
    }
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, none).expect("anybody may give up capabilities");
}

#[test]
fn the_limit_is_an_error_that_says_what_to_do() {
    let page_size = base_page_size();
    let limit = 16 * page_size as u64;
    let maximum = getrlimit(Resource::Memlock).maximum;
    let lowered = Rlimit {
        current: Some(limit),
        maximum,
    };
    setrlimit(Resource::Memlock, lowered).expect("anybody may lower a limit");
    let base = RegionOptions {
        pages: Pages::Base,
        node: None,
        locked: true,
    };
    let offered = HugePages::offered();
    // The smallest: larger ones take the kernel long to find.
    let smallest = offered.last().map(|pages| pages.size);
    let test = "huge pages need no privileges";
    let _spare = smallest.and_then(|size| SpareHugePages::new(test, size, 1, None));
    let nobody = thread::spawn(move || {
        give_up_privileges();
        let within = Region::new(8 * page_size, &base).expect("so much may be locked");
        let beyond = Region::new(9 * page_size, &base).expect_err("with the first it is too much");
        assert_eq!(beyond.kind(), ErrorKind::LockLimit);
        let message = beyond.to_string();
        let limit = format!("RLIMIT_MEMLOCK is {} KiB", limit / 1024);
        let needed = format!("needs {} KiB", 9 * page_size / 1024);
        for part in [&limit, &needed, "ulimit -l", "LimitMEMLOCK=", "limits.d"] {
            assert!(message.contains(part), "{part:?} is not in {message:?}");
        }
        drop(within);
        Region::new(9 * page_size, &base).expect("the first is unlocked");

        let none = Rlimit {
            current: Some(0),
            maximum,
        };
        setrlimit(Resource::Memlock, none).expect("anybody may lower a limit");
        let beyond = Region::new(1, &base).expect_err("nothing may be locked");
        assert_eq!(beyond.kind(), ErrorKind::LockLimit);
        let unlocked = RegionOptions {
            locked: false,
            ..base
        };
        Region::new(64 * page_size, &unlocked).expect("what is not locked does not count");
        // Huge pages do not count, and need no privileges.
        for pages in offered {
            let huge = RegionOptions {
                pages: Pages::Huge(pages.size),
                node: None,
                locked: true,
            };
            match Region::new(1, &huge) {
                Ok(region) => assert_eq!(region.page_size(), pages.size),
                Err(error) => assert_eq!(error.kind(), ErrorKind::NoMemory, "{error}"),
            }
        }
    });
    if let Err(panic) = nobody.join() {
        std::panic::resume_unwind(panic);
    }
}
