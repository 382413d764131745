//! x86-64 and aarch64: the crate `crc-fast`.
//!
//! It runs the processor's instruction for this checksum, three streams side by side, together with
//! folding by carry-less multiplication, and takes to tables where a processor lacks them.

use std::sync::LazyLock;

use crc_fast::{CrcAlgorithm, Digest, crc32_iscsi, get_calculator_target};

/// The checksum extended by `bytes`; see [`crate::extend`].
#[inline]
pub(crate) fn extend(crc: u32, bytes: &[u8]) -> u32 {
    // The crate's entry for a checksum from the start takes half the time of its `Digest` for a short one.
    if crc == 0 {
        return crc32_iscsi(bytes);
    }
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!crc));
    digest.update(bytes);
    u32::try_from(digest.finalize()).expect("a register of 32 bits")
}

/// Name of the implementation; see [`crate::implementation`].
pub(crate) fn implementation() -> &'static str {
    static NAME: LazyLock<String> = LazyLock::new(|| {
        format!(
            "crc-fast, {}",
            get_calculator_target(CrcAlgorithm::Crc32Iscsi)
        )
    });
    &NAME
}
