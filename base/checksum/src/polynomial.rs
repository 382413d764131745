//! Arithmetic of polynomials over two elements, modulo Castagnoli's.
//!
//! In all of them bit `31 - d` is the coefficient of `x^d`, the order in which the checksum reads bits.

use crate::POLYNOMIAL;

/// `x^0`.
const ONE: u32 = 1 << 31;

/// `BYTES[k]` is `x` to the power of the bits in `2^k` bytes.
const BYTES: [u32; usize::BITS as usize] = {
    let mut powers = [power(8); usize::BITS as usize];
    let mut k = 1;
    while k < powers.len() {
        powers[k] = multiply(powers[k - 1], powers[k - 1]);
        k += 1;
    }
    powers
};

/// Product of two polynomials, modulo the CRC polynomial.
pub(crate) const fn multiply(a: u32, b: u32) -> u32 {
    let (mut product, mut b, mut d) = (0, b, 0);
    while d < u32::BITS {
        let coefficient = (a >> (31 - d)) & 1;
        product ^= b & coefficient.wrapping_neg();
        b = (b >> 1) ^ (POLYNOMIAL & (b & 1).wrapping_neg());
        d += 1;
    }
    product
}

/// The polynomial `x^n`, modulo the CRC polynomial.
pub(crate) const fn power(n: u32) -> u32 {
    let (mut result, mut square, mut n) = (ONE, ONE >> 1, n);
    while n > 0 {
        if n & 1 == 1 {
            result = multiply(result, square);
        }
        square = multiply(square, square);
        n >>= 1;
    }
    result
}

/// `a` moved up by the bits of `bytes` bytes.
pub(crate) fn shift(a: u32, bytes: usize) -> u32 {
    let (mut result, mut left) = (a, bytes);
    while left > 0 {
        result = multiply(result, BYTES[left.trailing_zeros() as usize]);
        left &= left - 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Multiplies by `x`, `n` times.
    fn times_x(mut a: u32, n: u32) -> u32 {
        for _ in 0..n {
            let overflows = a & 1 == 1;
            a >>= 1;
            if overflows {
                a ^= POLYNOMIAL;
            }
        }
        a
    }

    #[test]
    fn powers_are_repeated_products() {
        for n in 0..2000 {
            assert_eq!(power(n), times_x(ONE, n), "x^{n}");
        }
    }

    #[test]
    fn multiplication_is_a_ring() {
        let samples = [0, 1, ONE, POLYNOMIAL, u32::MAX, 0xdead_beef, 0x1234_5678];
        for a in samples {
            assert_eq!(multiply(a, ONE), a);
            for b in samples {
                assert_eq!(multiply(a, b), multiply(b, a));
                for c in samples {
                    assert_eq!(multiply(a ^ b, c), multiply(a, c) ^ multiply(b, c));
                    let left = multiply(multiply(a, b), c);
                    assert_eq!(left, multiply(a, multiply(b, c)));
                }
            }
        }
    }

    #[test]
    fn the_polynomial_has_the_period_of_its_factors() {
        // (x + 1) times a primitive one of degree 31.
        assert_eq!(power(i32::MAX.unsigned_abs()), ONE);
        assert_ne!(power(1), ONE);
    }

    #[test]
    fn shifts_are_bytes() {
        for bytes in 0..300 {
            let bits = u32::try_from(8 * bytes).expect("small");
            assert_eq!(shift(0xdead_beef, bytes), times_x(0xdead_beef, bits));
        }
        let (huge, sample) = (usize::MAX, 0xdead_beef);
        let halves = shift(shift(sample, huge / 2), huge - huge / 2);
        assert_eq!(shift(sample, huge), halves);
    }
}
