//! CRC32C, with the machine's own instructions.
//!
//! # Purpose
//! The checksum of iSCSI, NVMe and the storage formats of this project: a cyclic redundancy check by
//! Castagnoli's polynomial, bits reflected, register inverted before and after, as in RFC 3720. It finds
//! accidents, every burst of up to 32 bits among them, and no malice.
//!
//! # Cost
//! | machine | method | implementation |
//! |---|---|---|
//! | x86-64 | carry-less multiplication, on AVX-512 registers or beside SSE4.2's `crc32` | crate `crc-fast` |
//! | aarch64 | `crc32c*` beside `pmull`, with `eor3` where there is SHA3 | crate `crc-fast` |
//! | POWER8 and later, little-endian | `vpmsumd`, through C | here |
//! | any other, and these without the instructions | tables | here; on the first two, `crc-fast` |
//!
//! The machine's features are detected at run time; [`implementation`] names the result. AVX-512 needs a compiler
//! of Rust 1.89 or later. `crc-fast` cannot be limited to fewer features; `make test` runs it also as
//! on the oldest x86-64 machine served, by emulation. Nothing is allocated on the way, and the input needs
//! no alignment. `cargo bench -p millrace-checksum` measures.
//!
//! # Threads
//! All functions are pure. Parts of a buffer can be computed by several threads and put together by
//! [`combine`].
//!
//! # Example
//! ```
//! use millrace_checksum::{combine, crc32c, extend};
//!
//! assert_eq!(crc32c(b"123456789"), 0xe306_9283);
//! assert_eq!(extend(crc32c(b"12345"), b"6789"), 0xe306_9283);
//! assert_eq!(combine(crc32c(b"12345"), crc32c(b"6789"), 4), 0xe306_9283);
//! ```

#[cfg(any(test, all(target_arch = "powerpc64", target_endian = "little")))]
mod folding;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod fused;
mod polynomial;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod portable;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod table;
#[cfg(all(target_arch = "powerpc64", target_endian = "little"))]
mod vpmsum;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use fused as machine;
#[cfg(not(any(
    target_arch = "x86_64",
    target_arch = "aarch64",
    all(target_arch = "powerpc64", target_endian = "little")
)))]
use portable as machine;
#[cfg(all(target_arch = "powerpc64", target_endian = "little"))]
use vpmsum as machine;

/// Castagnoli's polynomial without its first term: bit `31 - d` is the coefficient of `x^d`.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// The checksum of `bytes`; that of none is 0.
#[inline]
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    extend(0, bytes)
}

/// Checksum of data with checksum `crc` followed by `bytes`.
#[inline]
#[must_use]
pub fn extend(crc: u32, bytes: &[u8]) -> u32 {
    machine::extend(crc, bytes)
}

/// The checksum of A followed by B, from those of A and of B and the length of B in bytes.
///
/// Costs one multiplication in software for each bit that is set in the length, some 30 ns each.
#[must_use]
pub fn combine(crc_a: u32, crc_b: u32, len_b: usize) -> u32 {
    polynomial::shift(crc_a, len_b) ^ crc_b
}

/// What computes checksums on this machine, for benchmarks and reports of faults.
#[must_use]
pub fn implementation() -> &'static str {
    machine::implementation()
}
