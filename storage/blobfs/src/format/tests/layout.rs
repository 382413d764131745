//! Layouts for devices of all sizes.

use proptest::prelude::*;

use crate::ErrorKind;
use crate::format::ids::Timestamp;
use crate::format::layout::superblock_units;
use crate::format::{Extent, FormatOptions, Layout};

fn options(journal_bytes: Option<u64>) -> FormatOptions {
    FormatOptions {
        journal_bytes,
        ..FormatOptions::new([7; 16], Timestamp(1))
    }
}

fn plan(block_bytes: u32, bytes: u64) -> Result<Layout, ErrorKind> {
    Layout::plan(block_bytes, bytes / u64::from(block_bytes), &options(None))
        .map_err(|it| it.kind())
}

proptest! {
    #[test]
    fn what_is_planned_fits(
        shift in 9_u32..=16,
        log in 20_u32..44,
        more in any::<u64>(),
        journal in prop::option::of(0_u64..1 << 31),
    ) {
        let block_bytes = 1 << shift;
        let bytes = (1_u64 << log) + more % (1 << log);
        let blocks = bytes / u64::from(block_bytes);
        let planned = Layout::plan(block_bytes, blocks, &options(journal));
        let layout = match planned {
            Ok(layout) => layout,
            Err(error) => {
                prop_assert!(journal.is_some() || bytes < 4 << 20, "{}", error);
                return Ok(());
            }
        };
        let again = Layout::new(
            layout.block_bytes(),
            layout.blocks(),
            layout.journal_units(),
            layout.group_units(),
        );
        prop_assert_eq!(again.unwrap(), layout);
        let unit_bytes = u64::from(layout.unit_bytes());
        prop_assert!(layout.units() * unit_bytes <= bytes);
        prop_assert!((layout.units() + 1) * unit_bytes > bytes);
        prop_assert_eq!(layout.superblocks(), [0, layout.units() - 1]);
        prop_assert_eq!(superblock_units(block_bytes, blocks), layout.superblocks());
        prop_assert_eq!(layout.journal(), 1..layout.data().start);
        prop_assert_eq!(layout.data().end, layout.units() - 1);
        if let Some(journal) = journal {
            prop_assert_eq!(layout.journal_units(), journal / unit_bytes);
        }
        let data = layout.data();
        let (mut next, mut count) = (data.start, 0);
        for (index, group) in (0..).zip(layout.groups()) {
            prop_assert_eq!(group.start, next);
            prop_assert_eq!(layout.group_of(group.start), Some(index));
            prop_assert_eq!(layout.group_of(group.end - 1), Some(index));
            next = group.end;
            count += 1;
            if count > 10_000 {
                return Ok(());
            }
        }
        prop_assert_eq!(next, data.end);
        prop_assert_eq!(count, layout.group_count());
        prop_assert!(layout.group(count).is_empty() && layout.group(u64::MAX).is_empty());
    }
}

#[test]
fn sizes_that_are_documented() {
    let layout = plan(512, 1 << 20).unwrap();
    assert_eq!((layout.units(), layout.journal_units()), (256, 64));
    assert_eq!(layout.group_count(), 1);
    let layout = plan(4096, 1 << 30).unwrap();
    assert_eq!(layout.journal_units() * 4096, 16 << 20);
    assert_eq!(layout.group_units(), (8 << 20) / 4096);
    assert_eq!(layout.group_count(), 126);
    let layout = plan(512, 1 << 40).unwrap();
    assert_eq!(layout.journal_units() * 4096, 64 << 20);
    assert_eq!(layout.group_units(), (1 << 30) / 4096);
}

#[test]
fn what_cannot_be_is_refused() {
    assert_eq!(plan(512, (1 << 20) - 512), Err(ErrorKind::NoSpace));
    assert_eq!(plan(65_536, 1 << 20), Err(ErrorKind::NoSpace));
    assert_eq!(plan(4096, 0), Err(ErrorKind::NoSpace));
    for block_bytes in [0, 1, 256, 520, 4095, 131_072, u32::MAX] {
        let planned = Layout::plan(block_bytes, 1 << 20, &options(None));
        assert_eq!(planned.unwrap_err().kind(), ErrorKind::Unsupported);
    }
    let planned = |blocks, journal| {
        let planned = Layout::plan(4096, blocks, &options(journal));
        planned.map_err(|it| it.kind())
    };
    assert_eq!(planned((1 << 32) + 1, None), Err(ErrorKind::Unsupported));
    assert_eq!(planned(u64::MAX, None), Err(ErrorKind::Unsupported));
    assert!(planned(1 << 32, None).is_ok());
    assert_eq!(planned(1024, Some(0)), Err(ErrorKind::Invalid));
    assert_eq!(planned(1024, Some(3 << 20)), Err(ErrorKind::Invalid));
    assert_eq!(planned(1 << 30, Some(2 << 30)), Err(ErrorKind::Invalid));
    for (journal_units, group_units) in [(64, 0), (64, 255), (64, 300), (64, 1 << 19), (15, 256)] {
        let layout = Layout::new(4096, 1 << 20, journal_units, group_units);
        assert_eq!(layout.unwrap_err().kind(), ErrorKind::Invalid);
    }
}

#[test]
fn extents_lie_in_one_group() {
    let layout = plan(4096, 64 << 20).unwrap();
    let group = layout.group(1);
    let holds = |start, units| layout.holds(Extent { start, units });
    let length = u32::try_from(group.end - group.start).unwrap();
    assert!(holds(group.start, length) && holds(group.end - 1, 1));
    assert!(!holds(group.start, length + 1) && !holds(group.start - 1, 2));
    assert!(!holds(group.start, 0) && !holds(0, 1) && !holds(layout.units() - 1, 1));
    assert!(!holds(u64::MAX, u32::MAX));
}

#[test]
fn a_device_may_be_larger_and_have_smaller_blocks() {
    let layout = plan(4096, 1 << 20).unwrap();
    let check = |block_bytes, blocks| {
        layout
            .check_device(block_bytes, blocks)
            .map_err(|it| it.kind())
    };
    assert_eq!(check(4096, 256), Ok(()));
    assert_eq!(check(4096, u64::MAX), Ok(()));
    assert_eq!(check(512, 2048), Ok(()));
    assert_eq!(check(512, 2047), Err(ErrorKind::Corruption));
    assert_eq!(check(8192, 1024), Err(ErrorKind::Unsupported));
}
