//! The checksum beside the vectors of RFC 3720, and beside one that is computed bit by bit.
//!
//! The same tests are meant for every machine, emulated ones too: `PROPTEST_CASES` sets how many cases the
//! slow ones run. Who means to test certain instructions names them in `MILLRACE_CRC32C`, and the tests fail
//! if others compute.

use std::io::Write;
use std::{env, io};

use millrace_checksum::{combine, crc32c, extend, implementation};
use proptest::prelude::*;

const POLYNOMIAL: u32 = 0x82f6_3b78;
#[path = "../../src/table.rs"]
mod table;

/// The checksum by its definition.
fn by_bits(crc: u32, bytes: &[u8]) -> u32 {
    let mut register = !crc;
    for byte in bytes {
        register ^= u32::from(*byte);
        for _ in 0..8 {
            let overflows = register & 1 == 1;
            register >>= 1;
            if overflows {
                register ^= POLYNOMIAL;
            }
        }
    }
    !register
}

#[test]
fn the_instructions_that_are_named_compute() {
    let computes = implementation();
    // Seen also when the test succeeds, unlike what is printed.
    writeln!(io::stderr(), "CRC32C by {computes}").expect("standard error is there");
    if let Ok(named) = env::var("MILLRACE_CRC32C") {
        assert!(computes.contains(&named), "{computes} instead of {named}");
    }
    // Even the oldest x86-64 served has instructions: .cargo/config.toml.
    if cfg!(target_arch = "x86_64") {
        assert!(computes.contains("pclmulqdq"), "{computes}");
    }
}

/// RFC 3720, appendix B.4. The checksums are written there as they are sent, lowest byte first.
#[test]
fn vectors_of_rfc_3720() {
    let ascending: Vec<u8> = (0..32).collect();
    let descending: Vec<u8> = (0..32).rev().collect();
    let iscsi_read_10 = [
        0x01, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00,
        0x00, 0x18, 0x28, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00,
    ];
    let vectors: [(&[u8], [u8; 4]); 5] = [
        (&[0x00; 32], [0xaa, 0x36, 0x91, 0x8a]),
        (&[0xff; 32], [0x43, 0xab, 0xa8, 0x62]),
        (&ascending, [0x4e, 0x79, 0xdd, 0x46]),
        (&descending, [0x5c, 0xdb, 0x3f, 0x11]),
        (&iscsi_read_10, [0x56, 0x3a, 0x96, 0xd9]),
    ];
    for (bytes, crc) in vectors {
        let crc = u32::from_le_bytes(crc);
        assert_eq!(crc32c(bytes), crc, "{bytes:?}");
        assert_eq!(table::extend(0, bytes), crc, "{bytes:?}");
        assert_eq!(by_bits(0, bytes), crc, "{bytes:?}");
    }
}

#[test]
fn nothing_changes_nothing() {
    assert_eq!(crc32c(&[]), 0);
    assert_eq!(extend(0xdead_beef, &[]), 0xdead_beef);
    assert_eq!(combine(0xdead_beef, 0, 0), 0xdead_beef);
}

/// Every length up to that of a few wide steps, at every place in a block.
#[test]
fn short_ones_at_all_alignments() {
    let bytes: Vec<u8> = (0..1100_u32)
        .map(|i| ((i * i) >> 3).to_le_bytes()[0])
        .collect();
    for start in 0..16 {
        let mut expected = 0x1234_5678;
        for end in start..bytes.len() {
            let slice = &bytes[start..end];
            assert_eq!(extend(0x1234_5678, slice), expected, "{start}..{end}");
            expected = by_bits(expected, &bytes[end..=end]);
        }
    }
}

/// A buffer of up to 20,000 bytes, to be read from one of its first 16.
fn buffers() -> impl Strategy<Value = (Vec<u8>, usize)> {
    (prop::collection::vec(any::<u8>(), 16..20_016), 0..16_usize)
}

proptest! {
    #[test]
    fn matches_the_definition((buffer, start) in buffers(), crc: u32) {
        let bytes = &buffer[start..];
        let expected = by_bits(crc, bytes);
        prop_assert_eq!(extend(crc, bytes), expected);
        prop_assert_eq!(table::extend(crc, bytes), expected);
    }

    #[test]
    fn parts_make_the_whole(
        (buffer, start) in buffers(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let bytes = &buffer[start..];
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.push(bytes.len());
        cuts.sort_unstable();
        let (mut streamed, mut combined, mut begin) = (0, 0, 0);
        for end in cuts {
            let part = &bytes[begin..end];
            streamed = extend(streamed, part);
            combined = combine(combined, crc32c(part), part.len());
            begin = end;
        }
        prop_assert_eq!(streamed, crc32c(bytes));
        prop_assert_eq!(combined, crc32c(bytes));
    }

    #[test]
    fn a_burst_of_32_bits_is_seen(
        (mut buffer, start) in buffers(),
        at: prop::sample::Index,
        burst in 1..=u32::MAX,
    ) {
        prop_assume!(buffer.len() - start >= 4);
        let before = crc32c(&buffer[start..]);
        let at = start + at.index(buffer.len() - start - 3);
        for (byte, flipped) in buffer[at..].iter_mut().zip(burst.to_le_bytes()) {
            *byte ^= flipped;
        }
        prop_assert_ne!(crc32c(&buffer[start..]), before);
    }
}
