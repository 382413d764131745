//! What the tests of volumes share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millrace_blobfs::{Clock, FormatOptions, MountOptions, Timestamp, Volume};
use millrace_block::Device;

/// A clock that counts its readings.
pub(crate) fn clock() -> Clock {
    let now = AtomicU64::new(1_000);
    Arc::new(move || Timestamp(now.fetch_add(1, Ordering::Relaxed)))
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

/// Random numbers from a seed.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x9e37_79b9_7f4a_7c15)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Less than `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end.max(1) as u64).expect("less than a usize")
    }
}
