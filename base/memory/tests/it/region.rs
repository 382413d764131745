//! Regions of this machine's memory. What the machine does not have is passed over, and said.

use std::fs;
use std::os::fd::AsRawFd;

use crate::spare_huge_pages::{SpareHugePages, say};
use millrace_memory::{ErrorKind, HugePages, Pages, Region, RegionOptions, base_page_size};
use rustix::fs::{SealFlags, fcntl_get_seals, fstat, ftruncate};

fn options(pages: Pages) -> RegionOptions {
    RegionOptions {
        pages,
        node: None,
        locked: true,
    }
}

/// Looks at what every region promises.
fn check(region: &Region, size_min: usize) {
    let (size, page_size) = (region.size(), region.page_size());
    assert!(size >= size_min && size % page_size == 0);
    assert_eq!(region.address().as_ptr() as usize % page_size, 0);
    let status = fstat(region.file()).expect("it is a file");
    assert_eq!(usize::try_from(status.st_size), Ok(size));
    let seals = fcntl_get_seals(region.file()).expect("it is a memfd");
    assert!(seals.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL));
    assert!(ftruncate(region.file(), 0).is_err());
    assert!(ftruncate(region.file(), 2 * size as u64).is_err());
    // All of it is there: allocated in the file, and in the page table.
    let blocks = usize::try_from(status.st_blocks).expect("not negative");
    if page_size == base_page_size() {
        assert!(blocks * 512 >= size);
        assert_eq!(in_page_table(region, "Locked"), Some(size));
    }
    for offset in [0, size / 2, size - 1] {
        // SAFETY: the offset is less than the size.
        let byte = unsafe { region.address().add(offset) };
        // SAFETY: the region is this test's alone, and no reference to it exists.
        assert_eq!(unsafe { byte.read_volatile() }, 0);
        // SAFETY: the byte lies in the region, which is mapped for writing and which no reference or other thread uses.
        unsafe { byte.write_volatile(0x5a) };
    }
}

/// A figure in bytes that the kernel tells of the region's mapping.
fn in_page_table(region: &Region, figure: &str) -> Option<usize> {
    let maps = fs::read_to_string("/proc/self/smaps").ok()?;
    let head = format!("{:x}-", region.address().as_ptr() as usize);
    let mapping = maps.lines().skip_while(|line| !line.starts_with(&head));
    let figure = format!("{figure}:");
    let value = mapping
        .skip(1)
        .find_map(|line| line.strip_prefix(&figure))?;
    let kibibytes = value
        .trim()
        .strip_suffix("kB")?
        .trim()
        .parse::<usize>()
        .ok()?;
    Some(kibibytes * 1024)
}

#[test]
fn base_pages_are_locked_and_there() {
    let page_size = base_page_size();
    for size in [1, page_size, page_size + 1, 40 * page_size] {
        let region = Region::new(size, &options(Pages::Base)).expect("there is memory");
        assert_eq!(region.page_size(), page_size);
        assert_eq!(region.size(), size.next_multiple_of(page_size));
        check(&region, size);
    }
}

#[test]
fn a_dropped_region_is_unmapped_and_closed() {
    let region = Region::new(1, &options(Pages::Base)).expect("there is memory");
    let link = format!("/proc/self/fd/{}", region.file().as_raw_fd());
    let inode = fstat(region.file()).expect("it is a file").st_ino;
    let in_maps = || {
        let maps = fs::read_to_string("/proc/self/maps").expect("Linux tells");
        let entry = format!(" {inode} ");
        maps.lines()
            .any(|line| line.contains("memfd:millrace") && line.contains(&entry))
    };
    assert!(in_maps() && fs::read_link(&link).is_ok());
    drop(region);
    assert!(!in_maps());
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (size, pages) in [
        (0, Pages::Auto),
        (0, Pages::Base),
        (usize::MAX, Pages::Base),
        (usize::MAX, Pages::Auto),
        (1, Pages::Huge(0)),
        (1, Pages::Huge(3 << 20)),
    ] {
        let error = Region::new(size, &options(pages)).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
}

#[test]
fn more_memory_than_any_machine_has_is_an_error() {
    let error = Region::new(1 << 62, &options(Pages::Base)).expect_err("there is not so much");
    assert!(
        matches!(error.kind(), ErrorKind::NoMemory | ErrorKind::LockLimit),
        "{error}"
    );
}

#[test]
fn huge_pages_that_the_kernel_does_not_have_are_an_error() {
    let error = Region::new(1, &options(Pages::Huge(1 << 40))).expect_err("no such size");
    assert_eq!(error.kind(), ErrorKind::NoMemory, "{error}");
    for pages in HugePages::offered() {
        let of_these = options(Pages::Huge(pages.size));
        let one_too_few = pages.size * (usize::try_from(pages.total).expect("it is memory") + 1);
        for size in [one_too_few, 1 << 50] {
            match Region::new(size, &of_these) {
                Err(error) => assert_eq!(error.kind(), ErrorKind::NoMemory, "{error}"),
                // The kernel may be told to make more when they are asked for. Then they are there.
                Ok(region) => check(&region, size),
            }
        }
    }
}

#[test]
fn huge_pages_that_are_free_are_taken() {
    for pages in HugePages::offered() {
        let test = "huge pages that are free are taken";
        let Some(_spare) = SpareHugePages::new(test, pages.size, 1, None) else {
            continue;
        };
        // Others may take the last free page at any time.
        match Region::new(1, &options(Pages::Huge(pages.size))) {
            Err(error) if error.kind() == ErrorKind::NoMemory => say(&format!("skipped: {error}")),
            Err(error) => panic!("{error}"),
            Ok(region) => {
                assert_eq!(
                    (region.size(), region.page_size()),
                    (pages.size, pages.size)
                );
                check(&region, 1);
            }
        }
    }
}

#[test]
fn auto_does_with_what_there_is() {
    let huge = 2 << 20;
    let spare = SpareHugePages::new("auto does with what there is", huge, 3, None);
    for size in [1, 2 << 20, 5 << 20, 6 << 20] {
        let region = Region::new(size, &options(Pages::Auto)).expect("there is memory");
        assert!(
            region.page_size() == base_page_size() || region.size() - size <= region.size() / 8
        );
        check(&region, size);
        if spare.is_some() && size % huge == 0 && region.page_size() == base_page_size() {
            say(&format!(
                "skipped: others took the huge pages for {size} bytes"
            ));
        }
    }
}

#[test]
fn a_node_is_obeyed_or_an_error() {
    let on = |node, pages| {
        Region::new(
            1,
            &RegionOptions {
                pages,
                node: Some(node),
                locked: true,
            },
        )
    };
    match on(0, Pages::Base) {
        Ok(region) => {
            check(&region, 1);
            let maps = fs::read_to_string("/proc/self/numa_maps").expect("the kernel knows nodes");
            let head = format!("{:x} bind:0 ", region.address().as_ptr() as usize);
            assert!(maps.lines().any(|line| line.starts_with(&head)), "{maps}");
        }
        Err(error) => {
            say(&format!("a node is obeyed: skipped: {error}"));
            assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        }
    }
    for node in [1023, 1024, u32::MAX] {
        let error = on(node, Pages::Base).expect_err("no such node");
        assert!(
            matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Refused),
            "{error}"
        );
    }
}

#[test]
fn huge_pages_come_from_the_node_that_is_named() {
    let huge = 2 << 20;
    let on = |node| {
        Region::new(
            1,
            &RegionOptions {
                pages: Pages::Huge(huge),
                node: Some(node),
                locked: true,
            },
        )
    };
    let test = "huge pages come from the node that is named";
    let Some(_spare) = SpareHugePages::new(test, huge, 1, Some(0)) else {
        return;
    };
    match on(0) {
        Err(error) if error.kind() == ErrorKind::NoMemory => say(&format!("skipped: {error}")),
        Err(error) => panic!("{error}"),
        Ok(region) => {
            check(&region, huge);
            let maps = fs::read_to_string("/proc/self/numa_maps").expect("the kernel knows nodes");
            let head = format!("{:x} bind:0 ", region.address().as_ptr() as usize);
            let mapping = maps.lines().find(|line| line.starts_with(&head));
            let mapping = mapping.unwrap_or_else(|| panic!("{head} is not in {maps}"));
            let words: Vec<&str> = mapping.split(' ').collect();
            for word in ["huge", "N0=1"] {
                assert!(words.contains(&word), "{word} is not in {mapping}");
            }
        }
    }
    let error = on(1023).expect_err("no such node");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}
