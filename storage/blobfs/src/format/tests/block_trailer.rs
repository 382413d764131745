//! Blocks with checksums: which fit, which do not.

use proptest::prelude::*;

use super::{key, middle_layout, small_layout};
use crate::ErrorKind;
use crate::format::key::VolumeKey;
use crate::format::{BlockTrailer, DataLayout, InodeId};

const ID: InodeId = InodeId(0x1_0000_0007);

fn data() -> DataLayout {
    small_layout().with_data_checksums(true).file_data()
}

fn trailer(id: InodeId, number: u64) -> BlockTrailer {
    BlockTrailer::new(data(), key(), id, number).expect("blocks have checksums")
}

proptest! {
    #[test]
    fn what_is_closed_is_opened(
        bytes in prop::collection::vec(any::<u8>(), 1..4000),
        number in any::<u32>(),
        part in any::<(u16, u16)>(),
    ) {
        let trailer = trailer(ID, number.into());
        let blocks = trailer.encode_blocks(&bytes);
        prop_assert_eq!(blocks.len(), bytes.len().div_ceil(504) * 512);
        let mut padded = bytes.clone();
        padded.resize(bytes.len().next_multiple_of(504), 0);
        // Any part of it, with blocks from the first on that it has.
        let from = usize::from(part.0) % bytes.len();
        let to = from + usize::from(part.1) % (bytes.len() - from + 1);
        let (first, skip) = (from / 504, from % 504);
        let mut out = vec![0xee; to - from];
        trailer.after(first).verify_into(&blocks[first * 512..], skip, &mut out).unwrap();
        prop_assert_eq!(&out, &bytes[from..to]);
        let mut whole = blocks.clone();
        trailer.verify_in_place(&mut whole).unwrap();
        prop_assert_eq!(&whole[..padded.len()], &padded);
        for (index, block) in blocks.chunks(512).enumerate() {
            prop_assert!(trailer.matches(index, block));
        }
    }

    #[test]
    fn a_block_that_is_bad_is_named_and_no_other(
        count in 1_usize..8,
        bad in any::<usize>(),
        bit in 0_usize..4096,
    ) {
        let (bytes, bad) = (vec![7; 504 * count], bad % count);
        let trailer = trailer(ID, 10);
        let mut blocks = trailer.encode_blocks(&bytes);
        blocks[bad * 512 + bit / 8] ^= 1 << (bit % 8);
        let error = trailer.verify_into(&blocks, 0, &mut vec![0; 504 * count]).unwrap_err();
        prop_assert_eq!(error.kind(), ErrorKind::Corruption);
        let from = (10 + bad) * 504;
        let name = format!("bytes {from}..{} of file {ID}", from + 504);
        prop_assert!(error.to_string().contains(&name), "{}", error);
        prop_assert!(trailer.verify_in_place(&mut blocks.clone()).is_err());
        // What lies before can be read, and what lies behind.
        prop_assert!(trailer.verify_into(&blocks, 0, &mut vec![0; 504 * bad]).is_ok());
        let behind = trailer.after(bad + 1).verify_into(&blocks[(bad + 1) * 512..], 0, &mut vec![0; 504 * (count - bad - 1)]);
        prop_assert!(behind.is_ok());
    }
}

#[test]
fn every_bit_counts() {
    let trailer = trailer(ID, 3);
    for fill in [0, 0xa5] {
        let mut block = trailer.encode_blocks(&[fill; 504]);
        for bit in 0..block.len() * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert!(!trailer.matches(0, &block), "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
        for byte in 0..block.len() {
            for change in 1..=u8::MAX {
                block[byte] ^= change;
                assert!(!trailer.matches(0, &block), "byte {byte}, {change}");
                block[byte] ^= change;
            }
        }
        assert!(trailer.matches(0, &block));
    }
}

#[test]
fn a_block_of_elsewhere_does_not_fit() {
    let block = trailer(ID, 3).encode_blocks(&[5; 504]);
    let other_key = VolumeKey::new(b"another volume..");
    let others = [
        trailer(ID, 4),
        trailer(ID, 3 + (1 << 32)),
        trailer(InodeId(ID.0 + 1), 3),
        // The lower half is the same.
        trailer(InodeId(7), 3),
        BlockTrailer::new(data(), other_key, ID, 3).expect("blocks have checksums"),
    ];
    for other in others {
        assert!(!other.matches(0, &block), "{other:?}");
    }
    assert!(!trailer(ID, 3).matches(0, &[0; 512]), "zeros");
    assert!(!trailer(ID, 3).matches(0, &[0xff; 512]), "ones");
    let other_file = trailer(InodeId(99), 3).encode_blocks(&[5; 504]);
    let error = trailer(ID, 3)
        .verify_into(&other_file, 0, &mut [0; 1])
        .unwrap_err();
    assert!(error.to_string().contains("names file #99"), "{error}");
}

#[test]
fn without_checksums_there_is_no_trailer() {
    let data = middle_layout().file_data();
    assert!(BlockTrailer::new(data, key(), ID, 0).is_none());
}
