//! Where bytes of files lie, against a table of all of them.

use proptest::prelude::*;

use crate::format::{DataLayout, Layout};

fn layouts() -> impl Strategy<Value = (Layout, DataLayout)> {
    (9_u32..=16, any::<bool>()).prop_map(|(shift, has_checksums)| {
        let units = 1 << (24 - shift.max(12));
        let group_units = 1 << (20 - shift.max(12));
        let layout = Layout::new(1 << shift, 1 << (24 - shift), units / 8, group_units)
            .expect("a layout that fits")
            .with_data_checksums(has_checksums);
        (layout, layout.file_data())
    })
}

/// For each byte of a file its block and the bytes before it there, one after the other.
fn table(layout: &Layout, bytes: usize) -> Vec<(u64, usize)> {
    let trailer = if layout.data_checksums() { 8 } else { 0 };
    let payload = layout.block_bytes() as usize - trailer;
    let blocks = (0..).flat_map(|block| (0..payload).map(move |within| (block, within)));
    blocks.take(bytes).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_byte_has_its_place((layout, data) in layouts(), bytes in 1_usize..200_000) {
        let table = table(&layout, bytes);
        let unit_blocks = u64::from(layout.unit_blocks());
        for (offset, &(block, within)) in (0_u64..).zip(&table) {
            prop_assert_eq!(data.block_of(offset), (block, within));
            prop_assert_eq!(data.unit_of(block), (block / unit_blocks, block % unit_blocks));
            prop_assert_eq!(data.block_start(offset), offset - within as u64);
            if within == 0 {
                prop_assert_eq!(data.offset_of(block), offset);
            }
        }
        let (last, _) = table[bytes - 1];
        prop_assert_eq!(data.blocks(bytes as u64), last + 1);
        let units = last / unit_blocks + 1;
        prop_assert_eq!(data.units(bytes as u64), units);
        prop_assert!(data.bytes(units) >= bytes as u64 && data.bytes(units - 1) < bytes as u64);
        prop_assert_eq!(data.units(data.bytes(units)), units);
        prop_assert_eq!(data.units(data.bytes(units) + 1), units + 1);
        prop_assert_eq!(data.first_block(units), units * unit_blocks);
        let whole = data.transfer_bytes(bytes);
        prop_assert_eq!(whole as u64, (last + 1) * u64::from(layout.block_bytes()));
        prop_assert_eq!(data.payload_of(whole) as u64, data.offset_of(last + 1));
    }

    #[test]
    fn no_number_is_too_large((_, data) in layouts(), offset in any::<u64>()) {
        let (block, within) = data.block_of(offset);
        prop_assert!(within < data.payload_bytes());
        prop_assert!(data.offset_of(block) <= offset);
        prop_assert!(data.units(offset) <= data.blocks(offset));
        prop_assert!(data.bytes(offset) >= offset);
    }
}

#[test]
fn nothing_needs_nothing() {
    for has_checksums in [false, true] {
        let layout = super::small_layout().with_data_checksums(has_checksums);
        let data = layout.file_data();
        assert_eq!((data.blocks(0), data.units(0), data.bytes(0)), (0, 0, 0));
        assert_eq!(data.has_checksums(), has_checksums);
    }
}
