//! Transactions: what is found again, and what is not taken for one.

use proptest::collection::vec;
use proptest::prelude::*;

use super::key;
use crate::format::VolumeKey;
use crate::format::transaction::{HEADER_BYTES, Header, probe, write_header};

const BLOCK_BYTES: u32 = 512;

/// The blocks of a transaction.
fn with_header(payload: &[u8], position: u64, sequence: u64) -> Vec<u8> {
    let block_bytes = BLOCK_BYTES as usize;
    let mut buffer = vec![0; (HEADER_BYTES + payload.len()).next_multiple_of(block_bytes)];
    buffer[HEADER_BYTES..HEADER_BYTES + payload.len()].copy_from_slice(payload);
    write_header(&mut buffer, payload.len(), key(), position, sequence);
    buffer
}

/// The payload, if all is as it should be.
fn opened(bytes: &[u8], key: VolumeKey, position: u64, sequence: u64) -> Option<&[u8]> {
    let block = bytes.get(..BLOCK_BYTES as usize)?;
    let header = Header::open(block, key, position, sequence, 1 << 20)?;
    let len = usize::try_from(header.blocks(BLOCK_BYTES)).unwrap() * BLOCK_BYTES as usize;
    header.verify(bytes.get(..len)?, key)
}

proptest! {
    #[test]
    fn what_was_written_is_read(
        payload in vec(any::<u8>(), 0..3000),
        position in any::<u64>(),
        sequence in any::<u64>(),
    ) {
        let bytes = with_header(&payload, position, sequence);
        prop_assert_eq!(opened(&bytes, key(), position, sequence), Some(&payload[..]));
        prop_assert_eq!(probe(&bytes, key(), position), Some(sequence));
    }

    #[test]
    fn an_old_or_foreign_one_does_not_count(
        payload in vec(any::<u8>(), 0..1000),
        position in 0_u64..1000,
        sequence in 0_u64..1000,
        other in 1_u64..1000,
    ) {
        let bytes = with_header(&payload, position, sequence);
        prop_assert_eq!(opened(&bytes, key(), position, sequence + other), None);
        prop_assert_eq!(opened(&bytes, key(), position + other, sequence), None);
        let foreign = VolumeKey::new(&[1; 16]);
        prop_assert_eq!(opened(&bytes, foreign, position, sequence), None);
        prop_assert_eq!(probe(&bytes, foreign, position), None);
        prop_assert_eq!(probe(&bytes, key(), position + other), None);
        // The rest of one behind the header of another that says the same otherwise.
        let mut mixed = bytes.clone();
        let header = &with_header(&payload, position, sequence + other)[..HEADER_BYTES];
        mixed[..8].copy_from_slice(&header[..8]);
        mixed[12..HEADER_BYTES].copy_from_slice(&header[12..]);
        prop_assert_eq!(opened(&mixed, key(), position, sequence + other), None);
    }

    #[test]
    fn any_bytes_are_nothing(bytes in vec(any::<u8>(), 0..1024)) {
        prop_assert_eq!(opened(&bytes, key(), 0, 0), None);
        prop_assert_eq!(probe(&bytes, key(), 0), None);
    }
}

#[test]
fn every_bit_counts() {
    let payload: Vec<u8> = (0..700).map(|at| (at % 251) as u8).collect();
    let mut bytes = with_header(&payload, 17, 23);
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(opened(&bytes, key(), 17, 23), None, "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    assert_eq!(opened(&bytes, key(), 17, 23), Some(&payload[..]));
}

#[test]
fn a_torn_one_is_told_from_none() {
    let payload = [7; 1000];
    let bytes = with_header(&payload, 3, 4);
    for kept in 0..3 {
        let mut torn = bytes.clone();
        torn[kept * 512..].fill(0xaa);
        assert_eq!(opened(&torn, key(), 3, 4), None, "{kept} blocks are there");
        assert_eq!(probe(&torn, key(), 3), (kept > 0).then_some(4));
    }
}

#[test]
fn a_length_beyond_the_journal_is_refused() {
    let bytes = with_header(&[7; 1000], 3, 4);
    let open = |bytes_max| Header::open(&bytes, key(), 3, 4, bytes_max);
    assert!(open(1031).is_none());
    let header = open(1032).unwrap();
    assert_eq!(header.blocks(512), 3);
    assert_eq!(header.blocks(4096), 1);
    assert_eq!(header.verify(&bytes[..1024], key()), None);
    assert_eq!(header.verify(&[], key()), None);
}
