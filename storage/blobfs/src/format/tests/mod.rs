//! Tests of the format: a simple model is the oracle.

mod block_trailer;
mod checkpoint_image;
mod data_layout;
mod golden;
mod hostile;
mod layout;
mod metadata;
mod model;
mod operation;
mod overlay;
mod replay;
mod superblock;
mod transaction;
mod world;

use crate::format::Layout;
use crate::format::key::VolumeKey;

/// A key of no volume in particular.
fn key() -> VolumeKey {
    VolumeKey::new(b"sixteen bytes...")
}

/// The smallest volume with blocks of 512 bytes: one group of 190 units.
fn small_layout() -> Layout {
    Layout::new(512, 2048, 64, 256).expect("a layout that fits")
}

/// A volume of 64 MiB with 16 groups of 4 MiB.
fn middle_layout() -> Layout {
    Layout::new(4096, 16_384, 128, 1024).expect("a layout that fits")
}
