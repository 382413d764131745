//! What the tests of volumes share.

use std::sync::Arc;

use millrace_blobfs::{Clock, FormatOptions, MountOptions, Timestamp, Volume};
use millrace_block::Device;
use millrace_random::Random;

/// A clock that counts its readings.
pub(crate) fn clock() -> Clock {
    millrace_fixtures::blobfs::clock(1_000)
}

/// Options for small volumes.
pub(crate) fn options() -> MountOptions {
    MountOptions {
        arena_bytes: 1 << 20,
        ..MountOptions::new(clock())
    }
}

/// Makes a volume, with checksums of data or without, and mounts it.
pub(crate) fn fresh_with(device: &Arc<dyn Device>, data_checksums: bool) -> Volume {
    let format = FormatOptions {
        data_checksums,
        ..FormatOptions::new([7; 16], Timestamp(1))
    };
    Volume::format(device, &format).expect("the device is good");
    mount(device)
}

/// Mounts a volume.
pub(crate) fn mount(device: &Arc<dyn Device>) -> Volume {
    Volume::mount(Arc::clone(device), options()).expect("the volume is good")
}

/// Bytes that differ from place to place.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Draws from a seed, whose bounds are lengths.
pub(crate) struct Rng(Random);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Random::new(
            seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x9e37_79b9_7f4a_7c15,
        ))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.number()
    }

    /// Less than `end`; zero if that is zero.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0.index(end.max(1))
    }
}
