//! Superblocks: what is read again, what is refused, which of two counts.

use proptest::prelude::*;

use super::middle_layout;
use crate::error::{Error, ErrorKind, Result};
use crate::format::Extent;
use crate::format::ids::Timestamp;
use crate::format::superblock::{
    CHECKPOINT_EXTENTS_MAX, CheckpointLocation, Chosen, JournalTail, Superblock, choose,
};

pub(super) fn sample() -> Superblock {
    let start = middle_layout().data().start;
    let extent = |at, units| Extent {
        start: start + at,
        units,
    };
    Superblock {
        uuid: *b"sixteen bytes...",
        label: "Größe".to_owned(),
        created: Timestamp(1_700_000_000_000),
        layout: middle_layout(),
        generation: 42,
        checkpoint: CheckpointLocation {
            sequence: 99,
            bytes: 3 * 4096,
            checksum: 0x1234_5678,
            copies: [vec![extent(0, 3)], vec![extent(10, 1), extent(5, 2)]],
        },
        journal_tail: JournalTail {
            block: 17,
            sequence: 100,
        },
        clean: true,
    }
}

fn kind(result: Result<Superblock>) -> ErrorKind {
    result.unwrap_err().kind()
}

/// Writes the checksum anew.
fn with_new_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    let checksum = millrace_checksum::crc32c(&bytes[12..]);
    bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(
        uuid in any::<[u8; 16]>(),
        label in "[a-zé]{0,32}",
        numbers in (any::<u64>(), 0_u64..=1 << 62, 0_u64..1 << 61, 1_u64..1 << 61),
        checksum in any::<u32>(),
        clean in any::<bool>(),
        block in 0_u64..128,
        pieces in 1_u32..=240,
        data_checksums in any::<bool>(),
    ) {
        let start = middle_layout().data().start;
        let copy = |first| (0..u64::from(pieces))
            .map(|at| Extent { start: start + first + 4 * at, units: 1 })
            .collect();
        let superblock = Superblock {
            uuid,
            label,
            created: Timestamp(numbers.0),
            layout: middle_layout().with_data_checksums(data_checksums),
            generation: numbers.1,
            checkpoint: CheckpointLocation {
                sequence: numbers.2,
                bytes: u64::from(pieces) * 4096,
                checksum,
                copies: [copy(0), copy(2)],
            },
            journal_tail: JournalTail { block, sequence: numbers.2 + numbers.3 },
            clean,
        };
        let bytes = superblock.encode().unwrap();
        prop_assert_eq!(bytes.len(), 4096);
        prop_assert_eq!(Superblock::decode(&bytes).unwrap(), superblock);
    }

    #[test]
    fn any_change_is_an_error_or_makes_sense(
        changes in prop::collection::vec((12_usize..320, any::<u8>()), 1..6),
    ) {
        let mut bytes = sample().encode().unwrap();
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        if let Ok(superblock) = Superblock::decode(&with_new_checksum(bytes)) {
            let again = Superblock::decode(&superblock.encode().unwrap()).unwrap();
            prop_assert_eq!(again, superblock);
        }
    }
}

#[test]
fn every_bit_counts() {
    let mut bytes = sample().encode().unwrap();
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        let error = kind(Superblock::decode(&bytes));
        let expected = if bit < 64 {
            ErrorKind::NotAVolume
        } else {
            ErrorKind::Corruption
        };
        assert_eq!(error, expected, "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    for len in 0..bytes.len() {
        assert!(Superblock::decode(&bytes[..len]).is_err(), "{len} bytes");
    }
    bytes.resize(8192, 0);
    assert_eq!(kind(Superblock::decode(&bytes)), ErrorKind::Corruption);
    assert_eq!(
        kind(Superblock::decode(&with_new_checksum(bytes))),
        ErrorKind::Corruption
    );
    assert_eq!(kind(Superblock::decode(&[0; 4096])), ErrorKind::NotAVolume);
}

#[test]
fn later_versions_and_features_are_refused() {
    for (at, expected) in [
        (12, ErrorKind::NewerFormat),
        (16, ErrorKind::NewerFormat),
        (23, ErrorKind::NewerFormat),
    ] {
        let mut bytes = sample().encode().unwrap();
        bytes[at] = 0x80;
        assert_eq!(
            kind(Superblock::decode(&with_new_checksum(bytes))),
            expected,
            "byte {at}"
        );
    }
    let mut bytes = sample().encode().unwrap();
    bytes[24] = 0x80;
    assert_eq!(
        Superblock::decode(&with_new_checksum(bytes)).unwrap(),
        sample(),
        "a hint is a hint"
    );
    let mut bytes = sample().encode().unwrap();
    bytes[12] = 0;
    assert_eq!(
        kind(Superblock::decode(&with_new_checksum(bytes))),
        ErrorKind::Corruption
    );
}

#[test]
fn what_could_not_be_read_is_not_written() {
    let spoilt = |spoil: fn(&mut Superblock)| {
        let mut superblock = sample();
        spoil(&mut superblock);
        superblock.encode().unwrap_err().kind()
    };
    let corruption = ErrorKind::Corruption;
    assert_eq!(spoilt(|it| it.label = "é".repeat(33)), ErrorKind::Invalid);
    assert_eq!(
        spoilt(|it| it.label = "a\0b".to_owned()),
        ErrorKind::Invalid
    );
    assert_eq!(spoilt(|it| it.journal_tail.block = 128), corruption);
    assert_eq!(spoilt(|it| it.journal_tail.sequence = 99), corruption);
    assert_eq!(spoilt(|it| it.journal_tail.sequence = u64::MAX), corruption);
    assert_eq!(spoilt(|it| it.generation = u64::MAX), corruption);
    assert_eq!(spoilt(|it| it.checkpoint.bytes = 0), corruption);
    assert_eq!(spoilt(|it| it.checkpoint.bytes = 4 * 4096), corruption);
    assert_eq!(spoilt(|it| it.checkpoint.bytes -= 1), corruption);
    assert_eq!(
        spoilt(|it| it.checkpoint.copies[0][0].start = 1),
        corruption
    );
    assert_eq!(
        spoilt(|it| it.checkpoint.copies[0][0].start += 5),
        corruption
    );
    assert_eq!(spoilt(|it| it.checkpoint.copies[1].truncate(1)), corruption);
    assert_eq!(
        spoilt(|it| {
            let start = it.layout.data().start;
            let pieces = CHECKPOINT_EXTENTS_MAX as u64 + 1;
            let copy = |first| {
                (0..pieces)
                    .map(|at| Extent {
                        start: start + first + 4 * at,
                        units: 1,
                    })
                    .collect()
            };
            it.checkpoint.bytes = pieces * 4096;
            it.checkpoint.copies = [copy(0), copy(2)];
        }),
        corruption
    );
}

#[test]
fn the_newer_good_one_counts() {
    let older = || Superblock {
        generation: 41,
        ..sample()
    };
    let foreign = || Superblock {
        uuid: [1; 16],
        ..sample()
    };
    let bad = |kind| Err(Error::new(kind, "bad"));
    let chosen = |first, second| {
        let Chosen { superblock, stale } = choose(first, second).unwrap();
        (superblock.generation, stale)
    };
    let corruption = || bad(ErrorKind::Corruption);
    assert_eq!(chosen(Ok(sample()), Ok(sample())), (42, [false, false]));
    assert_eq!(chosen(Ok(sample()), Ok(older())), (42, [false, true]));
    assert_eq!(chosen(Ok(older()), Ok(sample())), (42, [true, false]));
    assert_eq!(chosen(Ok(sample()), corruption()), (42, [false, true]));
    assert_eq!(chosen(corruption(), Ok(older())), (41, [true, false]));
    assert_eq!(
        chosen(bad(ErrorKind::Io), Ok(sample())),
        (42, [true, false])
    );
    assert_eq!(
        chosen(Ok(sample()), bad(ErrorKind::NotAVolume)),
        (42, [false, true])
    );

    let error = |first, second| choose(first, second).unwrap_err().kind();
    assert_eq!(error(Ok(sample()), Ok(foreign())), ErrorKind::Corruption);
    assert_eq!(
        error(Ok(sample()), bad(ErrorKind::NewerFormat)),
        ErrorKind::NewerFormat
    );
    assert_eq!(
        error(bad(ErrorKind::NotAVolume), corruption()),
        ErrorKind::Corruption
    );
    assert_eq!(
        error(bad(ErrorKind::NotAVolume), bad(ErrorKind::NotAVolume)),
        ErrorKind::NotAVolume
    );
    assert_eq!(
        error(bad(ErrorKind::Io), bad(ErrorKind::NotAVolume)),
        ErrorKind::Io
    );
    assert_eq!(
        error(corruption(), bad(ErrorKind::NewerFormat)),
        ErrorKind::NewerFormat
    );
}
