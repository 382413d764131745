//! Blocks with checksums: which fit, which do not.

use proptest::prelude::*;

use super::{key, middle_layout, small_layout};
use crate::ErrorKind;
use crate::format::key::VolumeKey;
use crate::format::{DataLayout, InodeId, Seal};

const ID: InodeId = InodeId(0x1_0000_0007);

fn data() -> DataLayout {
    small_layout().with_data_checksums(true).file_data()
}

fn seal(id: InodeId, number: u64) -> Seal {
    Seal::new(data(), key(), id, number).expect("blocks have checksums")
}

proptest! {
    #[test]
    fn what_is_closed_is_opened(
        bytes in prop::collection::vec(any::<u8>(), 1..4000),
        number in any::<u32>(),
        part in any::<(u16, u16)>(),
    ) {
        let seal = seal(ID, number.into());
        let blocks = seal.closed(&bytes);
        prop_assert_eq!(blocks.len(), bytes.len().div_ceil(504) * 512);
        let mut padded = bytes.clone();
        padded.resize(bytes.len().next_multiple_of(504), 0);
        // Any part of it, with blocks from the first on that it has.
        let from = usize::from(part.0) % bytes.len();
        let to = from + usize::from(part.1) % (bytes.len() - from + 1);
        let (first, skip) = (from / 504, from % 504);
        let mut out = vec![0xee; to - from];
        seal.after(first).open(&blocks[first * 512..], skip, &mut out).unwrap();
        prop_assert_eq!(&out, &bytes[from..to]);
        let mut whole = blocks.clone();
        seal.open_in_place(&mut whole).unwrap();
        prop_assert_eq!(&whole[..padded.len()], &padded);
        for (index, block) in blocks.chunks(512).enumerate() {
            prop_assert!(seal.fits(index, block));
        }
    }

    #[test]
    fn a_block_that_is_bad_is_named_and_no_other(
        count in 1_usize..8,
        bad in any::<usize>(),
        bit in 0_usize..4096,
    ) {
        let (bytes, bad) = (vec![7; 504 * count], bad % count);
        let seal = seal(ID, 10);
        let mut blocks = seal.closed(&bytes);
        blocks[bad * 512 + bit / 8] ^= 1 << (bit % 8);
        let error = seal.open(&blocks, 0, &mut vec![0; 504 * count]).unwrap_err();
        prop_assert_eq!(error.kind(), ErrorKind::Corruption);
        let from = (10 + bad) * 504;
        let name = format!("bytes {from}..{} of file {ID}", from + 504);
        prop_assert!(error.to_string().contains(&name), "{}", error);
        prop_assert!(seal.open_in_place(&mut blocks.clone()).is_err());
        // What lies before can be read, and what lies behind.
        prop_assert!(seal.open(&blocks, 0, &mut vec![0; 504 * bad]).is_ok());
        let behind = seal.after(bad + 1).open(&blocks[(bad + 1) * 512..], 0, &mut vec![0; 504 * (count - bad - 1)]);
        prop_assert!(behind.is_ok());
    }
}

#[test]
fn every_bit_counts() {
    let seal = seal(ID, 3);
    for fill in [0, 0xa5] {
        let mut block = seal.closed(&[fill; 504]);
        for bit in 0..block.len() * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert!(!seal.fits(0, &block), "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
        for byte in 0..block.len() {
            for change in 1..=u8::MAX {
                block[byte] ^= change;
                assert!(!seal.fits(0, &block), "byte {byte}, {change}");
                block[byte] ^= change;
            }
        }
        assert!(seal.fits(0, &block));
    }
}

#[test]
fn a_block_of_elsewhere_does_not_fit() {
    let block = seal(ID, 3).closed(&[5; 504]);
    let other_key = VolumeKey::new(b"another volume..");
    let others = [
        seal(ID, 4),
        seal(ID, 3 + (1 << 32)),
        seal(InodeId(ID.0 + 1), 3),
        // The lower half is the same.
        seal(InodeId(7), 3),
        Seal::new(data(), other_key, ID, 3).expect("blocks have checksums"),
    ];
    for other in others {
        assert!(!other.fits(0, &block), "{other:?}");
    }
    assert!(!seal(ID, 3).fits(0, &[0; 512]), "zeros");
    assert!(!seal(ID, 3).fits(0, &[0xff; 512]), "ones");
    let stranger = seal(InodeId(99), 3).closed(&[5; 504]);
    let error = seal(ID, 3).open(&stranger, 0, &mut [0; 1]).unwrap_err();
    assert!(error.to_string().contains("one of #99"), "{error}");
}

#[test]
fn without_checksums_there_is_no_seal() {
    let data = middle_layout().file_data();
    assert!(Seal::new(data, key(), ID, 0).is_none());
}
