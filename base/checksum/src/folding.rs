//! The constants of folding by a carry-less multiplication of 64 by 64 bits.
//!
//! # Bits and polynomials
//! The first bit of a message, the lowest of its first byte, is the coefficient of the highest power. So a
//! block of 16 bytes, read as a little-endian number, is a polynomial in which bit `i` belongs to
//! `x^(127 - i)`: its low half `L` holds the high powers, and it is `L x^64 + H`. In a half, bit `i`
//! belongs to `x^(63 - i)`. The product of two such numbers has bit `i` at `x^(126 - i)`; read as a block it
//! is the product of the polynomials times `x`.
//!
//! # Folding
//! To add a block to one that stands `n` bits later, it is multiplied by `x^n` modulo the checksum's
//! polynomial `P`: `L (x^(n + 64) mod P) + H (x^n mod P)`, which fits into a block, as the remainders have
//! 32 bits. With the `x` that multiplication adds, the constants are `x^(n + 63)` and `x^(n - 1)`.
//!
//! # The end
//! The checksum is the last block times `x^32`, modulo `P`. Folding by 32 bits leaves 96 bits, folding of
//! their highest 32 by 64 leaves 64 bits `U`. With `m` the quotient of `x^64` by `P` (Barrett), the quotient
//! of `U` is that of `(U / x^32) m` by `x^32`, and `U` less that many times `P` is the rest.
//!
//! The method is that of V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
//! Instruction", Intel, 2009.

use crate::POLYNOMIAL;
use crate::polynomial::power;

/// The factors for the low and the high half of a block.
type Factors = [u64; 2];

/// What `cc/vpmsum.c` multiplies with; its `struct folding`.
#[derive(Debug)]
#[repr(C, align(16))]
pub(crate) struct Folding {
    by_1024: Factors,
    by_512: Factors,
    by_256: Factors,
    by_128: Factors,
    /// Folds by 32, from 160 bits (a block times `x^32`) to 96.
    to_96: Factors,
    /// Folds the low half of 96 bits, their highest 32, by 64.
    to_64: Factors,
    /// Barrett's quotient: bit `i` belongs to `x^(32 - i)`.
    quotient: Factors,
    /// The whole polynomial: bit `i` belongs to `x^(32 - i)`.
    polynomial: Factors,
}

const _: () = assert!(size_of::<Folding>() == 128);

pub(crate) static FOLDING: Folding = Folding {
    by_1024: fold_by(1024),
    by_512: fold_by(512),
    by_256: fold_by(256),
    by_128: fold_by(128),
    to_96: fold_by(32),
    to_64: [fold_by(64)[1], 0],
    quotient: [0, reflected(quotient())],
    polynomial: [reflected(WHOLE), 0],
};

/// The polynomial with its first term: bit `d` is the coefficient of `x^d`.
const WHOLE: u64 = 1 << 32 | POLYNOMIAL.reverse_bits() as u64;

const fn fold_by(bits: u32) -> Factors {
    [
        (power(bits + 63) as u64) << 32,
        (power(bits - 1) as u64) << 32,
    ]
}

/// `x^64` divided by the polynomial: bit `d` is the coefficient of `x^d`.
const fn quotient() -> u64 {
    let (mut rest, mut quotient) = (1_u128 << 64, 0);
    let mut d = 33;
    while d > 0 {
        d -= 1;
        if (rest >> (32 + d)) & 1 == 1 {
            rest ^= (WHOLE as u128) << d;
            quotient |= 1 << d;
        }
    }
    quotient
}

/// The 33 bits of `a` in the opposite order.
const fn reflected(a: u64) -> u64 {
    a.reverse_bits() >> 31
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::polynomial::multiply;

    /// The product without carries.
    fn product(a: u64, b: u64) -> u128 {
        (0..64)
            .filter(|bit| b >> bit & 1 == 1)
            .fold(0, |sum, bit| sum ^ u128::from(a) << bit)
    }

    fn half(block: u128, shift: u32) -> u64 {
        u64::try_from(block >> shift & u128::from(u64::MAX)).expect("masked to 64 bits")
    }

    /// The instruction `vpmsumd`.
    fn vpmsumd(block: u128, factors: Factors) -> u128 {
        product(half(block, 0), factors[0]) ^ product(half(block, 64), factors[1])
    }

    /// The remainder of a block, bit by bit.
    fn remainder(block: u128) -> u32 {
        (0..128)
            .filter(|bit| block >> bit & 1 == 1)
            .fold(0, |sum, bit| sum ^ power(127 - bit))
    }

    /// The end of `cc/vpmsum.c`, line for line.
    fn reduce(block: u128) -> u32 {
        let (high, low_word) = (!0 << 64, 0xffff_ffff);
        let sum = vpmsumd(block, FOLDING.to_96);
        let sum = vpmsumd(sum, FOLDING.to_64) ^ (sum & high);
        let quotient = vpmsumd(sum, FOLDING.quotient) & low_word;
        let multiple = vpmsumd(quotient, FOLDING.polynomial);
        u32::try_from((half(sum, 64) ^ half(multiple, 0)) >> 32).expect("32 bits")
    }

    #[test]
    fn quotient_and_rest_make_the_dividend() {
        let rest = product(quotient(), WHOLE) ^ 1 << 64;
        assert!(rest < 1 << 32);
        assert_eq!(u128::from(power(64).reverse_bits()), rest);
    }

    proptest! {
        #[test]
        fn folding_multiplies(block: u128) {
            let distances = [
                (1024, FOLDING.by_1024),
                (512, FOLDING.by_512),
                (256, FOLDING.by_256),
                (128, FOLDING.by_128),
                (32, FOLDING.to_96),
            ];
            for (bits, factors) in distances {
                let moved = multiply(remainder(block), power(bits));
                prop_assert_eq!(remainder(vpmsumd(block, factors)), moved, "by {}", bits);
            }
        }

        #[test]
        fn reducing_is_the_checksum_of_a_block(block: u128) {
            prop_assert_eq!(reduce(block), multiply(remainder(block), power(32)));
        }
    }
}
