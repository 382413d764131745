//! The checksum by tables, eight bytes a step.
//!
//! A byte moves the register by what one table says about the byte that falls out; so do eight bytes by
//! eight tables, each for a byte that many places further up. See M. E. Kounavis and F. L. Berry, "A
//! Systematic Approach to Building High Performance Software-Based CRC Generators", ISCC 2005.

use crate::POLYNOMIAL;

/// `TABLES[n][byte]` is the register that `byte` leaves when `n` zero bytes follow it.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0_u32; 256]; 8];
    let (mut byte, mut register) = (0, 0_u32);
    while byte < 256 {
        let mut entry = register;
        let mut bit = 0;
        while bit < 8 {
            entry = (entry >> 1) ^ (POLYNOMIAL & (entry & 1).wrapping_neg());
            bit += 1;
        }
        tables[0][byte] = entry;
        byte += 1;
        register += 1;
    }
    let mut n = 1;
    while n < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[n - 1][byte];
            tables[n][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        n += 1;
    }
    tables
}

/// The checksum extended by `bytes`; see [`crate::extend`].
pub(crate) fn extend(crc: u32, bytes: &[u8]) -> u32 {
    let mut register = !crc;
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let word = u64::from_le_bytes(word.try_into().expect("chunks of eight bytes"));
        let places = (word ^ u64::from(register)).to_le_bytes();
        register = places
            .iter()
            .zip(TABLES.iter().rev())
            .fold(0, |sum, (byte, table)| sum ^ table[usize::from(*byte)]);
    }
    for byte in words.remainder() {
        let place = register.to_le_bytes()[0] ^ byte;
        register = (register >> 8) ^ TABLES[0][usize::from(place)];
    }
    !register
}
