//! POWER8 and later, little-endian: folding by `vpmsumd`, in C for want of stable intrinsics.

use std::ffi::c_ulong;

use crate::folding::{FOLDING, Folding};
use crate::portable;

const BLOCK: usize = 16;

/// From this length on folding is worth its fixed cost, four multiplications one after the other.
const FOLDED_MIN: usize = 4 * BLOCK;

/// The C library's number for the second word of the processor's capabilities.
const AT_HWCAP2: c_ulong = 26;

/// The bit in it that stands for the vector instructions of cryptography, `vpmsumd` among them.
const PPC_FEATURE2_VEC_CRYPTO: c_ulong = 0x0200_0000;

unsafe extern "C" {
    /// The C library's function: a value of the auxiliary vector; 0 if the kernel did not provide it.
    safe fn getauxval(kind: c_ulong) -> c_ulong;

    /// The register after `blocks` times 16 bytes, beginning from `state`.
    ///
    /// # Safety
    /// The machine has `vpmsumd`. `blocks` is not 0, and that many blocks can be read from `bytes`.
    unsafe fn millrace_crc32c_vpmsum(
        state: u32,
        bytes: *const u8,
        blocks: usize,
        constants: &Folding,
    ) -> u32;
}

fn machine_has_vpmsum() -> bool {
    getauxval(AT_HWCAP2) & PPC_FEATURE2_VEC_CRYPTO != 0
}

/// The checksum extended by `bytes`; see [`crate::extend`].
pub(crate) fn extend(crc: u32, bytes: &[u8]) -> u32 {
    if bytes.len() < FOLDED_MIN || !machine_has_vpmsum() {
        return portable::extend(crc, bytes);
    }
    let blocks = bytes.len() / BLOCK;
    // SAFETY: the kernel has just reported the instruction, and `blocks`, at least four, is what of whole
    // blocks the slice holds.
    let state = unsafe { millrace_crc32c_vpmsum(!crc, bytes.as_ptr(), blocks, &FOLDING) };
    portable::extend(!state, &bytes[blocks * BLOCK..])
}

/// Name of the implementation; see [`crate::implementation`].
pub(crate) fn implementation() -> &'static str {
    if machine_has_vpmsum() {
        "vpmsumd, eight blocks side by side"
    } else {
        portable::implementation()
    }
}
